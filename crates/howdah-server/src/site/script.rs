//! Which script a path names, and the proof that it is one. Runs nothing and builds no
//! meta-variables; `script::frame` does that from a [`ScriptPath`].
//!
//! The split between script and `PATH_INFO` is by `stat`, never by pattern alone: nginx' usual
//! `fastcgi_split_path_info` together with PHP's `cgi.fix_pathinfo=1` runs `/uploads/x.jpg` for
//! `/uploads/x.jpg/y.php`, because PHP walks back to something that exists. Here the script's name
//! ends in a script extension and is a regular file, or nothing runs.

use std::sync::Arc;

use super::hidden::hidden_segment;
use super::path::UrlPath;
use super::refusal::Refusal;
use super::root::{Kind, RootDir};

/// A script that may be run.
///
/// Holding a `ScriptPath` tells you: its name ends in one of the site's script extensions; it was
/// a regular file, below the root and allowed by the site's policy for links, when this request
/// was routed; no segment of its name is hidden; no byte of it is NUL.
#[derive(Clone, Debug)]
pub struct ScriptPath {
    root: Arc<RootDir>,
    file_name: Vec<u8>,
    name_start: usize,
    path_info: Vec<u8>,
}

impl ScriptPath {
    /// Looks for the first part of `path` that is a script: `/a.php/b.php/c` asks for `/a.php`,
    /// and for `/a.php/b.php` only if the former is a directory.
    ///
    /// `None` if no part is named like a script. Each failed look-up ends the search unless it
    /// found a directory, since nothing lies below what does not exist: a path of a thousand
    /// `.php/` costs one system call.
    pub fn resolve(
        root: &Arc<RootDir>,
        path: &UrlPath<'_>,
        extensions: &[String],
    ) -> Option<Result<ScriptPath, Refusal>> {
        let bytes = path.as_bytes();
        let mut from = 0;
        while let Some(end) = script_end(bytes, from, extensions) {
            let name = &bytes[..end];
            if let Some(refusal) = hidden_segment(name) {
                return Some(Err(refusal));
            }
            match root.stat_relative(&name[1..]) {
                Ok(meta) if meta.kind == Kind::File => {
                    return Some(Ok(ScriptPath::new(root, name, &bytes[end..])));
                }
                Ok(meta) if meta.kind == Kind::Directory => from = end,
                Ok(_) => return Some(Err(Refusal::NotRegular)),
                Err(refusal) => return Some(Err(refusal)),
            }
        }
        None
    }

    fn new(root: &Arc<RootDir>, name: &[u8], path_info: &[u8]) -> ScriptPath {
        let file_name = root.file_name(name);
        ScriptPath {
            name_start: file_name.len() - name.len(),
            file_name,
            path_info: path_info.to_vec(),
            root: root.clone(),
        }
    }

    /// With another `PATH_INFO`: for front controllers that want the request's path there.
    pub fn with_path_info(mut self, path: &UrlPath<'_>) -> ScriptPath {
        self.path_info = path.as_bytes().to_vec();
        self
    }

    /// `SCRIPT_FILENAME`: the file, by the root's real path.
    pub fn script_filename(&self) -> &[u8] {
        &self.file_name
    }

    /// `SCRIPT_NAME`: the script's URL path, decoded.
    pub fn script_name(&self) -> &[u8] {
        &self.file_name[self.name_start..]
    }

    /// `PATH_INFO`: what follows the script's name, decoded; often empty.
    pub fn path_info(&self) -> &[u8] {
        &self.path_info
    }

    /// `PATH_TRANSLATED`: `PATH_INFO` as a file name below the root (RFC 3875 §4.1.6); only where
    /// there is a `PATH_INFO`.
    pub fn path_translated(&self) -> Option<Vec<u8>> {
        (!self.path_info.is_empty()).then(|| self.root.file_name(&self.path_info))
    }

    /// `DOCUMENT_ROOT`: the root's real path at this deployment.
    pub fn document_root(&self) -> &[u8] {
        self.root.path()
    }
}

/// The end of the first segment, ending after `from`, that is named like a script.
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

/// A file name with a script extension and something before it.
pub fn is_script_name(name: &[u8], extensions: &[String]) -> bool {
    extensions
        .iter()
        .any(|e| name.len() > e.len() && name.ends_with(e.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::super::root::Symlinks;
    use super::*;
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
        let found = ScriptPath::resolve(&root, &path, &[".php".to_owned()]);
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
    fn an_upload_never_runs_by_a_name_put_behind_it() {
        check("/up/x.jpg/y.php", Some(Err(Refusal::NotFound)));
        check("/up/x.jpg%0a.php", Some(Err(Refusal::NotFound)));
        check("/up/x.jpg%0a/y.php", Some(Err(Refusal::NotFound)));
        check("/up/x.jpg/.php", None);
    }

    #[test]
    fn hidden_scripts_do_not_run() {
        check("/.hidden/x.php", Some(Err(Refusal::DotFile)));
        check("/.hidden/x.php/info", Some(Err(Refusal::DotFile)));
    }

    #[test]
    fn many_extensions_cost_one_look() {
        let url = "/x.php".repeat(1000);
        check(&url, Some(Err(Refusal::NotFound)));
    }
}
