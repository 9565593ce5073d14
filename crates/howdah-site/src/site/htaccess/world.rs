//! Gives `howdah-htaccess` access to the site's files and to the clock.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use howdah_htaccess::{HtFileChain, ServerContext, Stat};

use crate::docroot::root::{FileKind, FileMeta, RootDir};
use crate::refusal::Refusal;
use crate::site::Site;
use crate::site::script::is_script_name;
use crate::site::trace::{Trace, TraceStep};
use crate::static_file::mime;

/// A site and its root for this request.
pub(super) struct SiteWorld<'s> {
    pub site: &'s Site,
    pub root: &'s RootDir,
    /// The files that were looked up below the root; each is looked up once in a request.
    seen: RefCell<Vec<Seen>>,
    /// The time since which all `.htaccess` files have been known, or `None` if the evaluation has used anything that
    /// `seen` does not contain.
    since: Cell<Option<Duration>>,
    trace: Option<&'s Trace>,
}

/// A name below the root and its state.
pub(super) type Seen = (Box<[u8]>, Result<FileMeta, Refusal>);

/// The maximum number of names that are recorded.
const MOST_SEEN: usize = 16;

impl<'s> SiteWorld<'s> {
    pub(super) fn new(site: &'s Site, root: &'s RootDir) -> SiteWorld<'s> {
        SiteWorld {
            site,
            root,
            seen: RefCell::default(),
            since: Cell::new(Some(Duration::MAX)),
            trace: None,
        }
    }

    /// Traces the evaluation for `howdah explain`.
    pub(super) fn traced_by(self, trace: Option<&'s Trace>) -> SiteWorld<'s> {
        SiteWorld { trace, ..self }
    }

    /// Returns the files that were looked up apart from `.htaccess` files, and the time since which the `.htaccess`
    /// files have been known. Returns `None` if the evaluation has used anything else.
    pub(super) fn looked_at(&self) -> Option<(Duration, Box<[Seen]>)> {
        Some((self.since.get()?, self.seen.borrow()[..].into()))
    }

    /// Returns true if the file's state is unchanged.
    pub(super) fn is_still(&self, (name, before): &Seen) -> bool {
        match (self.stat_below(name), before) {
            // The content of a directory may change without affecting the result.
            (Ok(now), Ok(before)) if now.kind == FileKind::Directory => before.kind == now.kind,
            (now, before) => now == *before,
        }
    }

    /// Notes that the evaluation uses something that is not recorded.
    fn looks_elsewhere(&self) {
        self.since.set(None);
    }

    /// Returns the state of the file with a path below the root, given without its leading slash.
    pub(super) fn stat_below(&self, below: &[u8]) -> Result<FileMeta, Refusal> {
        let mut seen = self.seen.borrow_mut();
        if let Some((_, found)) = seen.iter().find(|(name, _)| **name == *below) {
            return *found;
        }
        let found = self.root.stat_relative(below);
        match seen.len() < MOST_SEEN {
            true => seen.push((below.into(), found)),
            false => self.looks_elsewhere(),
        }
        found
    }

    /// Returns the state of the file with an absolute name.
    fn find(&self, file: &[u8]) -> Result<FileMeta, Refusal> {
        match self.below(file) {
            Some(below) => self.stat_below(below),
            None if !file.starts_with(b"/") || file.contains(&0) => Err(Refusal::NotFound),
            None => {
                self.looks_elsewhere();
                RootDir::stat_path(file)
            }
        }
    }

    /// Returns the path of an absolute name below the root, without leading slashes.
    fn below<'n>(&self, file: &'n [u8]) -> Option<&'n [u8]> {
        let below = file.strip_prefix(document_root(self.root))?;
        let climbs = below.split(|b| *b == b'/').any(|segment| segment == b"..");
        let start = below.iter().take_while(|b| **b == b'/').count();
        (start > 0 && !climbs && !below.contains(&0)).then(|| &below[start..])
    }
}

/// Returns the root's real path, without a trailing slash.
pub(super) fn document_root(root: &RootDir) -> &[u8] {
    root.path().strip_suffix(b"/").unwrap_or(root.path())
}

impl ServerContext for SiteWorld<'_> {
    fn stat(&self, file: &[u8]) -> Stat {
        match self.find(file) {
            Ok(meta) => match meta.kind {
                FileKind::File => Stat::File,
                FileKind::Directory => Stat::Directory,
                FileKind::Other => Stat::Other,
            },
            Err(Refusal::NotFound) => Stat::Missing,
            Err(_) => Stat::Forbidden,
        }
    }

    fn length(&self, file: &[u8]) -> Option<u64> {
        self.looks_elsewhere();
        let found = self.find(file).ok();
        let file = found.filter(|meta| meta.kind == FileKind::File)?;
        Some(file.size)
    }

    fn is_link(&self, file: &[u8]) -> bool {
        self.looks_elsewhere();
        std::fs::symlink_metadata(Path::new(OsStr::from_bytes(file)))
            .is_ok_and(|meta| meta.file_type().is_symlink())
    }

    fn is_executable(&self, file: &[u8]) -> bool {
        self.looks_elsewhere();
        std::fs::metadata(Path::new(OsStr::from_bytes(file)))
            .is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0)
    }

    fn htaccess(&self, directory: &[u8]) -> Arc<HtFileChain> {
        let (since, chain) = self.site.live_files(self.root, directory);
        let both = self.since.get().zip(since);
        self.since
            .set(both.map(|(before, since)| before.min(since)));
        chain
    }

    fn is_script(&self, path: &[u8]) -> bool {
        is_script_name(path, &self.site.config.php_extensions)
    }

    fn media_type(&self, path: &[u8]) -> Option<Vec<u8>> {
        let found = self.site.serving.media_type(path);
        (found != mime::DEFAULT_TYPE).then(|| found.to_vec())
    }

    fn local_time(&self) -> [u32; 7] {
        self.looks_elsewhere();
        let seconds = self.now() / 1_000_000;
        let now = jiff::Timestamp::from_second(seconds).unwrap_or_default();
        let date = jiff::tz::Offset::UTC.to_datetime(now);
        let number = |n: i8| u32::try_from(n).unwrap_or_default();
        [
            u32::try_from(date.year()).unwrap_or_default(),
            number(date.month()),
            number(date.day()),
            number(date.hour()),
            number(date.minute()),
            number(date.second()),
            number(date.weekday().to_sunday_zero_offset()),
        ]
    }

    fn now(&self) -> i64 {
        self.looks_elsewhere();
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }

    fn environment(&self, name: &[u8]) -> Option<Vec<u8>> {
        // `getenv` does not find a name that is not valid.
        if name.is_empty() || name.contains(&0) || name.contains(&b'=') {
            return None;
        }
        std::env::var_os(OsStr::from_bytes(name)).map(OsStringExt::into_vec)
    }

    fn trace(&self, line: Option<&str>, message: &dyn Fn() -> String) {
        if let Some(trace) = self.trace {
            trace.note(TraceStep::Htaccess {
                line: line.map(str::to_owned),
                outcome: message(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::docroot::root::Symlinks;
    use crate::site::SiteConfig;

    #[test]
    fn world_tells_sizes_links_executables_and_variables() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let site = Site::new(SiteConfig::for_tests("s", inside.path()), 0).unwrap();
        let root = RootDir::open(inside.path(), Symlinks::Follow).unwrap();
        let world = SiteWorld::new(&site, &root);
        for directory in [inside.path(), outside.path()] {
            let name = |name: &str| directory.join(name).into_os_string().into_vec();
            fs::write(directory.join("file"), "12345").unwrap();
            fs::set_permissions(directory.join("file"), Permissions::from_mode(0o644)).unwrap();
            fs::write(directory.join("program"), "").unwrap();
            fs::set_permissions(directory.join("program"), Permissions::from_mode(0o755)).unwrap();
            symlink("file", directory.join("link")).unwrap();
            for (file, length, is_link, is_executable) in [
                ("file", Some(5), false, false),
                ("program", Some(0), false, true),
                ("link", Some(5), true, false),
                ("", None, false, true),
                ("none", None, false, false),
            ] {
                let file = name(file);
                assert_eq!(world.length(&file), length, "{}", file.escape_ascii());
                assert_eq!(world.is_link(&file), is_link, "{}", file.escape_ascii());
                assert_eq!(
                    world.is_executable(&file),
                    is_executable,
                    "{}",
                    file.escape_ascii()
                );
            }
        }
        let path = std::env::var_os("PATH").map(OsStringExt::into_vec);
        assert_eq!(world.environment(b"PATH"), path);
        for invalid in [&b""[..], b"PATH=", b"PATH\0"] {
            assert_eq!(world.environment(invalid), None);
        }
    }
}
