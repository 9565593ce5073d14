//! The site's files and clock, as `howdah-htaccess` asks for them.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use howdah_htaccess::{HtFile, Stat, StatKind, World};

use crate::docroot::root::{FileKind, Meta, RootDir};
use crate::refusal::Refusal;
use crate::site::Site;
use crate::site::script::is_script_name;
use crate::static_file::mime;

/// A site, and the root it has for this request.
pub(super) struct SiteWorld<'s> {
    pub site: &'s Site,
    pub root: &'s RootDir,
    /// What was found by names below the root: asked for once in a request.
    seen: RefCell<Vec<Seen>>,
}

/// A name below the root, and what was found there.
type Seen = (Box<[u8]>, Result<Meta, Refusal>);

/// Most names remembered.
const MOST_SEEN: usize = 16;

impl<'s> SiteWorld<'s> {
    pub(super) fn new(site: &'s Site, root: &'s RootDir) -> SiteWorld<'s> {
        SiteWorld {
            site,
            root,
            seen: RefCell::default(),
        }
    }

    /// What lies at a path below the root, without its first slash.
    pub(super) fn stat_below(&self, below: &[u8]) -> Result<Meta, Refusal> {
        let mut seen = self.seen.borrow_mut();
        if let Some((_, found)) = seen.iter().find(|(name, _)| **name == *below) {
            return *found;
        }
        let found = self.root.stat_relative(below);
        if seen.len() < MOST_SEEN {
            seen.push((below.into(), found));
        }
        found
    }

    /// The path below the root of an absolute name, without slashes in front.
    fn below<'n>(&self, file: &'n [u8]) -> Option<&'n [u8]> {
        let below = file.strip_prefix(document_root(self.root))?;
        let climbs = below.split(|b| *b == b'/').any(|segment| segment == b"..");
        let start = below.iter().take_while(|b| **b == b'/').count();
        (start > 0 && !climbs && !below.contains(&0)).then(|| &below[start..])
    }
}

/// The root's real path, without a slash at its end.
pub(super) fn document_root(root: &RootDir) -> &[u8] {
    root.path().strip_suffix(b"/").unwrap_or(root.path())
}

impl World for SiteWorld<'_> {
    fn stat(&self, file: &[u8]) -> Stat {
        let found = match self.below(file) {
            Some(below) => self.stat_below(below),
            None if !file.starts_with(b"/") || file.contains(&0) => Err(Refusal::NotFound),
            None => RootDir::stat_path(file),
        };
        let kind = match &found {
            Ok(meta) => match meta.kind {
                FileKind::File => StatKind::File,
                FileKind::Directory => StatKind::Directory,
                FileKind::Other => StatKind::Other,
            },
            Err(Refusal::NotFound) => StatKind::Missing,
            Err(_) => StatKind::Forbidden,
        };
        let Ok(meta) = found else {
            return Stat {
                kind,
                ..Stat::MISSING
            };
        };
        Stat {
            kind,
            size: meta.size,
            changed: meta.mtime.0,
        }
    }

    fn is_link(&self, file: &[u8]) -> bool {
        std::fs::symlink_metadata(Path::new(OsStr::from_bytes(file)))
            .is_ok_and(|meta| meta.file_type().is_symlink())
    }

    fn is_executable(&self, file: &[u8]) -> bool {
        std::fs::metadata(Path::new(OsStr::from_bytes(file)))
            .is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0)
    }

    fn htaccess(&self, directory: &[u8]) -> Option<Arc<HtFile>> {
        self.site.live_file(self.root, directory)
    }

    fn is_script(&self, path: &[u8]) -> bool {
        is_script_name(path, &self.site.config.php_extensions)
    }

    fn media_type(&self, path: &[u8]) -> Option<Vec<u8>> {
        let found = self.site.serving.media_type(path);
        (found != mime::DEFAULT).then(|| found.to_vec())
    }

    fn local_time(&self) -> [u32; 7] {
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
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }

    fn environment(&self, name: &[u8]) -> Option<Vec<u8>> {
        // `getenv` of a name that could not be one.
        if name.is_empty() || name.contains(&0) || name.contains(&b'=') {
            return None;
        }
        std::env::var_os(OsStr::from_bytes(name)).map(OsStringExt::into_vec)
    }
}
