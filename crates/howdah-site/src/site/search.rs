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
use super::pattern::PatternMatch;
use super::route::{RouteInfo, RoutingState};
use super::script::ScriptPath;
use super::template::TemplateValues;
use super::trace::TraceStep;
use crate::docroot::path::UrlPath;
use crate::docroot::root::{FileKind, RootDir};
use crate::refusal::Refusal;
use crate::static_file::StaticPlan;
use howdah_http1::hidden::hidden_segment;

/// The result of looking up one path.
pub(super) enum PathLookup {
    File(StaticPlan),
    Script(ScriptPath),
    /// A directory with an index, named without its slash.
    NeedsSlash,
    Absent(Refusal),
}

/// The state of the files as seen by one request.
pub(super) struct FileView {
    pub root: Arc<RootDir>,
    pub(super) now: Duration,
}
/// The result of `try_files` and the front controller.
pub(super) enum SearchResult {
    /// The file, script or directory that the path itself names.
    AtPath(PathLookup),
    /// A script that handles the path, and the query if the target has one.
    OtherScript(ScriptPath, Option<Vec<u8>>),
    Status(u16),
}
impl Site {
    /// Searches `try_files`, then the front controller.
    pub(super) fn search(
        &self,
        tree: &FileView,
        walk: &RoutingState<'_>,
        info: &mut RouteInfo,
    ) -> SearchResult {
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
                    self.look_up(tree, &walk.path, directories)
                }
                TryFile::Directory => self.look_up_directory(tree, &walk.path),
                TryFile::Status(status) => {
                    note_search_step(walk, entry, status);
                    return SearchResult::Status(*status);
                }
                TryFile::Target(template) => {
                    let values = TemplateValues {
                        captures: &PatternMatch::Whole(walk.path.as_bytes()),
                        uri: walk.path.as_bytes(),
                        query: walk.query(),
                        request_uri: &walk.head.path_and_query(),
                        host: walk.head.host(),
                    };
                    let (target, query) = template.expand_target(&values);
                    let Ok(target) = UrlPath::from_decoded(&target) else {
                        continue;
                    };
                    match self.look_up(tree, &target, true) {
                        // A file that was looked up under another name has no URL with a slash to redirect to.
                        PathLookup::NeedsSlash => continue,
                        // Only the last entry, without a front controller, may be a script with path info, as in nginx;
                        // the other entries name a file. `$uri/index.html` does not match for `/index.php`, although a
                        // script is in its path.
                        PathLookup::Script(script)
                            if !script.path_info().is_empty()
                                && (entries.peek().is_some() || self.has_fallback()) =>
                        {
                            continue;
                        }
                        PathLookup::Script(script) => {
                            note_search_step(walk, entry, &script);
                            return SearchResult::OtherScript(script, query);
                        }
                        found => found,
                    }
                }
            };
            note_search_step(walk, &format_args!("{entry}{both}"), &found);
            match found {
                PathLookup::Absent(refusal) => {
                    if ends_search(refusal) {
                        return SearchResult::AtPath(PathLookup::Absent(refusal));
                    }
                    if absent == Refusal::NotFound {
                        absent = refusal;
                    }
                }
                found => return SearchResult::AtPath(found),
            }
        }
        self.front_controller_for(tree, walk, absent, info)
    }

    /// Returns whether there is a front controller or worker for paths at which `try_files` finds nothing.
    fn has_fallback(&self) -> bool {
        self.front_controller.is_some() || self.config.worker.is_some()
    }

    /// Returns the front controller for a path that must count as missing. `absent` is the reason.
    pub(super) fn front_controller_for(
        &self,
        tree: &FileView,
        walk: &RoutingState<'_>,
        absent: Refusal,
        info: &mut RouteInfo,
    ) -> SearchResult {
        if !self.has_fallback() {
            return SearchResult::AtPath(PathLookup::Absent(absent));
        }
        if absent != Refusal::NotFound && absent != Refusal::NoIndex {
            info.skipped_refusal = Some(absent);
        }
        let found = self.front_controller.as_ref();
        walk.rule_request().note(|| TraceStep::Searched {
            entry: "front_controller".to_owned(),
            found: match found {
                Some(path) => String::from_utf8_lossy(path.as_bytes()).into_owned(),
                None => "the worker's script".to_owned(),
            },
        });
        match found.and_then(|path| self.resolve_script(tree, path)) {
            Some(Ok(script)) => {
                let wants_path = self.config.front_controller.as_ref();
                SearchResult::OtherScript(
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
                (Some(worker), _) => {
                    SearchResult::OtherScript(ScriptPath::worker(&tree.root, worker), None)
                }
                (None, Some(Err(refusal))) => SearchResult::AtPath(PathLookup::Absent(refusal)),
                (None, _) => SearchResult::AtPath(PathLookup::Absent(absent)),
            },
        }
    }

    fn resolve_script(
        &self,
        tree: &FileView,
        path: &UrlPath<'_>,
    ) -> Option<Result<ScriptPath, Refusal>> {
        ScriptPath::resolve(&tree.root, path, &self.config.php_extensions, tree.now)
    }

    pub(super) fn is_missing(&self, tree: &FileView, path: &UrlPath<'_>) -> bool {
        // A directory counts as existing if `try_files` looks for its index.
        let only_files = |entry: &TryFile| matches!(entry, TryFile::File | TryFile::Status(_));
        let entries = &self.config.try_files;
        let directories = entries.is_empty() || !entries.iter().all(only_files);
        matches!(self.look_up(tree, path, directories), PathLookup::Absent(_))
    }

    /// Looks up `path`; with `directories`, also its index file.
    fn look_up(&self, tree: &FileView, path: &UrlPath<'_>, directories: bool) -> PathLookup {
        if let Some(found) = self.resolve_script(tree, path) {
            return match found {
                Ok(script) => PathLookup::Script(script),
                Err(refusal) => PathLookup::Absent(refusal),
            };
        }
        if path.is_directory() {
            return if directories {
                self.look_up_index(tree, path)
            } else {
                PathLookup::Absent(Refusal::NotFound)
            };
        }
        if let Some(refusal) = self.hidden_refusal(path.as_bytes()) {
            return PathLookup::Absent(refusal);
        }
        match tree.root.stat(path) {
            Ok(meta) => match meta.kind {
                FileKind::File => {
                    let plan = self.serving.plan(tree.root.clone(), path.as_bytes(), meta);
                    PathLookup::File(plan)
                }
                FileKind::Directory if directories => self.look_up_index(tree, path),
                FileKind::Directory => PathLookup::Absent(Refusal::NotFound),
                FileKind::Other => PathLookup::Absent(Refusal::NotRegular),
            },
            Err(refusal) => PathLookup::Absent(refusal),
        }
    }

    /// Looks up `path` as a directory, whether or not it ends in a slash.
    fn look_up_directory(&self, tree: &FileView, path: &UrlPath<'_>) -> PathLookup {
        if path.is_directory() {
            return self.look_up_index(tree, path);
        }
        match tree.root.stat(path) {
            Ok(meta) if meta.kind == FileKind::Directory => self.look_up_index(tree, path),
            Ok(_) => PathLookup::Absent(Refusal::NotFound),
            Err(refusal) => PathLookup::Absent(refusal),
        }
    }

    /// Looks up the index file of `path`, which is known to be a directory if it does not end in a slash.
    fn look_up_index(&self, tree: &FileView, path: &UrlPath<'_>) -> PathLookup {
        if let Some(refusal) = hidden_segment(path.as_bytes()) {
            return PathLookup::Absent(refusal.into());
        }
        let mut name = path.as_bytes().to_vec();
        if !path.is_directory() {
            name.push(b'/');
        } else if path.as_bytes() != b"/" {
            // This is checked first, so a path that does not exist (usually a permalink) costs one lookup and not one
            // for each index name.
            match tree.root.stat(path) {
                Ok(meta) if meta.kind == FileKind::Directory => {}
                Ok(_) => return PathLookup::Absent(Refusal::NotFound),
                Err(refusal) => return PathLookup::Absent(refusal),
            }
        }
        let length = name.len();
        for index in &self.config.index {
            name.truncate(length);
            name.extend_from_slice(index.as_bytes());
            let Ok(file) = UrlPath::from_decoded(&name) else {
                continue;
            };
            match self.look_up(tree, &file, false) {
                PathLookup::Absent(refusal) if ends_search(refusal) => {
                    return PathLookup::Absent(refusal);
                }
                PathLookup::Absent(_) | PathLookup::NeedsSlash => {}
                _ if !path.is_directory() => return PathLookup::NeedsSlash,
                found => return found,
            }
        }
        PathLookup::Absent(Refusal::NoIndex)
    }
}

/// Records what an entry of `try_files` has found.
fn note_search_step(walk: &RoutingState<'_>, entry: &dyn Display, found: &dyn Display) {
    walk.rule_request().note(|| TraceStep::Searched {
        entry: format!("try_files {entry}"),
        found: found.to_string(),
    });
}

impl Display for PathLookup {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PathLookup::File(plan) => write!(f, "the file /{}", lossy(&plan.relative)),
            PathLookup::Script(script) => script.fmt(f),
            PathLookup::NeedsSlash => {
                f.write_str("a directory whose URL lacks the slash at the end")
            }
            PathLookup::Absent(refusal) => refusal.fmt(f),
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
fn ends_search(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NotRegular
            | Refusal::Unreadable
            | Refusal::SymlinkOwner
            | Refusal::SymlinkEscape
            | Refusal::ReadFailed
    )
}
