//! systemd-networkd removes routes, rules and nexthops that it does not know when it starts, unless it is told not to
//! (networkd.conf(5)).

use std::fs;
use std::path::{Path, PathBuf};

use tarn_frame::Ability;

/// Where it keeps its state once it runs. The directory is there without it, too (tmpfiles.d/systemd-network.conf).
const RUNNING: &str = "/run/systemd/netif/state";
/// Where its configuration lies, the most important last.
const DIRECTORIES: [&str; 3] = ["usr/lib/systemd", "run/systemd", "etc/systemd"];
/// What has to be `no`.
const KEYS: [&str; 3] = [
    "ManageForeignRoutes",
    "ManageForeignRoutingPolicyRules",
    "ManageForeignNextHops",
];

/// Whether it leaves alone what tarn sets; `None` where it does not run.
pub fn ability() -> Option<Ability> {
    Path::new(RUNNING)
        .exists()
        .then(|| ability_of(&managed(Path::new("/"))))
}

fn ability_of(managed: &[&str]) -> Ability {
    let lines = managed.iter().map(|key| format!("{key}=no")).collect::<Vec<_>>();
    Ability {
        name: "systemd-networkd leaves foreign routes alone".to_owned(),
        present: managed.is_empty(),
        required: false,
        detail: match managed.is_empty() {
            true => "ManageForeign... are no".to_owned(),
            false => format!(
                "it removes tarn's routes when it starts: write {} under [Network] of /etc/systemd/networkd.conf",
                lines.join(", ")
            ),
        },
    }
}

/// The keys that are not `no`, in the configuration below this directory.
fn managed(root: &Path) -> Vec<&'static str> {
    let directories = DIRECTORIES.map(|directory| root.join(directory));
    // The main file of the most important directory counts alone; then drop-ins, by name.
    let main = directories
        .iter()
        .rev()
        .map(|directory| directory.join("networkd.conf"))
        .find(|file| file.exists());
    let mut drop_ins: Vec<PathBuf> = Vec::new();
    for directory in &directories {
        for file in fs::read_dir(directory.join("networkd.conf.d"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let is_same = |other: &PathBuf| other.file_name() == Some(&file.file_name());
            drop_ins.retain(|other| !is_same(other));
            drop_ins.push(file.path());
        }
    }
    drop_ins.retain(|file| file.extension().is_some_and(|extension| extension == "conf"));
    drop_ins.sort_by_key(|file| file.file_name().map(ToOwned::to_owned));
    let texts: Vec<String> = main.into_iter().chain(drop_ins).flat_map(fs::read_to_string).collect();
    let lines = || texts.iter().flat_map(|text| text.lines());
    let value = |key: &str| {
        let mut values = lines().filter_map(|line| line.trim().split_once('=').filter(|(name, _)| name.trim() == key));
        values.next_back().map(|(_, value)| value.trim().to_lowercase())
    };
    let is_no = |key: &&str| value(key).is_some_and(|value| ["no", "false", "off", "0", "n", "f"].contains(&&*value));
    KEYS.into_iter().filter(|key| !is_no(key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every route of tarn's would be gone with the next restart of networkd, without a warning before.
    #[test]
    fn what_networkd_would_remove_is_seen_in_its_files() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        assert_eq!(managed(root.path()), KEYS);
        write(
            "etc/systemd/networkd.conf",
            "[Network]\n#ManageForeignRoutes=no\nManageForeignNextHops = no\n",
        );
        assert_eq!(managed(root.path()), KEYS[..2]);
        let both = "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=false\n";
        write("usr/lib/systemd/networkd.conf.d/10-tarn.conf", both);
        assert_eq!(managed(root.path()), [""; 0]);
        // A later one counts, and one of the same name hides that of the distribution.
        write(
            "run/systemd/networkd.conf.d/20-late.conf",
            "[Network]\nManageForeignRoutes=yes\n",
        );
        assert_eq!(managed(root.path()), KEYS[..1]);
        write("etc/systemd/networkd.conf.d/10-tarn.conf", "");
        assert_eq!(managed(root.path()), KEYS[..2]);
        let said = ability_of(&KEYS[..1]);
        assert!(
            !said.present && said.detail.contains("write ManageForeignRoutes=no under"),
            "{}",
            said.detail
        );
    }
}
