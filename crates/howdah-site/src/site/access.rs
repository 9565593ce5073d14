//! The one access check of a site. Everything that is about to be sent as a file, run as a script or executed as a
//! program passes [`Site::admit`], whatever named it: the client, a rule, an index name, `try_files`, the front
//! controller, an error page, or a script by `X-Accel-Redirect`. A file that is refused for one of them is refused for
//! all. The check does not look up the file itself, and sends nothing.
//!
//! The check does not cover the directories that the administrator opens to scripts beside the site
//! (`[site.sendfile]`). They exist to hold files that no URL leads to, so the site's refusals, which are about URLs,
//! say nothing about them.
//!
//! A new kind of refusal belongs in [`Site::admit`], where [`AccessCheck`] has everything that such a check can need:
//! the root, the path below it, and what is to be done with the file.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use howdah_http::message::RequestHead;
use howdah_http1::hidden::{self, without_compression_suffix};

use super::Site;
use super::condition::RuleRequest;
use super::config::{HtaccessMode, RuleAction, SiteConfig, SiteRule};
use super::htaccess::{Closed, PathQuery};
use super::script::is_script_name;
use super::trace::TraceStep;
use crate::docroot::path::UrlPath;
use crate::docroot::root::{FileMeta, RootDir};
use crate::refusal::Refusal;

/// A file that is about to be sent, run or executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessCheck<'a> {
    /// The root that the file is below.
    pub root: &'a Arc<RootDir>,
    /// The URL path of the file below the root: clean, decoded, beginning with a slash, without
    /// `PATH_INFO`.
    pub path: &'a [u8],
    /// Whether the file is sent or run.
    pub purpose: Purpose,
    /// What named the path; this determines which checks the path has already passed.
    pub named: NamedBy<'a>,
    /// The request; `None` for an error page, which is used for many requests.
    pub request: Option<RuleRequest<'a>>,
    /// The query that goes with the path.
    pub query: Option<&'a [u8]>,
}

/// What is to be done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The file's content is sent as it is.
    Send,
    /// The file is run as a script, or executed as a program of a `cgi` rule.
    Run,
}

/// What named a path, and therefore which checks have already been made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NamedBy<'a> {
    /// The client named exactly this path: `deny`, the files that are refused for the application, the rules and the
    /// list of names that are never sent have been checked for it.
    ByClient,
    /// The client, with `PATH_INFO` behind it: `deny` and the rules have been checked for the longer path. `rules` is
    /// how many rules have been checked.
    InFrontOfPathInfo { rules: usize },
    /// The site's configuration: a rewrite, `try_files`, the front controller, an error page. Rules that refuse a path
    /// to clients do not apply: `/index.php` may be closed to clients and still be the front controller. `deny`
    /// applies.
    BySite,
    /// The client, by the directory that the file is the index of. The configuration says what an index is called, but
    /// not in which directories clients may request one, so the rules from number `from` on apply: those after the
    /// rewrite that has led to the directory, or all rules. The front controller counts as named by the site.
    ByDirectory { from: usize },
    /// An `.htaccess` file, which users other than the administrator may write: by a rewrite, an index name, the
    /// document of an error, or a script in front of `PATH_INFO`. All rules apply, as Apache applies `<Directory>` and
    /// `<Location>` to whatever such a file leads to.
    ByHtaccess,
    /// A script, by `X-Accel-Redirect`, or an `ErrorDocument` for a failure of the server itself. `permitted` are the
    /// numbers of the rules whose authentication or authorization has allowed the request.
    ByScript { permitted: &'a [usize] },
}

/// A refusal with the status of its response, which is usually the refusal's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedAccess {
    /// Why the file is not sent or run.
    pub refusal: Refusal,
    /// The status of the response.
    pub status: u16,
}

impl From<Refusal> for RefusedAccess {
    fn from(refusal: Refusal) -> RefusedAccess {
        RefusedAccess {
            refusal,
            status: refusal.status(),
        }
    }
}

impl Site {
    /// Checks whether a file may be sent or run.
    ///
    /// # Errors
    /// The file must not be sent or run; the error has the reason and the status of the response.
    pub(crate) fn admit(&self, wanted: AccessCheck<'_>) -> Result<(), RefusedAccess> {
        self.admit_or_ask(wanted)
            .map(|_| ())
            .map_err(Closed::without_login)
    }

    /// Checks whether a file may be sent or run. Returns the user whose password `.htaccess` files have accepted. The
    /// error has the password that they demand, if any.
    pub(in crate::site) fn admit_or_ask(
        &self,
        wanted: AccessCheck<'_>,
    ) -> Result<Option<Box<[u8]>>, Closed> {
        let path = wanted.path;
        let note = |step: &dyn Fn() -> TraceStep| {
            if let Some(asked) = wanted.request {
                asked.note(step);
            }
        };
        let not_admitted = |refusal: Refusal| {
            note(&|| TraceStep::NotAdmitted {
                path: path.to_vec(),
                refusal: refusal.name(),
            });
        };
        if !matches!(wanted.named, NamedBy::ByClient) {
            self.admit_name(path, wanted.purpose)
                .inspect_err(|refused| not_admitted(refused.refusal))
                .map_err(Closed::from)?;
            if self.denies(path) || self.denies_file(path) {
                if let Some(asked) = wanted.request {
                    self.note_denial(asked, path);
                }
                return Err(RefusedAccess::from(Refusal::Denied).into());
            }
        }
        let user = self.admit_by_htaccess(&wanted)?;
        let rules = &self.config.rules;
        let conditions_hold = |rule: &SiteRule| {
            let hold = |asked| rule.conditions.hold(asked, path, &self.constants);
            wanted.request.is_none_or(hold)
        };
        let refused_by = match wanted.named {
            NamedBy::ByClient | NamedBy::BySite => 0..0,
            NamedBy::InFrontOfPathInfo { rules: asked } => 0..asked,
            NamedBy::ByDirectory { from } => from..rules.len(),
            NamedBy::ByHtaccess => 0..rules.len(),
            NamedBy::ByScript { permitted } => {
                let guards = |number: &&usize| {
                    let rule = &rules[**number];
                    rule.pattern.is_match(path) && conditions_hold(rule)
                };
                let mut guarding = self.guard_rules.iter().filter(guards);
                if !guarding.all(|number| permitted.contains(number)) {
                    not_admitted(Refusal::NotAuthorized);
                    return Err(RefusedAccess::from(Refusal::NotAuthorized).into());
                }
                0..rules.len()
            }
        };
        for number in refused_by {
            let rule = &rules[number];
            if let RuleAction::Deny(status) = rule.action
                && !rule.if_missing
                && rule.pattern.is_match(path)
                && conditions_hold(rule)
            {
                if let Some(asked) = wanted.request {
                    asked.note_rule(number, path, None);
                }
                let refusal = Refusal::Denied;
                return Err(RefusedAccess { refusal, status }.into());
            }
        }
        Ok(user)
    }

    /// Checks the `.htaccess` files, except for the path that the request itself names: that path has been checked
    /// together with what follows it (`ask_htaccess_of_request`).
    fn admit_by_htaccess(&self, wanted: &AccessCheck<'_>) -> Result<Option<Box<[u8]>>, Closed> {
        if self.config.htaccess == HtaccessMode::On {
            // Any other path was found with the `.htaccess` files applied; a path that a script names was not.
            let (NamedBy::ByScript { .. }, Purpose::Send, Some(asked)) =
                (wanted.named, wanted.purpose, wanted.request)
            else {
                return Ok(None);
            };
            return match self.live_admits(wanted.root, asked.head, wanted.path) {
                true => Ok(None),
                false => Err(RefusedAccess::from(Refusal::HtaccessDenied).into()),
            };
        }
        let hides = match wanted.named {
            NamedBy::ByClient | NamedBy::InFrontOfPathInfo { .. } => return Ok(None),
            NamedBy::BySite | NamedBy::ByDirectory { .. } | NamedBy::ByHtaccess => false,
            NamedBy::ByScript { .. } => true,
        };
        self.ask_htaccess(&PathQuery {
            root: wanted.root,
            path: wanted.path,
            requested: wanted.request,
            query: wanted.query,
            redirected: true,
            hides,
        })
        .inspect_err(|closed| {
            if let Some(asked) = wanted.request {
                asked.note(|| closed.step());
            }
        })
    }

    /// Opens a page of `error_pages`; `None` if it does not exist or is denied. As with nginx and Apache the page is a
    /// file like any other: no client sees a file behind a `deny` by provoking an error.
    pub fn error_page(&self, name: &str, head: &RequestHead) -> Option<(File, FileMeta)> {
        self.open_error_page(name, head, NamedBy::BySite, None)
    }

    /// Like [`Site::error_page`], for the file that an `ErrorDocument` names: the rules apply to it, and if one of them
    /// requires authentication or authorization, the page is not sent.
    pub fn error_document(&self, name: &str, asked: RuleRequest<'_>) -> Option<(File, FileMeta)> {
        let named = NamedBy::ByScript { permitted: &[] };
        self.open_error_page(name, asked.head, named, Some(asked))
    }

    fn open_error_page(
        &self,
        name: &str,
        head: &RequestHead,
        named: NamedBy<'_>,
        asked: Option<RuleRequest<'_>>,
    ) -> Option<(File, FileMeta)> {
        let path = error_page_path(name);
        let path = UrlPath::from_decoded(&path).ok()?;
        if path.is_directory() {
            return None;
        }
        let root = self.root();
        let wanted = AccessCheck {
            root: &root,
            path: path.as_bytes(),
            purpose: Purpose::Send,
            named,
            request: asked,
            query: None,
        };
        self.admit(wanted).ok()?;
        if self.config.htaccess == HtaccessMode::On
            && !self.live_admits(&root, head, path.as_bytes())
        {
            return None;
        }
        root.open_file(path.relative()).ok()
    }

    /// Checks a path by its name and the configuration alone. Hidden segments are refused for scripts as well.
    fn admit_name(&self, path: &[u8], purpose: Purpose) -> Result<(), RefusedAccess> {
        if self.is_password_file(path) {
            return Err(Refusal::PasswordFile.into());
        }
        if purpose == Purpose::Run {
            return match hidden::hidden_segment(path) {
                Some(hidden) => Err(Refusal::from(hidden).into()),
                None => Ok(()),
            };
        }
        match name_refusal(&self.config, path) {
            Some(refusal) => Err(refusal.into()),
            None => Ok(()),
        }
    }

    /// Returns why a path is never sent, by its name alone. The search treats such a path as one where nothing exists.
    pub(super) fn hidden_refusal(&self, path: &[u8]) -> Option<Refusal> {
        match self.is_password_file(path) {
            true => Some(Refusal::PasswordFile),
            false => hidden_name(&self.config, path),
        }
    }

    pub(super) fn is_password_file(&self, path: &[u8]) -> bool {
        self.password_files.iter().any(|file| file == path)
            || self.htaccess.files.holds_passwords(path)
    }

    pub(super) fn denies(&self, path: &[u8]) -> bool {
        self.denials.is_match(path)
    }

    /// Returns whether the file at `path` is refused for the recognised application.
    pub(super) fn denies_file(&self, path: &[u8]) -> bool {
        self.file_denials.is_match(path)
    }

    /// Records that `deny` or the recognised application refuses a path, and by which pattern.
    pub(super) fn note_denial(&self, asked: RuleRequest<'_>, path: &[u8]) {
        asked.note(|| {
            let mut patterns = self.config.denials();
            let pattern = patterns.find(|pattern| pattern.is_match(path));
            TraceStep::Denied {
                path: path.to_vec(),
                pattern: pattern.map(ToString::to_string).unwrap_or_default(),
            }
        });
    }
}

/// Returns the URL paths of password files that lie below the root.
pub(super) fn password_files(config: &SiteConfig) -> Vec<Vec<u8>> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut paths = Vec::new();
    for file in config.authentications().flat_map(|demand| demand.files()) {
        let ways = [
            (config.root.clone(), file.to_owned()),
            (real(&config.root), real(file)),
        ];
        for (root, file) in ways {
            if let Ok(below) = file.strip_prefix(&root) {
                paths.push([b"/", below.as_os_str().as_bytes()].concat());
            }
        }
    }
    paths
}

/// Returns why an error page could never be sent.
pub(super) fn error_page_refusal(config: &SiteConfig, name: &str) -> Option<Refusal> {
    let path = error_page_path(name);
    match UrlPath::from_decoded(&path) {
        Err(refusal) => Some(refusal),
        Ok(path) => {
            let path = path.as_bytes();
            name_refusal(config, path).or(is_denied(config, path).then_some(Refusal::Denied))
        }
    }
}

/// Returns the path of an entry of `error_pages`, which names a file below the root, with or without a slash.
fn error_page_path(name: &str) -> Vec<u8> {
    [b"/", name.trim_start_matches('/').as_bytes()].concat()
}

fn is_denied(config: &SiteConfig, path: &[u8]) -> bool {
    config.denials().any(|pattern| pattern.is_match(path))
}

fn hidden_name(config: &SiteConfig, path: &[u8]) -> Option<Refusal> {
    let hidden =
        hidden::hidden_segment(path).or_else(|| hidden::hidden_file_name(last_segment(path)))?;
    let exposed = config.expose.iter().any(|pattern| pattern.is_match(path));
    (!exposed).then(|| hidden.into())
}

/// Like [`hidden_name`], and also refuses the source of programs that the site runs: scripts by the site's own
/// extensions, compressed or not, and every path that a `cgi` rule matches. `expose` does not apply to these.
fn name_refusal(config: &SiteConfig, path: &[u8]) -> Option<Refusal> {
    let name = without_compression_suffix(last_segment(path));
    let program = || {
        config
            .rules
            .iter()
            .any(|rule| matches!(rule.action, RuleAction::Cgi(_)) && rule.pattern.is_match(path))
    };
    if is_script_name(name, &config.php_extensions) || program() {
        return Some(Refusal::ProgramSource);
    }
    hidden_name(config, path)
}

fn last_segment(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or(path)
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
