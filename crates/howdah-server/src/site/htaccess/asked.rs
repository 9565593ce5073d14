//! What is asked about: a path below the site's root, what lies there, and the request for it as far
//! as conditions may look at it. Pure, but for conditions that ask whether another file exists.

use super::access::Variables;
use crate::http::message::RequestHead;
use crate::site::root::RootDir;

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
pub struct Asked<'a> {
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
}

impl<'a> Asked<'a> {
    /// A question without a request; `name` is all of the path.
    pub fn new(root: &'a RootDir, method: &'a [u8], path: &'a [u8], lies: Lies) -> Asked<'a> {
        Asked {
            method,
            head: None,
            path,
            name: path.len(),
            lies,
            redirected: false,
            root,
            variables: None,
        }
    }

    /// A header field of the request.
    pub(super) fn header(&self, name: &[u8]) -> Option<&'a [u8]> {
        let head = self.head?;
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
