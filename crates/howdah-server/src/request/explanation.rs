//! The explanation of a request, as data for JSON and as text for a terminal. This module determines nothing itself.

use std::fmt::{self, Display, Formatter, Write};

use serde::Serialize;

/// Everything that `howdah explain` reports about a request. Text that is not UTF-8 contains replacement characters.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RequestExplanation {
    /// The request's method.
    pub method: String,
    /// Scheme, host, path and query.
    pub url: String,
    /// The client's address, as rules see it; absent for the peer of a unix socket.
    pub from: Option<String>,
    /// The site that handles the request.
    pub site: String,
    /// Why this site was chosen.
    pub site_because: String,
    /// The rules and lines that were evaluated, in order.
    pub steps: Vec<ExplainedStep>,
    /// Guards that would be asked first and were not: `auth_request` and `authorizer` rules. The explained response
    /// applies if all of them allow the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_asked: Vec<ExplainedStep>,
    /// What the client gets.
    pub answer: ExplainedResponse,
    /// What the page cache does with the request; absent if the site has no page cache or if no script handles the
    /// request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheDecision>,
}

/// One rule or line that was evaluated.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExplainedStep {
    /// `FILE:LINE`; for an `.htaccess` file with the line's text. Absent if the step does not come from a configuration
    /// file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The rule, such as `deny 403, prefix "/admin"`; empty for a line of an `.htaccess` file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub what: String,
    /// The path that the rule was evaluated for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Whether the rule matches the request; absent for a step that is not a rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<bool>,
    /// The outcome; for a rule that does not match, the option because of which it does not.
    pub said: String,
}

/// The kind of response to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResponseKind {
    /// A static file.
    File,
    /// A PHP script.
    Script,
    /// The program of a `cgi` rule.
    Program,
    /// Another server, through a `proxy` rule.
    Proxy,
    /// A redirect.
    Redirect,
    /// The text of a `return` rule or of an `ErrorDocument`.
    Return,
    /// The methods that are allowed, in response to OPTIONS.
    Options,
    /// An error page.
    #[default]
    Error,
    /// The status page.
    StatusPage,
    /// The response to a certificate authority's challenge.
    Challenge,
    /// The report of a purge.
    Purge,
}

/// The response, as far as it is known without running anything.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExplainedResponse {
    /// The kind of response.
    pub kind: ResponseKind,
    /// The status; absent if the script or the other server determines it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The failure's name, as in `Howdah-Error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// Details of the failure, such as a line of an `.htaccess` file or what is wrong with a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// The target of a redirect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The file that is sent; for an error, the page of `error_pages`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The value of `SCRIPT_FILENAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// The value of `SCRIPT_NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script_name: Option<String>,
    /// The value of `PATH_INFO`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_info: Option<String>,
    /// The value of `QUERY_STRING`; for a proxied request, its query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The pool that runs the script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The servers of a `proxy` rule.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// The path that the server of a `proxy` rule receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The headers of the response; for a script or another server, only the headers that the site sets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub header: Vec<(String, String)>,
    /// Headers that the site removes from the response of a script or another server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
}

/// What the page cache does with a request.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheDecision {
    /// The request is not answered with a stored page, and its response is not stored.
    Bypass {
        /// The reason's name.
        reason: &'static str,
        /// What the reason means.
        meaning: &'static str,
        /// The cookie that is the reason.
        cookie: Option<String>,
    },
    /// A stored page may be served, or the response may be stored. The command asks the running server which of the two
    /// happens.
    Asked {
        /// The command line, `howdah cache explain …`.
        command: String,
    },
}

impl Display for RequestExplanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let from = self.from.as_deref().unwrap_or("unix:");
        let (method, url) = (&self.method, &self.url);
        write_escaped_line(f, 0, &format!("{method} {url} from {from}"))?;
        write_escaped_line(f, 0, &format!("site {}: {}", self.site, self.site_because))?;
        for step in &self.steps {
            write_escaped_line(f, 2, &step.to_string())?;
        }
        for step in &self.not_asked {
            write_escaped_line(f, 2, &format!("{step}: not evaluated here"))?;
        }
        if !self.not_asked.is_empty() {
            write_escaped_line(f, 0, "if the request is allowed:")?;
        }
        write_escaped_line(f, 0, &self.answer.to_string())?;
        if let Some(because) = &self.answer.because {
            write_escaped_line(f, 2, because)?;
        }
        for (name, value) in &self.answer.header {
            write_escaped_line(f, 2, &format!("{name}: {value}"))?;
        }
        for name in &self.answer.without {
            write_escaped_line(f, 2, &format!("without {name}"))?;
        }
        match &self.cache {
            None => Ok(()),
            Some(CacheDecision::Bypass {
                reason,
                meaning,
                cookie,
            }) => {
                write_escaped_line(
                    f,
                    0,
                    &format!("not from the page cache, {reason}: {meaning}"),
                )?;
                match cookie {
                    Some(cookie) => {
                        write_escaped_line(f, 2, &format!("because of the cookie `{cookie}`"))
                    }
                    None => Ok(()),
                }
            }
            Some(CacheDecision::Asked { command }) => write_escaped_line(
                f,
                0,
                &format!("perhaps from the page cache; to find out, run: {command}"),
            ),
        }
    }
}

/// Escapes characters of a request or a file name that could control a terminal.
fn write_escaped_line(f: &mut Formatter<'_>, indent: usize, text: &str) -> fmt::Result {
    write!(f, "{:indent$}", "")?;
    for c in text.chars() {
        let moves_text = matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        match c.is_control() || moves_text {
            true => write!(f, "{}", c.escape_unicode())?,
            false => f.write_char(c)?,
        }
    }
    f.write_char('\n')
}

impl Display for ExplainedStep {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let parts = [self.at.as_deref(), Some(&*self.what)];
        let parts = parts.into_iter().flatten().filter(|part| !part.is_empty());
        f.write_str(&parts.collect::<Vec<_>>().join(" "))?;
        let begun = self.at.is_some() || !self.what.is_empty();
        let said = match (self.matches, &*self.said) {
            (Some(false), why) => format!("no ({why})"),
            (Some(true), "") => "yes".to_owned(),
            (Some(true), said) => format!("yes, {said}"),
            (_, said) => said.to_owned(),
        };
        match (begun, &*said) {
            (_, "") => Ok(()),
            (true, said) => write!(f, ": {said}"),
            (false, said) => f.write_str(said),
        }
    }
}

impl Display for ExplainedResponse {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(status) = self.status {
            write!(f, "{status} ")?;
        }
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        match self.kind {
            ResponseKind::File => write!(f, "file {}", text(&self.file))?,
            ResponseKind::Script => write!(f, "script {}", text(&self.script))?,
            ResponseKind::Program => write!(f, "program {}", text(&self.script))?,
            ResponseKind::Proxy => write!(f, "proxied to {}", self.servers.join(" or "))?,
            ResponseKind::Redirect => write!(f, "redirect to {}", text(&self.location))?,
            ResponseKind::Return => f.write_str("a text from the configuration")?,
            ResponseKind::Options => f.write_str("the list of allowed methods")?,
            ResponseKind::Error => {
                f.write_str(self.error.unwrap_or_default())?;
                if let Some(page) = &self.file {
                    write!(f, ", with the page {page}")?;
                }
            }
            ResponseKind::StatusPage => f.write_str("the status page")?,
            ResponseKind::Challenge => {
                f.write_str("the response to a certificate authority's challenge")?
            }
            ResponseKind::Purge => f.write_str("a purge of the page cache")?,
        }
        for (name, value) in [
            ("SCRIPT_NAME", &self.script_name),
            ("path", &self.path),
            ("PATH_INFO", &self.path_info),
            ("query", &self.query),
            ("pool", &self.pool),
        ] {
            if let Some(value) = value {
                write!(f, ", {name} {value}")?;
            }
        }
        Ok(())
    }
}
