//! tarn keeps the network latency of a Linux host still, on stock kernels.

fn main() {}
