//! The thesis's figures.

use tarn_lab::experiment::Reference;

const STOCK: &str = "thesis, stock kernel: mean response in s";
const SCHEDULER: &str = "thesis, its scheduler";

const fn response(source: &'static str, metric: &'static str, seconds: f64) -> Reference {
    Reference::new(source, metric, seconds * 1e3, MACHINE)
}

const fn counted(metric: &'static str, value: f64, note: &'static str) -> Reference {
    Reference::new(SCHEDULER, metric, value, note)
}

const MACHINE: &str = "ms; Linux 2.6.16, 700 MHz, 100 Mbit/s, Apache; 15,000 requests a connection";
const PACKETS: &str = "packets in, of 60,000 requests";
const IN_TIME: &str = "within the deadline of 4 ms, from handing on";
const PRIORITY: &str = "10 N P / S";

/// Both tables.
pub static ALL: &[Reference] = &[
    response(STOCK, "stock_response_ms_0", 0.02395),
    response(STOCK, "stock_response_ms_1", 0.01004),
    response(STOCK, "stock_response_ms_2", 0.01819),
    response(STOCK, "stock_response_ms_3", 0.02596),
    response(STOCK, "stock_response_ms_4", 0.01270),
    response(SCHEDULER, "response_ms_0", 0.011_851),
    response(SCHEDULER, "response_ms_1", 0.012_481),
    response(SCHEDULER, "response_ms_2", 0.013_106),
    response(SCHEDULER, "response_ms_3", 0.013_465),
    response(SCHEDULER, "response_ms_4", 0.015_447),
    counted("requests_0", 60_000.0, PACKETS),
    counted("requests_1", 60_000.0, PACKETS),
    counted("requests_2", 57_551.0, PACKETS),
    counted("requests_3", 57_350.0, PACKETS),
    counted("requests_4", 48_139.0, PACKETS),
    counted("in_time_0", 40_756.0, IN_TIME),
    counted("in_time_1", 36_512.0, IN_TIME),
    counted("in_time_2", 30_658.0, IN_TIME),
    counted("in_time_3", 26_172.0, IN_TIME),
    counted("in_time_4", 18_304.0, IN_TIME),
    counted("priority_0", 1324.0, PRIORITY),
    counted("priority_1", 1314.0, PRIORITY),
    counted("priority_2", 1314.0, PRIORITY),
    counted("priority_3", 1314.0, PRIORITY),
    counted("priority_4", 1315.0, PRIORITY),
];
