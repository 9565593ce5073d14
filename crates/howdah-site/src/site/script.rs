//! Finds the script that a path names, and proves that it is one. This module runs nothing and builds no
//! meta-variables; `howdah_server::script::frame` builds them from a [`ScriptPath`].
//!
//! The split between script and `PATH_INFO` is by `stat`, never by pattern alone. nginx's usual
//! `fastcgi_split_path_info` together with PHP's `cgi.fix_pathinfo=1` runs `/uploads/x.jpg` for `/uploads/x.jpg/y.php`,
//! because PHP walks back to something that exists. Here the script's name ends in a script extension and is a regular
//! file, or nothing runs.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::docroot::path::UrlPath;
use crate::docroot::root::{FileKind, RootDir};
use crate::refusal::Refusal;
use howdah_http1::hidden::hidden_segment;

/// A script that may be run.
///
/// Every `ScriptPath` that [`ScriptPath::resolve`] finds keeps these promises: its name ends in one of the site's
/// script extensions; it was a regular file, below the root and allowed by the site's policy for links, when this
/// request was routed or at most [`ASSUMED_PRESENT_FOR`] before; no segment of its name is hidden; no byte of it is
/// NUL.
#[derive(Clone, Debug)]
pub struct ScriptPath {
    root: Arc<RootDir>,
    file_name: Vec<u8>,
    name_start: usize,
    path_info: Vec<u8>,
    /// Whether the client may have the file that `PATH_INFO` names.
    may_translate: bool,
}

impl ScriptPath {
    /// Finds the first part of `path` that is a script: `/a.php/b.php/c` is searched for `/a.php`, and for
    /// `/a.php/b.php` only if the former is a directory.
    ///
    /// Returns `None` if no part is named like a script. `now` is a time of a monotonic clock. A lookup that does not
    /// find a directory ends the search, since nothing lies below a path that does not exist: a path of a thousand
    /// `.php/` costs one system call.
    pub fn resolve(
        root: &Arc<RootDir>,
        path: &UrlPath<'_>,
        extensions: &[String],
        now: Duration,
    ) -> Option<Result<ScriptPath, Refusal>> {
        let bytes = path.as_bytes();
        let mut from = 0;
        while let Some(end) = script_end(bytes, from, extensions) {
            let name = &bytes[..end];
            if seen_recently(root.id(), name, now) {
                return Some(Ok(ScriptPath::new(root, name, &bytes[end..])));
            }
            if let Some(refusal) = hidden_segment(name) {
                return Some(Err(refusal.into()));
            }
            match root.stat_relative(&name[1..]) {
                Ok(meta) if meta.kind == FileKind::File => {
                    remember(root.id(), name, now);
                    return Some(Ok(ScriptPath::new(root, name, &bytes[end..])));
                }
                Ok(meta) if meta.kind == FileKind::Directory => from = end,
                Ok(_) => return Some(Err(Refusal::NotRegular)),
                Err(refusal) => return Some(Err(refusal)),
            }
        }
        None
    }

    /// Finds the first part of `path` that is a regular file, whatever its name ends in: for `cgi` rules, whose
    /// programs may have any name. Hidden segments are refused. The file is looked up every time: compared with
    /// starting a process the cost is negligible.
    pub fn resolve_program(root: &Arc<RootDir>, path: &UrlPath<'_>) -> Result<ScriptPath, Refusal> {
        let bytes = path.as_bytes();
        let mut end = 0;
        while end < bytes.len() {
            let next = bytes[end + 1..].iter().position(|b| *b == b'/');
            end = next.map_or(bytes.len(), |at| end + 1 + at);
            let name = &bytes[..end];
            if let Some(refusal) = hidden_segment(name) {
                return Err(refusal.into());
            }
            match root.stat_relative(&name[1..])?.kind {
                FileKind::File => return Ok(ScriptPath::new(root, name, &bytes[end..])),
                FileKind::Directory => {}
                FileKind::Other => return Err(Refusal::NotRegular),
            }
        }
        Err(Refusal::NotFound)
    }

    fn new(root: &Arc<RootDir>, name: &[u8], path_info: &[u8]) -> ScriptPath {
        let file_name = root.file_name(name);
        ScriptPath {
            name_start: file_name.len() - name.len(),
            file_name,
            path_info: path_info.to_vec(),
            may_translate: true,
            root: root.clone(),
        }
    }

    /// Returns the path of a regular file that was just found and that lines of `.htaccess` files make a script,
    /// whatever its name. `path_info` follows it in the URL.
    pub(super) fn from_found_file(
        root: &Arc<RootDir>,
        name: &[u8],
        path_info: &[u8],
    ) -> ScriptPath {
        ScriptPath::new(root, name, path_info)
    }

    /// Returns the path of a worker script, which may lie outside the root: the pool's configuration names it, and the
    /// pool's processes have booted it. To the application it is a script at the root.
    pub fn worker(root: &Arc<RootDir>, script: &Path) -> ScriptPath {
        let file_name = script.as_os_str().as_bytes().to_vec();
        let slash = file_name.iter().rposition(|b| *b == b'/');
        ScriptPath {
            root: root.clone(),
            name_start: slash.unwrap_or_default(),
            file_name,
            path_info: Vec::new(),
            may_translate: true,
        }
    }

    /// Replaces `PATH_INFO`: for front controllers that need the request's path there.
    pub fn with_path_info(mut self, path: &UrlPath<'_>) -> ScriptPath {
        self.path_info = path.as_bytes().to_vec();
        self
    }

    /// Returns the document root that the script lies below.
    pub fn root(&self) -> &Arc<RootDir> {
        &self.root
    }

    /// Returns `SCRIPT_FILENAME`: the file, by the root's real path.
    pub fn script_filename(&self) -> &[u8] {
        &self.file_name
    }

    /// Returns `SCRIPT_NAME`: the script's URL path, decoded.
    pub fn script_name(&self) -> &[u8] {
        &self.file_name[self.name_start..]
    }

    /// Returns `PATH_INFO`: the text after the script's name, decoded; often empty.
    pub fn path_info(&self) -> &[u8] {
        &self.path_info
    }

    /// Removes `PATH_TRANSLATED`, so the client cannot make a program open a file that is closed to the client.
    pub(super) fn without_path_translated(mut self) -> ScriptPath {
        self.may_translate = false;
        self
    }

    /// Returns `PATH_TRANSLATED`: `PATH_INFO` as a file name below the root (RFC 3875 §4.1.6). `None` if there is no
    /// `PATH_INFO`, or if the client may not have the file that it names.
    pub fn path_translated(&self) -> Option<Vec<u8>> {
        let named = self.may_translate && !self.path_info.is_empty();
        named.then(|| self.root.file_name(&self.path_info))
    }

    /// Returns `DOCUMENT_ROOT`: the root's real path at this deployment.
    pub fn document_root(&self) -> &[u8] {
        self.root.path()
    }
}

/// How long a script that was found is assumed to exist. One `statx` takes a tenth of the time that the front needs for
/// a small script. If a script disappears within this time, PHP notices when it opens the file; PHP itself checks for
/// changes even less often (`opcache.revalidate_freq` is 2 s). Files that do *not* exist are looked up every time, so
/// an upload can be requested at once.
pub const ASSUMED_PRESENT_FOR: Duration = Duration::from_secs(1);

/// The maximum number of scripts that a thread remembers; beyond it all are forgotten. Clients cannot fill this at
/// will, because only scripts that exist count.
const MAX_REMEMBERED_SCRIPTS: usize = 4096;

#[derive(Default)]
struct RecentScripts {
    /// When each script was seen, by root and URL path.
    roots: HashMap<u64, HashMap<Box<[u8]>, Duration>>,
    count: usize,
}

thread_local! {
    static RECENT: RefCell<RecentScripts> = RefCell::new(RecentScripts::default());
}

fn seen_recently(root: u64, name: &[u8], now: Duration) -> bool {
    RECENT.with_borrow(|recent| {
        let seen = recent.roots.get(&root).and_then(|names| names.get(name));
        seen.is_some_and(|seen| now.saturating_sub(*seen) < ASSUMED_PRESENT_FOR)
    })
}

fn remember(root: u64, name: &[u8], now: Duration) {
    RECENT.with_borrow_mut(|recent| {
        if recent.count >= MAX_REMEMBERED_SCRIPTS {
            recent.roots.clear();
            recent.count = 0;
        }
        let names = recent.roots.entry(root).or_default();
        if names.insert(name.into(), now).is_none() {
            recent.count += 1;
        }
    });
}

/// Returns the end of the first segment, ending after `from`, that is named like a script.
fn script_end(path: &[u8], from: usize, extensions: &[String]) -> Option<usize> {
    let mut at = from;
    while at < path.len() {
        let start = at + 1;
        let end = path[start..]
            .iter()
            .position(|b| *b == b'/')
            .map_or(path.len(), |slash| start + slash);
        let segment = &path[start.min(end)..end];
        if is_script_name(segment, extensions) {
            return Some(end);
        }
        at = end;
    }
    None
}

/// Returns whether a file name has a script extension and something before it.
pub fn is_script_name(name: &[u8], extensions: &[String]) -> bool {
    extensions
        .iter()
        .any(|e| name.len() > e.len() && name.ends_with(e.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docroot::root::Symlinks;
    use std::fs;

    fn root() -> (tempfile::TempDir, Arc<RootDir>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        for sub in ["up", "d.php", ".hidden", "a b"] {
            fs::create_dir(path.join(sub)).unwrap();
        }
        for file in [
            "index.php",
            "up/x.jpg",
            "d.php/in.php",
            ".hidden/x.php",
            "a b/é.php",
            "x.PHP",
            ".php",
            "a.php5",
        ] {
            fs::write(path.join(file), "<?php").unwrap();
        }
        std::os::unix::fs::symlink("missing", path.join("dangling.php")).unwrap();
        let root = RootDir::open(path, Symlinks::Follow).unwrap();
        (dir, Arc::new(root))
    }

    fn check(url: &str, expected: Option<Result<(&str, &str), Refusal>>) {
        let (_dir, root) = root();
        let path = UrlPath::parse(url.as_bytes()).unwrap();
        let found = ScriptPath::resolve(&root, &path, &[".php".to_owned()], Duration::ZERO);
        let found = found.map(|found| {
            found.map(|script| {
                let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
                let mut file = root.path().to_vec();
                file.extend_from_slice(script.script_name());
                assert_eq!(script.script_filename(), file);
                assert_eq!(script.document_root(), root.path());
                let translated = script.path_translated();
                assert_eq!(translated.is_some(), !script.path_info().is_empty());
                (text(script.script_name()), text(script.path_info()))
            })
        });
        let expected = expected.map(|e| e.map(|(a, b)| (a.to_owned(), b.to_owned())));
        assert_eq!(found, expected, "{url}");
    }

    #[test]
    fn a_script_is_a_regular_file_with_the_extension() {
        check("/index.php", Some(Ok(("/index.php", ""))));
        check("/a%20b/%C3%A9.php", Some(Ok(("/a b/é.php", ""))));
        check("/none.php", Some(Err(Refusal::NotFound)));
        check("/dangling.php", Some(Err(Refusal::NotFound)));
        check("/d.php", None);
        for no_script in [
            "/",
            "/up/",
            "/up/x.jpg",
            "/x.PHP",
            "/.php",
            "/a.php5",
            "/index.php.",
            "/index.php%20",
        ] {
            check(no_script, None);
        }
    }

    #[test]
    fn path_info_is_split_only_at_a_real_script() {
        check("/index.php/", Some(Ok(("/index.php", "/"))));
        check("/index.php/a/b", Some(Ok(("/index.php", "/a/b"))));
        check("/index.php/x.php", Some(Ok(("/index.php", "/x.php"))));
        check("/index.php/a%2f..%2fb", Some(Ok(("/index.php", "/b"))));
        check("/index.php/.NET", Some(Ok(("/index.php", "/.NET"))));
        check("/d.php/in.php/info", Some(Ok(("/d.php/in.php", "/info"))));
        check("/d.php/none.php", Some(Err(Refusal::NotFound)));
    }

    #[test]
    fn upload_never_runs_by_a_name_appended_to_its_path() {
        check("/up/x.jpg/y.php", Some(Err(Refusal::NotFound)));
        check("/up/x.jpg%0a.php", Some(Err(Refusal::NotFound)));
        check("/up/x.jpg%0a/y.php", Some(Err(Refusal::NotFound)));
        check("/up/x.jpg/.php", None);
    }

    #[test]
    fn a_program_is_the_first_regular_file_and_what_follows_is_path_info() {
        let (_dir, root) = root();
        let look = |url: &str| {
            let path = UrlPath::parse(url.as_bytes()).unwrap();
            let found = ScriptPath::resolve_program(&root, &path);
            found.map(|script| {
                let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
                (text(script.script_name()), text(script.path_info()))
            })
        };
        let is = |name: &str, info: &str| Ok((name.to_owned(), info.to_owned()));
        assert_eq!(look("/up/x.jpg"), is("/up/x.jpg", ""));
        assert_eq!(look("/up/x.jpg/a//b"), is("/up/x.jpg", "/a/b"));
        assert_eq!(look("/up/"), Err(Refusal::NotFound));
        assert_eq!(look("/up/none"), Err(Refusal::NotFound));
        assert_eq!(look("/.hidden/x.php"), Err(Refusal::DotFile));
        assert_eq!(look("/"), Err(Refusal::NotFound));
    }

    #[test]
    fn hidden_scripts_do_not_run() {
        check("/.hidden/x.php", Some(Err(Refusal::DotFile)));
        check("/.hidden/x.php/info", Some(Err(Refusal::DotFile)));
    }

    #[test]
    fn path_of_many_extensions_costs_one_lookup() {
        let url = "/x.php".repeat(1000);
        check(&url, Some(Err(Refusal::NotFound)));
    }

    #[test]
    fn script_is_remembered_for_a_second_and_a_missing_one_never() {
        let (dir, root) = root();
        let look = |url: &str, ms: u64| {
            let path = UrlPath::parse(url.as_bytes()).unwrap();
            let now = Duration::from_millis(ms);
            let found = ScriptPath::resolve(&root, &path, &[".php".to_owned()], now).unwrap();
            found.map(|script| script.script_name().to_vec())
        };
        assert_eq!(look("/new.php", 5000), Err(Refusal::NotFound));
        fs::write(dir.path().join("new.php"), "").unwrap();
        assert!(look("/new.php", 5000).is_ok());
        fs::remove_file(dir.path().join("new.php")).unwrap();
        assert!(look("/new.php/info", 5999).is_ok());
        assert_eq!(look("/new.php", 6000), Err(Refusal::NotFound));
    }

    #[test]
    fn remembered_scripts_are_bounded() {
        for number in 0..3 * MAX_REMEMBERED_SCRIPTS {
            remember(u64::MAX, number.to_string().as_bytes(), Duration::ZERO);
        }
        RECENT.with_borrow(|recent| {
            assert!(recent.count <= MAX_REMEMBERED_SCRIPTS);
            assert_eq!(
                recent.count,
                recent.roots.values().map(HashMap::len).sum::<usize>()
            );
        });
    }
}
