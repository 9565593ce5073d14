//! Every reason why a URL does not become a file or a script: one name each, the same in the log,
//! in the `Howdah-Error` header, in the docs and in the tests. Holds no text for users; the
//! response pages are made elsewhere.

use howdah_http1::hidden::Hidden;
use strum::{Display, IntoStaticStr, VariantArray};

/// Why a request was refused before any file was sent or script run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, IntoStaticStr, VariantArray)]
pub enum Refusal {
    /// A `%` not followed by two hexadecimal digits. nginx answers 400 as well
    /// (`ngx_http_parse_complex_uri`).
    BadEscape,
    /// `%00` (or a raw NUL): no file name can hold it, and C code would cut the name there.
    NulByte,
    /// `..` climbs above the root. nginx answers 400 as well.
    AboveRoot,
    /// A segment that is a traversal for software which takes `\` for a separator (`..\`). On
    /// this system it is an odd file name; PHP code behind it may think otherwise.
    BackslashTraversal,
    /// The target is neither a path nor `*` of `OPTIONS`.
    BadTarget,
    /// As [`Hidden::DotFile`], by the file's name.
    DotFile,
    /// As [`Hidden::ProgramSource`]; the site's own script extensions and programs of `cgi` rules, too.
    ProgramSource,
    /// As [`Hidden::EditorBackup`], by the file's name.
    EditorBackup,
    /// As [`Hidden::VersionControl`], by the file's name.
    VersionControl,
    /// As [`Hidden::DatabaseFile`], by the file's name.
    DatabaseFile,
    /// As [`Hidden::ProjectFile`], by the file's name.
    ProjectFile,
    /// A file of users or groups that a rule names. Not even `expose` opens it.
    PasswordFile,
    /// Nothing exists at the path.
    NotFound,
    /// Neither a regular file nor a directory: a socket, a pipe, a device.
    NotRegular,
    /// A directory without index file; listings are never made.
    NoIndex,
    /// The server's user may not read it.
    Unreadable,
    /// `symlinks = "owner"`: the link and what it points to have different owners.
    SymlinkOwner,
    /// `symlinks = "beneath"`: the link leads outside the root.
    SymlinkEscape,
    /// The configuration says so (`deny`).
    Denied,
    /// An `.htaccess` file closes it, or would ask who the visitor is. Its line is in the log.
    HtaccessDenied,
    /// An `.htaccess` file leads the path elsewhere: what lies there is not sent.
    HtaccessHidden,
    /// An `.htaccess` file switches PHP off here.
    HtaccessNoScripts,
    /// An `.htaccess` file cannot be read or understood: nobody knows what it closes.
    HtaccessNotUnderstood,
    /// An `.htaccess` file wants a password, and none or a wrong one was given.
    HtaccessPassword,
    /// The rules of `.htaccess` files lead on and on: ten internal redirects, or a name that grows.
    HtaccessLoop,
    /// An `.htaccess` file asks for something that this server does not do, as a proxy.
    HtaccessUnsupported,
    /// The expression of a rule reached its limit of steps, or the path is too long for it: nobody knows whether
    /// the rule is for this path.
    RuleUndecided,
    /// A script names a file that is guarded by somebody who has not been asked about this request.
    NotAuthorized,
    /// The configuration gives this status (`return`), or a `try_files` entry does (`=404`).
    Returned,
    /// A file knows GET, HEAD and OPTIONS.
    MethodNotAllowed,
    /// A script named a file by `X-Sendfile` or `X-Accel-Redirect` that no configured root permits.
    SendfileOutside,
    /// Reading the file failed for a reason of the system (I/O error, out of descriptors).
    ReadFailed,
}

impl Refusal {
    /// Every refusal, for docs and tests.
    pub const ALL: &'static [Refusal] = Refusal::VARIANTS;

    /// The name, as log and `Howdah-Error` have it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// An `.htaccess` file is the reason.
    pub fn is_of_htaccess(self) -> bool {
        matches!(
            self,
            Refusal::HtaccessDenied
                | Refusal::HtaccessHidden
                | Refusal::HtaccessNoScripts
                | Refusal::HtaccessNotUnderstood
                | Refusal::HtaccessPassword
                | Refusal::HtaccessLoop
                | Refusal::HtaccessUnsupported
        )
    }

    /// The status it is answered with, unless the configuration names another.
    ///
    /// Files that are never sent answer 404, not 403: the answer is the same whether such a file
    /// exists or not, and a client has no use for the difference.
    pub fn status(self) -> u16 {
        match self {
            Refusal::BadEscape
            | Refusal::NulByte
            | Refusal::AboveRoot
            | Refusal::BackslashTraversal
            | Refusal::BadTarget => 400,
            Refusal::NoIndex
            | Refusal::Unreadable
            | Refusal::SymlinkOwner
            | Refusal::SymlinkEscape
            | Refusal::Denied
            | Refusal::RuleUndecided
            | Refusal::HtaccessDenied
            | Refusal::HtaccessNoScripts
            | Refusal::HtaccessNotUnderstood
            | Refusal::HtaccessUnsupported
            | Refusal::NotAuthorized => 403,
            Refusal::DotFile
            | Refusal::ProgramSource
            | Refusal::EditorBackup
            | Refusal::VersionControl
            | Refusal::DatabaseFile
            | Refusal::ProjectFile
            | Refusal::PasswordFile
            | Refusal::HtaccessHidden
            | Refusal::NotFound
            | Refusal::NotRegular
            | Refusal::Returned => 404,
            Refusal::HtaccessPassword => 401,
            Refusal::MethodNotAllowed => 405,
            Refusal::HtaccessLoop | Refusal::SendfileOutside | Refusal::ReadFailed => 500,
        }
    }
}

impl From<Hidden> for Refusal {
    fn from(hidden: Hidden) -> Refusal {
        match hidden {
            Hidden::DotFile => Refusal::DotFile,
            Hidden::ProgramSource => Refusal::ProgramSource,
            Hidden::EditorBackup => Refusal::EditorBackup,
            Hidden::VersionControl => Refusal::VersionControl,
            Hidden::DatabaseFile => Refusal::DatabaseFile,
            Hidden::ProjectFile => Refusal::ProjectFile,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_is_listed_once_and_named_as_its_variant() {
        let mut names = std::collections::HashSet::new();
        for refusal in Refusal::ALL {
            assert_eq!(format!("{refusal:?}"), refusal.name());
            assert!(names.insert(refusal.name()), "{refusal} listed twice");
            assert!((400..600).contains(&refusal.status()));
        }
    }
}
