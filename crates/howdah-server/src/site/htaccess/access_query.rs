//! What is asked about: a path below the site's root, what lies there, the request for it as far as
//! conditions may look at it, and the variables that `SetEnvIf` makes of it. Pure, but for conditions
//! that ask whether another file exists.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;

use howdah_http::message::RequestHead;

use super::pattern::{LimitReached, Regex};
use super::truth::Truth;
use crate::docroot::root::RootDir;

/// What lies at the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// A file to be sent.
    File,
    /// A script to be run.
    Script,
    /// A directory lies there.
    Directory,
    /// Nothing that is known lies there.
    Nothing,
}

/// A path and the request for it.
#[derive(Clone, Copy)]
pub struct AccessQuery<'a> {
    /// The request's method.
    pub method: &'a [u8],
    /// The request, where there is one.
    pub head: Option<&'a RequestHead>,
    /// The path as the URL names it: clean and decoded, `PATH_INFO` included.
    pub path: &'a [u8],
    /// How much of it names the file.
    pub name: usize,
    /// What lies at the path.
    pub lies: Lies,
    /// Another path led here: the second round of Apache's `mod_rewrite`.
    pub redirected: bool,
    /// The root that the path lies below.
    pub root: &'a RootDir,
    /// `SetEnvIf` lines in effect.
    pub(super) variables: Option<&'a Variables<'a>>,
    /// Set when more was looked at than path and method.
    pub(super) looked: Option<&'a Cell<bool>>,
}

impl<'a> AccessQuery<'a> {
    /// A question without a request; `name` is all of the path.
    pub fn new(root: &'a RootDir, method: &'a [u8], path: &'a [u8], lies: Lies) -> AccessQuery<'a> {
        AccessQuery {
            method,
            head: None,
            path,
            name: path.len(),
            lies,
            redirected: false,
            root,
            variables: None,
            looked: None,
        }
    }

    /// The request.
    pub(super) fn head(&self) -> Option<&'a RequestHead> {
        self.look();
        self.head
    }

    /// Something else is looked at than path and method.
    pub(super) fn look(&self) {
        if let Some(looked) = self.looked {
            looked.set(true);
        }
    }

    /// A header field of the request.
    pub(super) fn header(&self, name: &[u8]) -> Option<&'a [u8]> {
        let head = self.head()?;
        match name.eq_ignore_ascii_case(b"host") {
            true => Some(head.host()),
            false => head.header(name),
        }
    }

    /// The file's name without its directories.
    pub(super) fn file_name(&self) -> &'a [u8] {
        let name = &self.path[..self.name];
        name.rsplit(|b| *b == b'/').next().unwrap_or(name)
    }
}

/// `SetEnvIf ATTRIBUTE EXPRESSION VARIABLE…`
#[derive(Debug)]
pub(super) struct SetEnvIf {
    /// In lower case; none if what it asks about is not known here.
    pub attribute: Option<String>,
    pub expression: Regex,
    /// Names in lower case, as case makes no difference, and whether they are set (not removed).
    pub variables: Vec<(String, bool)>,
}

impl SetEnvIf {
    fn holds(&self, asked: &AccessQuery<'_>, so_far: &HashMap<&str, Truth>) -> Truth {
        let value: Option<&[u8]> = match self.attribute.as_deref() {
            None | Some("remote_host" | "remote_addr" | "server_addr") => {
                return Truth::depends(false);
            }
            Some("request_method") => Some(asked.method),
            Some("request_uri") => Some(asked.path),
            Some("request_protocol") => match asked.head() {
                Some(head) => Some(head.version().as_str().as_bytes()),
                None => return Truth::depends(false),
            },
            Some(name) => match asked.header(name.as_bytes()) {
                // Where there is no such field, Apache asks for a variable of that name.
                None if so_far.contains_key(name) => return Truth::depends(false),
                value => value,
            },
        };
        // What is not there is matched as empty text.
        match self.expression.is_match(value.unwrap_or_default()) {
            Ok(matches) => Truth::known(matches),
            Err(LimitReached) => Truth::depends(false),
        }
    }
}

/// The variables that the `SetEnvIf` lines in effect set, evaluated when the first one is asked for.
#[derive(Debug, Default)]
pub(super) struct Variables<'a> {
    lines: Vec<&'a SetEnvIf>,
    set: OnceCell<HashMap<&'a str, Truth>>,
}

impl<'a> Variables<'a> {
    /// `lines` are in their order.
    pub(super) fn new(lines: Vec<&'a SetEnvIf>) -> Variables<'a> {
        Variables {
            lines,
            set: OnceCell::new(),
        }
    }

    /// Whether the variable is set.
    fn get(&self, name: &str, asked: &AccessQuery<'_>) -> Truth {
        let all = self.set.get_or_init(|| self.evaluate(asked));
        all.get(name).copied().unwrap_or(Truth::NO)
    }

    fn evaluate(&self, asked: &AccessQuery<'_>) -> HashMap<&'a str, Truth> {
        let mut all: HashMap<&str, Truth> = HashMap::new();
        for line in &self.lines {
            let holds = line.holds(asked, &all);
            for (name, value) in &line.variables {
                let set = all.entry(name).or_insert(Truth::NO);
                *set = match value {
                    true => set.or(holds),
                    false => set.and(holds.not()),
                };
            }
        }
        all
    }
}

impl AccessQuery<'_> {
    /// Whether a variable is set when access is checked.
    pub(super) fn env(&self, name: &str) -> Truth {
        let variables = self.variables;
        variables.map_or(Truth::NO, |variables| variables.get(name, self))
    }
}
