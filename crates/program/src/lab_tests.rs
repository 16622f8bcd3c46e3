//! What the crates below do in the lab, which they cannot use themselves.

use std::collections::HashSet;

use tarn_frame::journal::Journal;
use tarn_frame::state::StateDirectory;
use tarn_frame::sysctl::change;
// A harness that uses the lab can be the first process of its guests.
use tarn_kernel::netns::cookie;
use tarn_kernel::netns::testing::in_new_namespace;
use tarn_kernel::sysctl::{path, read};
use tarn_lab as _;

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_two_namespaces_are_never_taken_for_one() {
    let here = cookie().unwrap();
    let cookies: Vec<u64> = (0..8).map(|_| in_new_namespace(|| cookie().unwrap())).collect();
    assert!(!cookies.contains(&here));
    let distinct: HashSet<_> = cookies.iter().collect();
    // A later namespace may have the inode number of an earlier one that is gone; never its cookie.
    assert_eq!(distinct.len(), cookies.len());
}

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_a_namespace_s_sysctl_is_changed_and_put_back() {
    in_new_namespace(|| {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&StateDirectory::at(directory.path(), "state")).unwrap();
        // /proc/sys/net shows the namespace of the thread that opens it.
        for (name, value) in [
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv4.ip_local_port_range", "2000 3000"),
        ] {
            let path = path(name);
            let before = read(&path).unwrap();
            change(&mut journal, "redirect", &path, value).unwrap();
            assert_eq!(read(&path).unwrap(), value);
            journal.undo(None).unwrap();
            assert_eq!(read(&path).unwrap(), before);
        }
        let refused = change(
            &mut journal,
            "redirect",
            &path("net.ipv4.ip_local_port_range"),
            "rubbish",
        );
        let message = format!("{:#}", refused.unwrap_err());
        assert!(
            message.contains("cannot set the sysctl net.ipv4.ip_local_port_range to rubbish"),
            "{message}"
        );
    });
}
