//! Finds what a path names below the root: `try_files`, index files, the front controller. Files are looked up and not
//! opened.
//!
//! A directory without an index file, and a file that is never sent, count as missing, so the search continues to the
//! front controller: the application responds with its own page, and no client learns that a `.env` exists.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::time::Duration;

use super::Site;
use super::config::TryFile;
use super::pattern::Match;
use super::route::{RouteInfo, Walk};
use super::script::ScriptPath;
use super::template::Values;
use super::trace::Step;
use crate::docroot::path::UrlPath;
use crate::docroot::root::{FileKind, RootDir};
use crate::refusal::Refusal;
use crate::static_file::StaticPlan;
use howdah_http1::hidden::hidden_segment;

/// The result of looking up one path.
pub(super) enum Found {
    File(StaticPlan),
    Script(ScriptPath),
    /// A directory with an index, named without its slash.
    NeedsSlash,
    Absent(Refusal),
}

/// The state of the files as seen by one request.
pub(super) struct FileView {
    pub(super) root: Arc<RootDir>,
    pub(super) now: Duration,
}
/// The result of `try_files` and the front controller.
pub(super) enum Searched {
    /// The file, script or directory that the path itself names.
    Here(Found),
    /// A script that handles the path, and the query if the target has one.
    Other(ScriptPath, Option<Vec<u8>>),
    Status(u16),
}
impl Site {
    /// Searches `try_files`, then the front controller.
    pub(super) fn search(
        &self,
        tree: &FileView,
        walk: &Walk<'_>,
        info: &mut RouteInfo,
    ) -> Searched {
        let mut absent = Refusal::NotFound;
        let mut entries = self.config.try_files.iter().peekable();
        while let Some(entry) = entries.next() {
            let mut both = "";
            let found = match entry {
                // The usual pair, `$uri $uri/`, takes one lookup.
                TryFile::File => {
                    let directories = entries.next_if_eq(&&TryFile::Directory).is_some();
                    if directories {
                        both = " $uri/";
                    }
                    self.look(tree, &walk.path, directories)
                }
                TryFile::Directory => self.look_at_directory(tree, &walk.path),
                TryFile::Status(status) => {
                    note(walk, entry, status);
                    return Searched::Status(*status);
                }
                TryFile::Target(template) => {
                    let values = Values {
                        captures: &Match::Whole(walk.path.as_bytes()),
                        uri: walk.path.as_bytes(),
                        query: walk.query(),
                        request_uri: walk.head.target(),
                        host: walk.head.host(),
                    };
                    let (target, query) = template.expand_target(&values);
                    let Ok(target) = UrlPath::from_decoded(&target) else {
                        continue;
                    };
                    match self.look(tree, &target, true) {
                        // A file that was looked up under another name has no URL with a slash to redirect to.
                        Found::NeedsSlash => continue,
                        // Only the last entry, without a front controller, may be a script with path info, as in nginx;
                        // the other entries name a file. `$uri/index.html` does not match for `/index.php`, although a
                        // script is in its path.
                        Found::Script(script)
                            if !script.path_info().is_empty()
                                && (entries.peek().is_some() || self.has_a_last_resort()) =>
                        {
                            continue;
                        }
                        Found::Script(script) => {
                            note(walk, entry, &script);
                            return Searched::Other(script, query);
                        }
                        found => found,
                    }
                }
            };
            note(walk, &format_args!("{entry}{both}"), &found);
            match found {
                Found::Absent(refusal) => {
                    if is_final(refusal) {
                        return Searched::Here(Found::Absent(refusal));
                    }
                    if absent == Refusal::NotFound {
                        absent = refusal;
                    }
                }
                found => return Searched::Here(found),
            }
        }
        self.controlled(tree, walk, absent, info)
    }

    /// Returns whether there is a front controller or worker for paths at which `try_files` finds nothing.
    fn has_a_last_resort(&self) -> bool {
        self.front_controller.is_some() || self.config.worker.is_some()
    }

    /// Returns the front controller for a path that must count as missing. `absent` is the reason.
    pub(super) fn controlled(
        &self,
        tree: &FileView,
        walk: &Walk<'_>,
        absent: Refusal,
        info: &mut RouteInfo,
    ) -> Searched {
        if !self.has_a_last_resort() {
            return Searched::Here(Found::Absent(absent));
        }
        if absent != Refusal::NotFound && absent != Refusal::NoIndex {
            info.passed_over = Some(absent);
        }
        let found = self.front_controller.as_ref();
        walk.asked().note(|| Step::Searched {
            entry: "front_controller".to_owned(),
            found: match found {
                Some(path) => String::from_utf8_lossy(path.as_bytes()).into_owned(),
                None => "the worker's script".to_owned(),
            },
        });
        match found.and_then(|path| self.script(tree, path)) {
            Some(Ok(script)) => {
                let wants_path = self.config.front_controller.as_ref();
                Searched::Other(
                    if wants_path.is_some_and(|controller| controller.path_info) {
                        script.with_path_info(&walk.path)
                    } else {
                        script
                    },
                    None,
                )
            }
            // Processes that have booted their script need no file for a request.
            found => match (&self.config.worker, found) {
                (Some(worker), _) => Searched::Other(ScriptPath::worker(&tree.root, worker), None),
                (None, Some(Err(refusal))) => Searched::Here(Found::Absent(refusal)),
                (None, _) => Searched::Here(Found::Absent(absent)),
            },
        }
    }

    fn script(&self, tree: &FileView, path: &UrlPath<'_>) -> Option<Result<ScriptPath, Refusal>> {
        ScriptPath::resolve(&tree.root, path, &self.config.php_extensions, tree.now)
    }

    pub(super) fn is_missing(&self, tree: &FileView, path: &UrlPath<'_>) -> bool {
        // A directory counts as existing if `try_files` looks for its index.
        let only_files = |entry: &TryFile| matches!(entry, TryFile::File | TryFile::Status(_));
        let entries = &self.config.try_files;
        let directories = entries.is_empty() || !entries.iter().all(only_files);
        matches!(self.look(tree, path, directories), Found::Absent(_))
    }

    /// Looks up `path`; with `directories`, also its index file.
    fn look(&self, tree: &FileView, path: &UrlPath<'_>, directories: bool) -> Found {
        if let Some(found) = self.script(tree, path) {
            return match found {
                Ok(script) => Found::Script(script),
                Err(refusal) => Found::Absent(refusal),
            };
        }
        if path.is_directory() {
            return if directories {
                self.index_of(tree, path)
            } else {
                Found::Absent(Refusal::NotFound)
            };
        }
        if let Some(refusal) = self.hidden(path.as_bytes()) {
            return Found::Absent(refusal);
        }
        match tree.root.stat(path) {
            Ok(meta) => match meta.kind {
                FileKind::File => {
                    let plan = self.serving.plan(tree.root.clone(), path.as_bytes(), meta);
                    Found::File(plan)
                }
                FileKind::Directory if directories => self.index_of(tree, path),
                FileKind::Directory => Found::Absent(Refusal::NotFound),
                FileKind::Other => Found::Absent(Refusal::NotRegular),
            },
            Err(refusal) => Found::Absent(refusal),
        }
    }

    /// Looks up `path` as a directory, whether or not it ends in a slash.
    fn look_at_directory(&self, tree: &FileView, path: &UrlPath<'_>) -> Found {
        if path.is_directory() {
            return self.index_of(tree, path);
        }
        match tree.root.stat(path) {
            Ok(meta) if meta.kind == FileKind::Directory => self.index_of(tree, path),
            Ok(_) => Found::Absent(Refusal::NotFound),
            Err(refusal) => Found::Absent(refusal),
        }
    }

    /// Looks up the index file of `path`, which is known to be a directory if it does not end in a slash.
    fn index_of(&self, tree: &FileView, path: &UrlPath<'_>) -> Found {
        if let Some(refusal) = hidden_segment(path.as_bytes()) {
            return Found::Absent(refusal.into());
        }
        let mut name = path.as_bytes().to_vec();
        if !path.is_directory() {
            name.push(b'/');
        } else if path.as_bytes() != b"/" {
            // This is checked first, so a path that does not exist (usually a permalink) costs one lookup and not one
            // for each index name.
            match tree.root.stat(path) {
                Ok(meta) if meta.kind == FileKind::Directory => {}
                Ok(_) => return Found::Absent(Refusal::NotFound),
                Err(refusal) => return Found::Absent(refusal),
            }
        }
        let length = name.len();
        for index in &self.config.index {
            name.truncate(length);
            name.extend_from_slice(index.as_bytes());
            let Ok(file) = UrlPath::from_decoded(&name) else {
                continue;
            };
            match self.look(tree, &file, false) {
                Found::Absent(refusal) if is_final(refusal) => return Found::Absent(refusal),
                Found::Absent(_) | Found::NeedsSlash => {}
                _ if !path.is_directory() => return Found::NeedsSlash,
                found => return found,
            }
        }
        Found::Absent(Refusal::NoIndex)
    }
}

/// Records what an entry of `try_files` has found.
fn note(walk: &Walk<'_>, entry: &dyn Display, found: &dyn Display) {
    walk.asked().note(|| Step::Searched {
        entry: format!("try_files {entry}"),
        found: found.to_string(),
    });
}

impl Display for Found {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Found::File(plan) => write!(f, "the file /{}", lossy(&plan.relative)),
            Found::Script(script) => script.fmt(f),
            Found::NeedsSlash => f.write_str("a directory, named without its slash"),
            Found::Absent(refusal) => refusal.fmt(f),
        }
    }
}

/// Writes `SCRIPT_NAME`.
impl Display for ScriptPath {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "the script {}", lossy(self.script_name()))
    }
}

fn lossy(text: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(text)
}

/// Returns whether a refusal ends the search: something exists at the path, and may not be used.
fn is_final(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NotRegular
            | Refusal::Unreadable
            | Refusal::SymlinkOwner
            | Refusal::SymlinkEscape
            | Refusal::ReadFailed
    )
}
