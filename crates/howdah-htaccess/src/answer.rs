//! What becomes of a request: values, and the documents of errors.

use std::sync::Arc;

use crate::config::ErrorDocument;
use crate::expression::Word;
use crate::request::{Consulted, Request};
use crate::table::Table;
use crate::text::is_url;

/// What is to be done with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the file of this path below the root.
    File(Vec<u8>),
    /// Run a script.
    Script {
        /// Its path below the root.
        path: Vec<u8>,
        /// What follows it.
        path_info: Vec<u8>,
        /// Its name does not say that it is one: a line does.
        by_handler: bool,
    },
    /// Answer `OPTIONS` for what is no script.
    Options,
    /// Answer with this status and `Location`.
    Redirect(u16, Vec<u8>),
    /// Answer with the page of this status.
    Refuse(u16, Refusal),
    /// Answer with this status and text, which is HTML.
    Text(u16, Vec<u8>),
    /// Ask for a password first, and then again.
    Authenticate(Demand),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A line refuses it.
    Denied,
    /// A file has a mistake, or cannot be read.
    NotUnderstood,
    /// Internal redirects or rounds of rewriting do not end.
    Loop,
    /// An expression cannot be matched within its limits.
    TooCostly,
    /// Scripts are not run here.
    NoScripts,
    /// A password is wanted, and none or a wrong one was given.
    Unauthorized,
    /// What is asked for needs something that this server does not do.
    Unsupported,
    /// Nothing is there.
    NotFound,
    /// A directory without an index file.
    NoIndex,
    /// The path cannot be one.
    BadPath,
    /// The method is not for files.
    Method,
    /// Something forbids looking there: a link, a permission.
    Forbidden,
    /// A configured status.
    Status,
}

/// What a password is checked against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// `AuthName`
    pub realm: Vec<u8>,
    /// `AuthUserFile`; none if none is configured, which lets nobody in.
    pub user_file: Option<String>,
    /// `AuthGroupFile`
    pub group_file: Option<String>,
    /// The groups that lines name: which of them have the user is asked.
    pub groups: Vec<Vec<u8>>,
}

/// What becomes of a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What is to be done.
    pub action: Action,
    /// The line or file that decided, for the log.
    pub because: Option<Arc<str>>,
    /// The status of the error that the file or script is the document of.
    pub error_status: Option<u16>,
    /// An internal redirect led to the answer.
    pub redirected: bool,
    /// `REDIRECT_URL` and `REDIRECT_QUERY_STRING`.
    pub redirect: Option<(Vec<u8>, Option<Vec<u8>>)>,
    /// The query that the script gets.
    pub query: Option<Vec<u8>>,
    /// The method that the script gets, if it is another one.
    pub method: Option<&'static str>,
    /// Environment variables for the script, in order: the last of a name counts.
    pub environment: Table,
    /// Settings for PHP.
    pub php: Vec<(String, String)>,
    /// The user whose password was right.
    pub user: Option<Vec<u8>>,
    /// `LimitRequestBody`
    pub body_limit: Option<u64>,
    /// The request's header, if lines changed it.
    pub headers: Option<Table>,
    /// What was looked at.
    pub consulted: Consulted,
    /// What the response's header needs.
    pub(crate) last: Box<Request>,
    pub(crate) always: Table,
    /// The body of an error, which `Header` without `always` does not reach.
    pub(crate) is_error: bool,
}

/// The document of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// This text, which is HTML.
    Text(Vec<u8>),
    /// What this URL of the site leads to.
    Local(Vec<u8>),
    /// The client is sent to this URL.
    Remote(Vec<u8>),
}

impl ErrorDocument {
    /// Word, with its variables replaced by `text`.
    pub(crate) fn of(&self, text: impl Fn(&Word) -> Option<Vec<u8>>) -> Option<Document> {
        match self {
            ErrorDocument::Default => None,
            ErrorDocument::Text(word) => text(word).map(Document::Text),
            ErrorDocument::Target(target) => {
                let target = text(target)?;
                if is_url(&target) {
                    return Some(Document::Remote(target));
                }
                target.starts_with(b"/").then_some(Document::Local(target))
            }
        }
    }
}

impl Answer {
    /// The document for a script that could not answer: of `ErrorDocument` lines that look at nothing.
    pub fn document(&self, status: u16) -> Option<Document> {
        // What is already the document of an error gets none of its own.
        if self.last.status != 200 {
            return None;
        }
        let documents = &self.last.config().core.as_ref()?.error_documents;
        documents.get(&status)?.of(|word| match word {
            Word::Text(text) => Some(text.clone()),
            _ => None,
        })
    }
}
