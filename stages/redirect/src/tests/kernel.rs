//! What the stage asks the kernel, on every kernel: what binds packets that BPF redirects, and what a firewall's rules are.

use std::collections::HashMap;
use std::process::Command;

use tarn_kernel::netns::testing::in_new_namespace;
use tarn_kernel::nft::Nft;
use tarn_kernel::{netconf, sysctl, xfrm};

/// `rp_filter` of `all` counts as well as the device's: a host that sets one of them only is filtered all the same.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_the_higher_rp_filter_holds() {
    in_new_namespace(|| {
        let set = |device: &str, value: &str| {
            std::fs::write(sysctl::path(&format!("net.ipv4.conf.{device}.rp_filter")), value).unwrap();
        };
        for (all, device, expected) in [("0", "0", 0), ("0", "1", 1), ("2", "1", 2), ("1", "0", 1)] {
            set("all", all);
            set("lo", device);
            assert_eq!(netconf::reverse_paths().unwrap(), HashMap::from([(1, expected)]));
        }
    });
}

/// On a host with a large blocklist, `tarn up` would take many seconds and much memory to list what it does not look at:
/// 300,000 elements took 17 s and 190 MiB. What a rule compares with in place is listed.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_rules_are_listed_without_the_elements_of_sets() {
    in_new_namespace(|| {
        let nft = Nft::find().unwrap();
        let script = "table inet t {
            set blocked { type ipv4_addr; elements = { 192.0.2.77 }; }
            map led { type ipv4_addr : ipv4_addr; elements = { 192.0.2.78 : 192.0.2.79 }; }
            chain c { type filter hook forward priority 0; iifname { \"wan0\", \"wan1\" } ip saddr @blocked drop; }
        }\n";
        nft.apply(script).unwrap();
        let listed = nft.ruleset().unwrap();
        assert!(listed.contains("\"blocked\"") && listed.contains("wan1"), "{listed}");
        assert!(!listed.contains("192.0.2.7"), "{listed}");
    });
}

fn xfrm(arguments: &str) -> bool {
    let done = Command::new("ip").arg("xfrm").args(arguments.split(' ')).output();
    done.unwrap().status.success()
}

/// What only lets packets pass takes nobody's redirection away; what encrypts or drops them is found.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_policies_that_bind_are_found() {
    in_new_namespace(|| {
        assert!(!xfrm::has_policies().unwrap());
        if !xfrm("policy list") {
            println!("SKIP: this kernel has no IPsec");
            return;
        }
        assert!(!xfrm::has_policies().unwrap());
        let between = "src 192.0.2.0/24 dst 198.51.100.0/24 dir fwd";
        assert!(xfrm(&format!("policy add {between}")));
        assert!(!xfrm::has_policies().unwrap(), "it lets pass");
        let template = "tmpl src 192.0.2.1 dst 198.51.100.1 proto esp mode tunnel";
        for binding in [format!("{between} action block"), format!("{between} {template}")] {
            assert!(xfrm(&format!("policy update {binding}")));
            assert!(xfrm::has_policies().unwrap(), "{binding}");
            assert!(xfrm(&format!("policy delete {between}")));
            assert!(!xfrm::has_policies().unwrap());
        }
        if xfrm("policy setdefault fwd block") {
            assert!(xfrm::has_policies().unwrap());
        }
    });
}
