//! The decision about a request, and the error documents.

use std::sync::Arc;

use crate::config::ErrorDocument;
use crate::expression::Word;
use crate::request::{EvaluatedRequest, InputDependencies};
use crate::table::Table;
use crate::text::is_url;

/// What the server is to do with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the file with this path below the document root.
    File(Vec<u8>),
    /// Run a script.
    Script {
        /// The script's path below the document root.
        path: Vec<u8>,
        /// The part of the URL path after the script (`PATH_INFO`).
        path_info: Vec<u8>,
        /// Whether a directive makes the file a script although its name is not that of a script.
        by_handler: bool,
    },
    /// Respond to `OPTIONS` for a resource that is not a script.
    Options,
    /// Respond with this status and this `Location`.
    Redirect(u16, Vec<u8>),
    /// Respond with the error page of this status.
    Refuse(u16, HtaccessRefusal),
    /// Respond with this status and this body, which is HTML.
    Text(u16, Vec<u8>),
    /// Check the client's password, then evaluate the request again.
    Authenticate(Demand),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HtaccessRefusal {
    /// A directive denies access.
    Denied,
    /// A file contains a mistake or cannot be read.
    NotUnderstood,
    /// The limit of internal redirects or of rewriting rounds is exceeded.
    Loop,
    /// An expression cannot be matched within its limits.
    TooCostly,
    /// Scripts are not run here.
    NoScripts,
    /// A password is required, and the request has none or a wrong one.
    Unauthorized,
    /// The request requires a feature that this server does not have.
    Unsupported,
    /// The file does not exist.
    NotFound,
    /// The path is a directory without an index file.
    NoIndex,
    /// The path is not valid.
    BadPath,
    /// The method is not allowed for files.
    Method,
    /// The file is not accessible: a symbolic link or the file's permissions forbid it.
    Forbidden,
    /// A directive sets this status.
    Status,
}

/// What a password is checked against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The realm (`AuthName`).
    pub realm: Vec<u8>,
    /// The password file (`AuthUserFile`). If it is `None`, access is denied.
    pub user_file: Option<String>,
    /// The group file (`AuthGroupFile`).
    pub group_file: Option<String>,
    /// The groups that directives name. The password check finds out which of them the user belongs to.
    pub groups: Vec<Vec<u8>>,
}

/// The decision about a request.
#[derive(Debug)]
pub struct RequestDecision {
    /// What the server is to do.
    pub action: Action,
    /// The directive or file that decided, for the log.
    pub decided_by: Option<Arc<str>>,
    /// The status of the error, if the file or script is its error document.
    pub error_status: Option<u16>,
    /// Whether the decision was reached after an internal redirect.
    pub redirected: bool,
    /// `REDIRECT_URL` and `REDIRECT_QUERY_STRING`.
    pub redirect: Option<(Vec<u8>, Option<Vec<u8>>)>,
    /// The query string that the script receives.
    pub query: Option<Vec<u8>>,
    /// The method that the script receives, if it differs from the request's.
    pub method: Option<&'static str>,
    /// Environment variables for the script, in order; the last one of a name counts.
    pub environment: Table,
    /// Settings for PHP.
    pub php: Vec<(String, String)>,
    /// The authenticated user.
    pub user: Option<Vec<u8>>,
    /// The maximum size of the request body in bytes (`LimitRequestBody`).
    pub body_limit: Option<u64>,
    /// The request's header fields, if directives changed them.
    pub headers: Option<Table>,
    /// The properties of the request, beyond method, host, path and query, that the decision depends on.
    pub dependencies: InputDependencies,
    /// The state that is needed to change the response's header fields.
    pub(crate) final_request: Box<EvaluatedRequest>,
    pub(crate) always: Table,
    /// Whether the response is an error, which `Header` directives without `always` do not change.
    pub(crate) is_error: bool,
}

/// An error document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// This body, which is HTML.
    Text(Vec<u8>),
    /// The resource at this URL of the site.
    Local(Vec<u8>),
    /// A redirect of the client to this URL.
    Remote(Vec<u8>),
}

impl ErrorDocument {
    /// Returns the document; `text` expands the variables of its word.
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

impl RequestDecision {
    /// Returns the document for a script that failed, from the `ErrorDocument` directives whose words contain no
    /// variables.
    pub fn document(&self, status: u16) -> Option<Document> {
        // An error document that fails itself does not get another one.
        if self.final_request.status != 200 {
            return None;
        }
        let documents = &self.final_request.config().core.as_ref()?.error_documents;
        documents.get(&status)?.of(|word| match word {
            Word::Text(text) => Some(text.clone()),
            _ => None,
        })
    }
}
