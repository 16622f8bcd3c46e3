//! Programs of the system that tarn runs.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where programs are looked for first: they run as root, and `PATH` may begin with a directory that others can write to.
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The file of a program: one of the system's own if it is there, or else the first in `PATH`.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_in(
        DIRECTORIES
            .iter()
            .map(PathBuf::from)
            .chain(std::env::split_paths(&path)),
        name,
    )
}

/// The first such program. `PATH` may name directories by where one stands, which is anywhere.
fn find_in(directories: impl Iterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    directories
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that somebody put into a directory of `PATH` does not run in the place of the system's.
    #[test]
    fn the_system_s_programs_come_first() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("sh");
        std::fs::write(&own, "").unwrap();
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = || std::iter::once(directory.path().to_path_buf());
        let system = DIRECTORIES.iter().map(PathBuf::from);
        let found = find_in(system.chain(path()), "sh").unwrap();
        assert!(DIRECTORIES.iter().any(|place| found.starts_with(place)), "{found:?}");
        assert_eq!(find_in(path(), "sh"), Some(own));
    }

    #[test]
    fn what_is_no_program_is_not_found() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("tool"), "").unwrap();
        assert_eq!(find_in(std::iter::once(directory.path().to_path_buf()), "tool"), None);
        assert_eq!(
            find_in([PathBuf::from("."), PathBuf::from("bin")].into_iter(), "sh"),
            None
        );
    }
}
