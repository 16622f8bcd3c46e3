//! The guest's root file system as the kernel reads it: a `newc` cpio archive.
//!
//! What it holds does not depend on when, by whom or from what order of files it was made: entries are sorted by
//! path, belong to root and carry no times. The same input gives the same bytes, and the same bytes boot the same.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use anyhow::{Context, Result, bail};
use cpio::newc::{self, Builder};

/// A file for the guest: its path there, permissions, content.
pub type GuestFile = (String, u32, Vec<u8>);

/// The type bits of a mode.
const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTER: u32 = 0o020_000;

/// A tree of files, by path relative to the root, without a leading slash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Archive {
    entries: BTreeMap<String, Entry>,
}

/// One file, directory, symbolic link or device.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// Type and permissions, as in `stat`.
    mode: u32,
    /// A regular file's bytes or a link's target.
    content: Vec<u8>,
    /// Major and minor number of a device.
    device: (u32, u32),
}

impl Archive {
    /// Adds a directory, and those above it.
    pub fn directory(&mut self, path: &str, permissions: u32) {
        self.insert(path, DIRECTORY | permissions, Vec::new(), (0, 0));
    }

    /// Adds a regular file, and the directories above it.
    pub fn file(&mut self, path: &str, permissions: u32, content: impl Into<Vec<u8>>) {
        self.insert(path, REGULAR | permissions, content.into(), (0, 0));
    }

    /// Adds a symbolic link, and the directories above it.
    pub fn link(&mut self, path: &str, target: &str) {
        self.insert(path, LINK | 0o777, target.into(), (0, 0));
    }

    /// Adds a character device, and the directories above it.
    pub fn character_device(&mut self, path: &str, permissions: u32, major: u32, minor: u32) {
        self.insert(path, CHARACTER | permissions, Vec::new(), (major, minor));
    }

    /// Takes a regular file out.
    pub fn take_file(&mut self, path: &str) -> Option<Vec<u8>> {
        let regular = self.entries.get(path).is_some_and(|entry| entry.mode & TYPE == REGULAR);
        if regular {
            self.entries.remove(path).map(|entry| entry.content)
        } else {
            None
        }
    }

    /// The paths, in the order they are written.
    #[cfg(test)]
    fn paths(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    fn insert(&mut self, path: &str, mode: u32, content: Vec<u8>, device: (u32, u32)) {
        for (slash, _) in path.match_indices('/') {
            self.entries.entry(path[..slash].to_owned()).or_insert_with(|| Entry {
                mode: DIRECTORY | 0o755,
                content: Vec::new(),
                device: (0, 0),
            });
        }
        self.entries.insert(path.to_owned(), Entry { mode, content, device });
    }

    /// Reads a tar stream to its end and keeps the paths that `keep` wants. A hard link becomes a copy, because
    /// the kernel resolves hard links in a cpio only by inode numbers that would have to be kept with them.
    ///
    /// # Errors
    /// When the stream is cut short or malformed, holds a path that is no UTF-8, or a hard link to nothing.
    pub fn from_tar(stream: impl Read, keep: impl Fn(&str) -> bool) -> Result<Self> {
        let mut archive = Self::default();
        let mut hard_links = Vec::new();
        for entry in tar::Archive::new(stream).entries()? {
            let mut entry = entry.context("cannot read the archive of the packages")?;
            let path = relative(&entry.path()?.to_string_lossy());
            if path.is_empty() || !keep(&path) {
                continue;
            }
            let header = entry.header().clone();
            let target = || -> Result<String> {
                let target = entry
                    .link_name()?
                    .with_context(|| format!("{path}: a link to nothing"))?;
                Ok(target.to_string_lossy().into_owned())
            };
            match header.entry_type() {
                tar::EntryType::Directory => archive.directory(&path, header.mode()? & 0o7777),
                tar::EntryType::Symlink => archive.link(&path, &target()?),
                tar::EntryType::Link => hard_links.push((path.clone(), relative(&target()?))),
                tar::EntryType::Regular | tar::EntryType::Continuous => {
                    let mut content = Vec::with_capacity(usize::try_from(header.size()?)?);
                    entry
                        .read_to_end(&mut content)
                        .with_context(|| format!("{path}: cut short"))?;
                    archive.file(&path, header.mode()? & 0o7777, content);
                }
                // Device nodes and the like: the guest mounts devtmpfs.
                _ => {}
            }
        }
        archive.copy_hard_links(hard_links)?;
        Ok(archive)
    }

    /// Reads one archive that [`Self::write`] wrote.
    ///
    /// # Errors
    /// When it is cut short or no such archive.
    pub fn from_cpio(mut stream: impl Read) -> Result<Self> {
        let mut archive = Self::default();
        loop {
            let mut reader = newc::Reader::new(stream).context("cannot read a cpio archive")?;
            let entry = reader.entry();
            if entry.is_trailer() {
                return Ok(archive);
            }
            let (path, mode) = (entry.name().to_owned(), entry.mode());
            let device = (entry.rdev_major(), entry.rdev_minor());
            let mut content = Vec::new();
            reader
                .read_to_end(&mut content)
                .with_context(|| format!("{path}: cut short"))?;
            archive.insert(&path, mode, content, device);
            stream = reader.finish()?;
        }
    }

    /// Leaves out what another archive has just so: written behind that one, it makes the same tree.
    pub fn leave_out(&mut self, other: &Self) {
        self.entries
            .retain(|path, entry| other.entries.get(path) != Some(entry));
    }

    fn copy_hard_links(&mut self, links: Vec<(String, String)>) -> Result<()> {
        for (path, target) in links {
            let Some(entry) = self.entries.get(&target).cloned() else {
                bail!("{path}: a hard link to {target}, which is not kept");
            };
            self.insert(&path, entry.mode, entry.content, entry.device);
        }
        Ok(())
    }

    /// Writes the archive, its trailer included. It ends at a multiple of 4 bytes, where the kernel looks for the next: archives
    /// written one after the other are one.
    ///
    /// # Errors
    /// When `out` fails or a file is larger than the format can say (4 GiB).
    pub fn write(&self, out: &mut dyn Write) -> Result<()> {
        for (inode, (path, entry)) in (1u32..).zip(&self.entries) {
            let size = u32::try_from(entry.content.len()).with_context(|| format!("{path} is larger than 4 GiB"))?;
            let mut writer = Builder::new(path)
                .ino(inode)
                .mode(entry.mode)
                .nlink(if entry.mode & TYPE == DIRECTORY { 2 } else { 1 })
                .rdev_major(entry.device.0)
                .rdev_minor(entry.device.1)
                .write(&mut *out, size);
            writer.write_all(&entry.content)?;
            writer.finish()?;
        }
        newc::trailer(out)?;
        Ok(())
    }
}

/// A tar member's path without the leading `./` or `/` and the trailing `/`.
fn relative(path: &str) -> String {
    path.trim_start_matches("./")
        .trim_matches('/')
        .trim_start_matches("./")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar_of(order: &[&str]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for path in order {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o755);
            header.set_uid(1000);
            header.set_mtime(1_700_000_000 + path.len() as u64);
            header.set_size(path.len() as u64);
            builder.append_data(&mut header, path, path.as_bytes()).unwrap();
        }
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Link);
        header.set_size(0);
        builder
            .append_link(&mut header, "./usr/bin/zcat", "./usr/bin/gzip")
            .unwrap();
        builder.into_inner().unwrap()
    }

    fn written(archive: &Archive) -> Vec<u8> {
        let mut bytes = Vec::new();
        archive.write(&mut bytes).unwrap();
        bytes
    }

    /// Without this, two machines (or two builds) would boot different bytes and measure different figures.
    #[test]
    fn order_owner_and_times_of_the_input_do_not_show() {
        let keep = |path: &str| !path.starts_with("usr/share");
        let one = tar_of(&["./usr/bin/gzip", "./etc/hosts", "./usr/share/doc/x"]);
        let other = tar_of(&["./etc/hosts", "./usr/bin/gzip"]);
        let one = Archive::from_tar(one.as_slice(), keep).unwrap();
        let other = Archive::from_tar(other.as_slice(), keep).unwrap();
        assert_eq!(written(&one), written(&other));
    }

    /// Without this, the kernel would not find the second archive, and the guest no /init.
    #[test]
    fn archives_can_be_concatenated() {
        let mut archive = Archive::default();
        for length in 0..9 {
            archive.file("odd", 0o644, vec![b'x'; length]);
            assert_eq!(written(&archive).len() % 4, 0);
        }
    }

    /// A command that is a hard link in its package would be missing from the guest.
    #[test]
    fn a_hard_link_becomes_a_copy() {
        let mut archive = Archive::from_tar(tar_of(&["./usr/bin/gzip"]).as_slice(), |_| true).unwrap();
        assert_eq!(archive.take_file("usr/bin/zcat").unwrap(), b"./usr/bin/gzip");
    }

    /// The kernel refuses a file whose directory does not come before it.
    #[test]
    fn directories_come_before_what_is_in_them() {
        let mut archive = Archive::default();
        archive.file("a/b-c", 0o644, "");
        archive.file("a/b/c/d", 0o644, "");
        let paths: Vec<_> = archive.paths().collect();
        assert_eq!(paths, ["a", "a/b", "a/b-c", "a/b/c", "a/b/c/d"]);
    }

    /// An independent reader finds what was put in.
    #[test]
    fn another_implementation_reads_it() {
        let mut archive = Archive::default();
        archive.file("init", 0o755, "hello");
        archive.character_device("dev/console", 0o600, 5, 1);
        let bytes = written(&archive);
        let mut names = Vec::new();
        let mut reader = bytes.as_slice();
        loop {
            let entry = newc::Reader::new(reader).unwrap();
            if entry.entry().is_trailer() {
                break;
            }
            names.push((
                entry.entry().name().to_owned(),
                entry.entry().mode(),
                entry.entry().rdev_minor(),
            ));
            reader = entry.finish().unwrap();
        }
        let expected = [
            ("dev", 0o040_755, 0),
            ("dev/console", 0o020_600, 1),
            ("init", 0o100_755, 0),
        ];
        assert_eq!(
            names,
            expected.map(|(name, mode, minor)| (name.to_owned(), mode, minor))
        );
    }

    /// Programs that lie over another root file system would lack what is not the same in both.
    #[test]
    fn what_another_archive_has_is_left_out_and_no_more() {
        let mut base = Archive::default();
        base.file("usr/bin/nginx", 0o755, "nginx");
        base.file("etc/passwd", 0o644, "root");
        base.character_device("dev/console", 0o600, 5, 1);
        let read = Archive::from_cpio(written(&base).as_slice()).unwrap();
        assert_eq!(read, base);
        let mut more = base.clone();
        more.file("etc/passwd", 0o644, "root, memcache");
        more.file("usr/bin/memcached", 0o755, "memcached");
        more.leave_out(&read);
        assert_eq!(more.paths().collect::<Vec<_>>(), ["etc/passwd", "usr/bin/memcached"]);
        let mut bytes = written(&base);
        bytes.truncate(bytes.len() / 2);
        assert!(Archive::from_cpio(bytes.as_slice()).is_err());
    }

    #[test]
    fn a_stream_cut_short_is_an_error() {
        let mut bytes = tar_of(&["./usr/bin/gzip"]);
        bytes.truncate(520);
        assert!(Archive::from_tar(bytes.as_slice(), |_| true).is_err());
    }
}
