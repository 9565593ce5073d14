//! Where a site asks its `.htaccess` files: for the path that a request names, and for the file or
//! script that is about to answer it ([`Site::admit`](crate::site::Site::admit) asks for the latter,
//! whoever named it). Keeps what is to be reported until the front writes it into the log.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use howdah_http::message::RequestHead;

use super::report::sentence;
use super::thread::{self, Thread};
use super::{AccessQuery, Because, Chain, Files, Lies, Verdict, decide};
use crate::docroot::path::UrlPath;
use crate::docroot::root::RootDir;
use crate::refusal::Refusal;
use crate::site::Site;
use crate::site::access::Refused;
use crate::site::config::Htaccess;
use crate::site::script::is_script_name;
use crate::site::trace::Step;

/// Most different lines reported; a tree full of strange files does not fill the log.
const MOST_REPORTS: usize = 1000;

/// A site's `.htaccess` files, and what is to be said of them.
#[derive(Debug, Default)]
pub(crate) struct Door {
    files: Files,
    pub(in crate::site) kept: super::kept::Kept,
    pub(super) demands: super::demands::Demands,
    has_news: AtomicBool,
    reports: Mutex<Reports>,
}

#[derive(Debug, Default)]
struct Reports {
    said: HashSet<String>,
    waiting: Vec<String>,
}

/// A refusal and the line it is for.
#[derive(Debug)]
pub(crate) struct Closed {
    pub refused: Refused,
    pub because: Box<str>,
}

impl Closed {
    /// As a step on the way of a request.
    pub(in crate::site) fn step(&self) -> Step {
        Step::Htaccess {
            line: Some(self.because.to_string()),
            said: self.refused.refusal.name().to_owned(),
        }
    }
}

impl Site {
    /// The path that a request names, whatever will answer it. `lies` is what was found there, and
    /// `name` how much of the path names it.
    pub(crate) fn htaccess_of_request(
        &self,
        root: &RootDir,
        head: &RequestHead,
        path: &[u8],
        name: usize,
        lies: Lies,
    ) -> Result<(), Closed> {
        if self.config.htaccess == Htaccess::Off {
            return Ok(());
        }
        let asked = AccessQuery {
            head: Some(head),
            name,
            ..AccessQuery::new(root, head.method(), path, lies)
        };
        self.ask(&asked, true)
    }

    /// The file or script that is about to answer, where another path led to it. `by_script`: a script
    /// named it, to be sent to whoever asked for the script.
    pub(crate) fn htaccess_of_answer(
        &self,
        root: &RootDir,
        head: Option<&RequestHead>,
        method: &[u8],
        path: &[u8],
        lies: Lies,
        by_script: bool,
    ) -> Result<(), Closed> {
        if self.config.htaccess == Htaccess::Off {
            return Ok(());
        }
        let asked = AccessQuery {
            head,
            redirected: true,
            ..AccessQuery::new(root, method, path, lies)
        };
        self.ask(&asked, by_script)
    }

    fn ask(&self, asked: &AccessQuery<'_>, hides: bool) -> Result<(), Closed> {
        thread::with(|thread| self.ask_once(asked, hides, thread))
    }

    /// Remembers a path that is open, where nobody's request was looked at.
    fn ask_once(
        &self,
        asked: &AccessQuery<'_>,
        hides: bool,
        thread: &mut Thread,
    ) -> Result<(), Closed> {
        thread.begin();
        let mut question = std::mem::take(&mut thread.question);
        question
            .begin(asked.root.id())
            .number(asked.name as u64)
            .number(asked.lies as u64 * 4 + u64::from(asked.redirected) * 2 + u64::from(hides))
            .text(asked.method)
            .text(asked.path);
        let known = thread.open.of(&thread.watched, question.as_bytes());
        let mut decided = Ok(());
        if known.is_none() {
            let chain = self.chain(asked.root, asked.path, asked.lies, thread);
            let looked = Cell::new(false);
            let asked = AccessQuery {
                variables: None,
                looked: Some(&looked),
                ..*asked
            };
            decided = judge(&chain, &asked, hides);
            if let (Ok(()), Some(since), false) = (&decided, chain.since, looked.get()) {
                let watched = &thread.watched;
                thread.open.keep(watched, question.as_bytes(), since, ());
            }
        }
        thread.question = question;
        decided
    }

    /// Whether a request has to be routed to know that no file closes it: some file on the way says
    /// something about access, or which script answers is not known without routing.
    pub(crate) fn htaccess_may_close(&self, root: &RootDir, path: &UrlPath<'_>) -> bool {
        if self.config.leads_to_other_scripts() {
            return true;
        }
        let says_something = |path: &[u8], lies| {
            let chain = thread::with(|thread| self.chain(root, path, lies, thread));
            chain.files.iter().any(|file| !file.parsed.is_harmless())
        };
        let path = path.as_bytes();
        // The page was made by the script of this name: a directory that has taken its place is not
        // what the reader gets.
        let lies = match is_script_name(path, &self.config.php_extensions) {
            true => Lies::Script,
            false => Lies::Nothing,
        };
        if says_something(path, lies) {
            return true;
        }
        let controller = self.front_controller.as_ref().map(|path| path.as_bytes());
        // Its directory is mostly the root, which lies on every path.
        controller.is_some_and(|script| {
            !path.starts_with(directory_of(script)) && says_something(script, Lies::Script)
        })
    }

    /// The files on a path; what a new one has to report is kept.
    fn chain(&self, root: &RootDir, path: &[u8], lies: Lies, thread: &mut Thread) -> Chain {
        let chain = self.htaccess.files.walk(root, path, lies, thread);
        if !chain.met.is_empty() {
            self.note(root, &chain);
        }
        chain
    }

    fn note(&self, root: &RootDir, chain: &Chain) {
        let mut reports = lock(&self.htaccess.reports);
        for number in &chain.met {
            let file = &chain.files[*number];
            for note in file.parsed.notes() {
                let at_root = &*file.path == b"/";
                let text = sentence(&file_name(root, &file.path), at_root, note);
                if reports.said.len() < MOST_REPORTS && reports.said.insert(text.clone()) {
                    reports.waiting.push(text);
                }
            }
        }
        let has_news = !reports.waiting.is_empty();
        self.htaccess.has_news.store(has_news, Ordering::Release);
    }

    /// What was found in `.htaccess` files since the last call and is not applied exactly; each line
    /// once.
    pub fn htaccess_news(&self) -> Vec<String> {
        if !self.htaccess.has_news.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut reports = lock(&self.htaccess.reports);
        self.htaccess.has_news.store(false, Ordering::Release);
        std::mem::take(&mut reports.waiting)
    }
}

/// What the files say of a path, as a refusal.
fn judge(chain: &Chain, asked: &AccessQuery<'_>, hides: bool) -> Result<(), Closed> {
    if chain.files.is_empty() {
        return Ok(());
    }
    let (because, refusal, status) = match decide(&chain.files, asked) {
        Verdict::Open => return Ok(()),
        Verdict::Closed(because, status) => {
            let refusal = match chain.files[because.file].parsed.is_fault(because.line) {
                true => Refusal::HtaccessNotUnderstood,
                false => Refusal::HtaccessDenied,
            };
            (because, refusal, status)
        }
        Verdict::NoScripts(because) => (because, Refusal::HtaccessNoScripts, 403),
        Verdict::Hidden(because) if hides && matches!(asked.lies, Lies::File | Lies::Script) => {
            (because, Refusal::HtaccessHidden, 404)
        }
        Verdict::Hidden(_) => return Ok(()),
    };
    Err(Closed {
        refused: Refused { refusal, status },
        because: quote(asked.root, chain, because),
    })
}

impl Door {
    /// Keeps a sentence for the log, if it is a new one.
    pub(super) fn report(&self, text: String) {
        let mut reports = lock(&self.reports);
        if reports.said.len() < MOST_REPORTS && reports.said.insert(text.clone()) {
            reports.waiting.push(text);
            self.has_news.store(true, Ordering::Release);
        }
    }
}

fn lock(reports: &Mutex<Reports>) -> std::sync::MutexGuard<'_, Reports> {
    reports.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `/app/` of `/app/index.php`
fn directory_of(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b == b'/');
    &path[..end.map_or(0, |slash| slash + 1)]
}

pub(super) fn file_name(root: &RootDir, directory: &[u8]) -> PathBuf {
    let name = root.file_name(&[directory, b".htaccess"].concat());
    Path::new(std::ffi::OsStr::from_bytes(&name)).to_owned()
}

/// `/srv/x/.htaccess:3: Require all denied`
fn quote(root: &RootDir, chain: &Chain, because: Because) -> Box<str> {
    let file = &chain.files[because.file];
    let mut text = file_name(root, &file.path).display().to_string();
    if because.line > 0 {
        // A string takes everything.
        let _ = write!(text, ":{}", because.line);
    }
    let line = file.parsed.quote(because.line);
    if !line.is_empty() {
        let _ = write!(text, ": {}", howdah_htaccess::printable(line));
    }
    text.into()
}
