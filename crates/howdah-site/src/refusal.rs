//! Every reason why a URL does not become a file or a script. Each has one name, which is the same in the log, in the
//! `Howdah-Error` header, in the docs and in the tests. There is no text for users here; `respond` makes the pages.

use howdah_http1::hidden::HiddenReason;
use strum::{Display, IntoStaticStr, VariantArray};

/// Why a request was refused before any file was sent or script run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, IntoStaticStr, VariantArray)]
pub enum Refusal {
    /// A `%` that is not followed by two hexadecimal digits. nginx responds with 400 as well
    /// (`ngx_http_parse_complex_uri`).
    BadEscape,
    /// `%00` (or a raw NUL): no file name can hold it, and C code would cut the name there.
    NulByte,
    /// `..` climbs above the root. nginx responds with 400 as well.
    AboveRoot,
    /// A segment that is a traversal for software which treats `\` as a separator (`..\`). On this system it is an odd
    /// file name, but PHP code may interpret it differently.
    BackslashTraversal,
    /// The target is neither a path nor `*` of `OPTIONS`.
    BadTarget,
    /// Like [`Hidden::DotFile`], by the file's name.
    DotFile,
    /// Like [`Hidden::ProgramSource`], including the site's own script extensions and programs of `cgi` rules.
    ProgramSource,
    /// Like [`Hidden::EditorBackup`], by the file's name.
    EditorBackup,
    /// Like [`Hidden::VersionControl`], by the file's name.
    VersionControl,
    /// Like [`Hidden::DatabaseFile`], by the file's name.
    DatabaseFile,
    /// Like [`Hidden::ProjectFile`], by the file's name.
    ProjectFile,
    /// A file of users or groups that a rule names. Not even `expose` makes it accessible.
    PasswordFile,
    /// Nothing exists at the path.
    NotFound,
    /// Neither a regular file nor a directory: a socket, a pipe, a device.
    NotRegular,
    /// A directory without an index file; directory listings are never made.
    NoIndex,
    /// The server's user is not permitted to read the file.
    Unreadable,
    /// `symlinks = "owner"`: the link and its target have different owners.
    SymlinkOwner,
    /// `symlinks = "beneath"`: the link leads outside the root.
    SymlinkEscape,
    /// The configuration denies access (`deny`).
    Denied,
    /// An `.htaccess` file denies access, or would require a login. Its line is in the log.
    HtaccessDenied,
    /// An `.htaccess` file leads the path elsewhere, so the file at the path itself is not sent.
    HtaccessHidden,
    /// An `.htaccess` file disables PHP here.
    HtaccessNoScripts,
    /// An `.htaccess` file cannot be read or parsed, so it is unknown what it denies.
    HtaccessNotUnderstood,
    /// An `.htaccess` file requires a password, and none or a wrong one was given.
    HtaccessPassword,
    /// The rules of `.htaccess` files do not terminate: ten internal redirects, or a name that keeps growing.
    HtaccessLoop,
    /// An `.htaccess` file requires a feature that this server does not have, such as a proxy.
    HtaccessUnsupported,
    /// The expression of a rule reached its limit of steps, or the path is too long for it, so it is unknown whether
    /// the rule matches the path.
    RuleUndecided,
    /// A script names a file whose guard has not been asked about this request.
    NotAuthorized,
    /// The configuration sets this status (`return`), or a `try_files` entry does (`=404`).
    Returned,
    /// A file supports only GET, HEAD and OPTIONS.
    MethodNotAllowed,
    /// A script named a file by `X-Sendfile` or `X-Accel-Redirect` that is not in any configured root.
    SendfileOutside,
    /// Reading the file failed because of the system (I/O error, out of descriptors).
    ReadFailed,
}

impl Refusal {
    /// Every refusal, for docs and tests.
    pub const ALL: &'static [Refusal] = Refusal::VARIANTS;

    /// Returns the name, as in the log and in `Howdah-Error`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns whether an `.htaccess` file is the reason.
    pub fn is_from_htaccess(self) -> bool {
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

    /// Returns the status of the response, unless the configuration names another.
    ///
    /// For files that are never sent it is 404, not 403: the response is the same whether such a file exists or not,
    /// and the difference would be of no use to a client.
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

impl From<HiddenReason> for Refusal {
    fn from(hidden: HiddenReason) -> Refusal {
        match hidden {
            HiddenReason::DotFile => Refusal::DotFile,
            HiddenReason::ProgramSource => Refusal::ProgramSource,
            HiddenReason::EditorBackup => Refusal::EditorBackup,
            HiddenReason::VersionControl => Refusal::VersionControl,
            HiddenReason::DatabaseFile => Refusal::DatabaseFile,
            HiddenReason::ProjectFile => Refusal::ProjectFile,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_listed_once_and_named_as_their_variants() {
        let mut names = std::collections::HashSet::new();
        for refusal in Refusal::ALL {
            assert_eq!(format!("{refusal:?}"), refusal.name());
            assert!(names.insert(refusal.name()), "{refusal} listed twice");
            assert!((400..600).contains(&refusal.status()));
        }
    }
}
