//! The settings of a file or of one of its sections, grouped by Apache's modules because each module merges in its own
//! way. This module holds and merges values; it does not evaluate them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::expression::{Condition, Word};
use crate::limits::{Address, Methods};
use crate::pattern::{Regex, fnmatch};
use crate::rules::Rewrite;
use crate::table::Table;

/// The settings of one scope, or those of a request after all scopes have been merged.
#[derive(Clone, Debug, Default)]
pub struct Config {
    pub(crate) core: Option<Arc<Core>>,
    /// `<Files>` sections, in order.
    pub(crate) files: Vec<Arc<FilesSection>>,
    /// `<If>`, `<ElseIf>`, `<Else>`, in order.
    pub(crate) ifs: Vec<Arc<IfSection>>,
    pub(crate) rewrite: Option<Arc<Rewrite>>,
    pub(crate) authz: Option<Arc<Authz>>,
    pub(crate) compat: Option<Arc<Compat>>,
    pub(crate) authn: Option<Arc<Authn>>,
    pub(crate) headers: Option<Arc<Headers>>,
    pub(crate) setenvif: Option<Arc<Vec<Arc<SetEnvIf>>>>,
    pub(crate) env: Option<Arc<Env>>,
    pub(crate) expires: Option<Arc<Expires>>,
    pub(crate) mime: Option<Arc<Mime>>,
    pub(crate) alias: Option<Arc<Alias>>,
    pub(crate) dir: Option<Arc<Dir>>,
    pub(crate) php: Option<Arc<Php>>,
}

/// Merges two values, or returns the only one that exists.
fn both<T>(base: &Option<Arc<T>>, add: &Option<Arc<T>>, merge: fn(&T, &T) -> T) -> Option<Arc<T>> {
    match (base, add) {
        (Some(base), Some(add)) => Some(Arc::new(merge(base, add))),
        (one, None) => one.clone(),
        (None, other) => other.clone(),
    }
}

impl Config {
    /// Returns true if the settings do not need to be merged with the server's defaults.
    pub(crate) fn stands_alone(&self) -> bool {
        self.authz.is_none()
            && self
                .mime
                .as_ref()
                .is_none_or(|mime| mime.removed.is_empty())
    }

    /// Returns the settings of `self` overridden by those of `add`.
    pub(crate) fn merge(&self, add: &Config) -> Config {
        let chained = |a: &[Arc<FilesSection>], b: &[Arc<FilesSection>]| [a, b].concat();
        Config {
            core: both(&self.core, &add.core, Core::merge),
            files: chained(&self.files, &add.files),
            ifs: [&self.ifs[..], &add.ifs].concat(),
            rewrite: both(&self.rewrite, &add.rewrite, Rewrite::merge),
            authz: Authz::both(&self.authz, &add.authz),
            // mod_access_compat does not merge its settings.
            compat: add.compat.clone().or_else(|| self.compat.clone()),
            authn: both(&self.authn, &add.authn, Authn::merge),
            headers: both(&self.headers, &add.headers, Headers::merge),
            setenvif: both(&self.setenvif, &add.setenvif, |a, b| [&a[..], b].concat()),
            env: both(&self.env, &add.env, Env::merge),
            expires: both(&self.expires, &add.expires, Expires::merge),
            mime: Mime::both(&self.mime, &add.mime),
            alias: both(&self.alias, &add.alias, Alias::merge),
            dir: both(&self.dir, &add.dir, Dir::merge),
            php: both(&self.php, &add.php, Php::merge),
        }
    }
}

/// A `<Files>` or `<FilesMatch>` section.
#[derive(Debug)]
pub(crate) struct FilesSection {
    pub names: Names,
    pub config: Config,
}

#[derive(Debug)]
pub(crate) enum Names {
    Plain(String),
    Shell(String),
    Expression(Regex),
}

impl Names {
    pub(crate) fn are(&self, name: &[u8]) -> Result<bool, crate::pattern::LimitReached> {
        match self {
            Names::Plain(plain) => Ok(plain.as_bytes() == name),
            Names::Shell(pattern) => Ok(fnmatch(pattern.as_bytes(), name)),
            Names::Expression(regex) => regex.is_match(name),
        }
    }
}

/// An `<If>`, `<ElseIf>` or `<Else>` section.
#[derive(Debug)]
pub(crate) struct IfSection {
    /// The condition; `None` for `<Else>`.
    pub condition: Option<Condition>,
    /// Whether the section is an `<ElseIf>` or `<Else>`.
    pub is_else: bool,
    pub config: Config,
}

/// The settings of the server's core.
#[derive(Clone, Debug, Default)]
pub(crate) struct Core {
    pub error_documents: BTreeMap<u16, ErrorDocument>,
    pub force_type: Option<(Arc<str>, String)>,
    pub handler: Option<(Arc<str>, Word)>,
    pub default_charset: Option<Option<String>>,
    pub accept_path_info: Option<Option<bool>>,
    pub options: Options,
    pub etag: Option<ETag>,
    pub body_limit: Option<u64>,
    /// `SSLRequireSSL` (true), or a directive that requires more of TLS than is known here (false), which denies every
    /// request; with the directive's line.
    pub tls_only: Option<(Arc<str>, bool)>,
}

/// `FileETag`: whether the field is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ETag(pub bool);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ErrorDocument {
    Default,
    /// A path of this site or a URL.
    Target(Word),
    /// A text, including the quotation mark that Apache puts before it.
    Text(Word),
}

/// `Options`. Only the settings of symbolic links matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// The flags that are set without a sign. Rewriting is forbidden if neither `FollowSymLinks` nor
    /// `SymLinksIfOwnerMatch` is in effect.
    pub set: Option<u8>,
    pub added: u8,
    pub removed: u8,
}

impl Options {
    pub(crate) const LINKS: u8 = 1;
    pub(crate) const OWNER: u8 = 2;

    fn merge(self, add: Options) -> Options {
        match add.set {
            Some(_) => add,
            None => Options {
                set: self.set.map(|set| set & !add.removed | add.added),
                added: self.added & !add.removed | add.added,
                removed: self.removed & !add.added | add.removed,
            },
        }
    }

    /// Returns true if symbolic links may be followed, which is the default.
    pub(crate) fn allow_links(self) -> bool {
        let base = self.set.unwrap_or(Options::LINKS);
        (base & !self.removed | self.added) & (Options::LINKS | Options::OWNER) != 0
    }
}

impl Core {
    fn merge(base: &Core, add: &Core) -> Core {
        let mut error_documents = base.error_documents.clone();
        error_documents.extend(add.error_documents.clone());
        Core {
            error_documents,
            force_type: add.force_type.clone().or_else(|| base.force_type.clone()),
            handler: add.handler.clone().or_else(|| base.handler.clone()),
            default_charset: add
                .default_charset
                .clone()
                .or_else(|| base.default_charset.clone()),
            accept_path_info: add.accept_path_info.or(base.accept_path_info),
            options: base.options.merge(add.options),
            etag: add.etag.or(base.etag),
            body_limit: add.body_limit.or(base.body_limit),
            tls_only: add.tls_only.clone().or_else(|| base.tls_only.clone()),
        }
    }
}

/// The settings of mod_authz_core.
#[derive(Clone, Debug, Default)]
pub(crate) struct Authz {
    pub merging: Merging,
    pub section: Option<Arc<Require>>,
    /// The last of its directives, for messages.
    pub origin: Option<Arc<str>>,
    pub forbidden_on_fail: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Merging {
    #[default]
    Unset,
    Off,
    And,
    Or,
}

impl Authz {
    /// Merges as [`both`] does, with the server's default, which grants access to all, below the first file.
    fn both(base: &Option<Arc<Authz>>, add: &Option<Arc<Authz>>) -> Option<Arc<Authz>> {
        match (base, add) {
            (None, Some(add)) => Some(Authz::first(add)),
            (base, add) => both(base, add, Authz::merge),
        }
    }

    /// Merges `add` with the server's default.
    pub(crate) fn first(add: &Arc<Authz>) -> Arc<Authz> {
        if !matches!(add.merging, Merging::And | Merging::Or) {
            return add.clone();
        }
        let granted = Require {
            methods: Methods::ALL,
            negated: false,
            what: Required::Everybody(true),
        };
        let server = Authz {
            section: Some(Arc::new(granted)),
            ..Authz::default()
        };
        Arc::new(Authz::merge(&server, add))
    }

    fn merge(base: &Authz, add: &Authz) -> Authz {
        let forbidden_on_fail = add.forbidden_on_fail.or(base.forbidden_on_fail);
        let merges = matches!(add.merging, Merging::And | Merging::Or);
        let (from, section) = match (&base.section, &add.section) {
            // Two sections that merge become one that contains both.
            (Some(old), Some(new)) if merges => {
                let all = add.merging == Merging::And;
                let merged = Require {
                    methods: Methods(old.methods.0 | new.methods.0),
                    negated: false,
                    what: match all {
                        true => Required::All(vec![old.clone(), new.clone()]),
                        false => Required::Any(vec![old.clone(), new.clone()]),
                    },
                };
                (add, Some(Arc::new(merged)))
            }
            (_, Some(new)) => (add, Some(new.clone())),
            // With `AuthMerging Off` and no `Require`, nothing is required any more.
            (_, None) if add.merging == Merging::Off => (add, None),
            (old, None) => (base, old.clone()),
        };
        Authz {
            merging: from.merging,
            section,
            origin: from.origin.clone(),
            forbidden_on_fail,
        }
    }
}

/// A `Require` directive or a container of `Require` directives.
#[derive(Debug)]
pub(crate) struct Require {
    pub methods: Methods,
    pub negated: bool,
    pub what: Required,
}

#[derive(Debug)]
pub(crate) enum Required {
    /// `Require all granted` (true) or `Require all denied` (false).
    Everybody(bool),
    Method(Methods),
    Env(Vec<String>),
    Address(Vec<crate::network::Network>),
    Host,
    ForwardDns,
    Local,
    Expression {
        condition: Condition,
        /// The expression contains `REMOTE_USER`, so a password may change the result.
        wants_user: bool,
    },
    ValidUser,
    User(Vec<Word>),
    Group(Vec<Word>),
    /// A provider of a module that is not known here, which never grants access.
    Unknown,
    All(Vec<Arc<Require>>),
    Any(Vec<Arc<Require>>),
}

/// The settings of mod_access_compat.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compat {
    pub order: Vec<(Methods, Order)>,
    pub allow: Vec<(Methods, Address)>,
    pub deny: Vec<(Methods, Address)>,
    /// `Satisfy`: true for `Any`.
    pub satisfy_any: Vec<(Methods, bool)>,
    /// The directive that most likely denies access, for messages.
    pub origin: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    AllowDeny,
    DenyAllow,
    MutualFailure,
}

/// The settings of mod_authn_core, mod_auth_basic, mod_authn_file and mod_authz_groupfile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Authn {
    /// The `AuthType`, in lower case.
    pub kind: Option<String>,
    pub name: Option<Word>,
    pub user_file: Option<String>,
    pub group_file: Option<String>,
    /// `AuthBasicProvider` names a provider other than `file`.
    pub other_provider: Option<bool>,
}

impl Authn {
    fn merge(base: &Authn, add: &Authn) -> Authn {
        Authn {
            kind: add.kind.clone().or_else(|| base.kind.clone()),
            name: add.name.clone().or_else(|| base.name.clone()),
            user_file: add.user_file.clone().or_else(|| base.user_file.clone()),
            group_file: add.group_file.clone().or_else(|| base.group_file.clone()),
            other_provider: add.other_provider.or(base.other_provider),
        }
    }
}

/// The settings of mod_headers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Headers {
    pub request: Vec<Arc<HeaderLine>>,
    pub on_success: Vec<Arc<HeaderLine>>,
    pub always: Vec<Arc<HeaderLine>>,
}

impl Headers {
    fn merge(base: &Headers, add: &Headers) -> Headers {
        let chain = |a: &[Arc<HeaderLine>], b: &[Arc<HeaderLine>]| [a, b].concat();
        Headers {
            request: chain(&base.request, &add.request),
            on_success: chain(&base.on_success, &add.on_success),
            always: chain(&base.always, &add.always),
        }
    }
}

#[derive(Debug)]
pub(crate) struct HeaderLine {
    pub action: HeaderAction,
    pub name: Vec<u8>,
    pub value: Format,
    pub when: When,
}

impl HeaderLine {
    /// Returns true if the directive may read the response.
    pub(crate) fn has_expression(&self) -> bool {
        matches!(self.when, When::Expression(_)) || matches!(self.value, Format::Expression(_))
    }
}

#[derive(Debug)]
pub(crate) enum HeaderAction {
    Add,
    Append,
    Merge,
    Set,
    SetIfEmpty,
    Unset,
    Note,
    Echo(Regex),
    /// Replaces the first match, or every match if true.
    Edit(Regex, bool),
}

#[derive(Debug)]
pub(crate) enum When {
    Always,
    /// `early`: such a directive never applies here, because this is too late.
    Never,
    Env(Vec<u8>, bool),
    Expression(Condition),
}

/// A value with specifiers such as `%{NAME}e`.
#[derive(Debug)]
pub(crate) enum Format {
    Parts(Vec<Part>),
    Expression(Word),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(Vec<u8>),
    Env(Vec<u8>),
    Ssl(Vec<u8>),
    /// `%t`
    Time,
    /// `%D`
    Duration,
    /// `%l`, `%i`, `%b`: the load of the server.
    Load(u8),
}

/// A `SetEnvIf` or `BrowserMatch` directive.
#[derive(Debug)]
pub(crate) struct SetEnvIf {
    pub test: EnvTest,
    /// Names and values; the value is `None` if the variable is removed.
    pub variables: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

#[derive(Debug)]
pub(crate) enum EnvTest {
    /// The attribute that is tested, in lower case, and the expression.
    Attribute(String, Regex),
    /// An expression for the header's name, and one for its value.
    Header(Regex, Regex),
    Expression(Condition),
}

/// The settings of mod_env.
#[derive(Clone, Debug, Default)]
pub(crate) struct Env {
    pub set: Table,
    pub unset: Vec<String>,
}

impl Env {
    fn merge(base: &Env, add: &Env) -> Env {
        let mut set = base.set.clone();
        for name in &add.unset {
            set.unset(name.as_bytes());
        }
        for (name, value) in add.set.iter() {
            set.set(name, value);
        }
        Env {
            set,
            unset: Vec::new(),
        }
    }
}

/// The settings of mod_expires.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expires {
    pub active: Option<bool>,
    pub default: Option<Lifetime>,
    /// By media type, in lower case.
    pub by_type: BTreeMap<String, Lifetime>,
    pub wildcards: bool,
}

/// Seconds since the access, or since the file was modified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub from_change: bool,
    pub seconds: i64,
}

impl Expires {
    fn merge(base: &Expires, add: &Expires) -> Expires {
        let mut by_type = base.by_type.clone();
        by_type.extend(
            add.by_type
                .iter()
                .map(|(name, lifetime)| (name.clone(), *lifetime)),
        );
        Expires {
            active: add.active.or(base.active),
            default: add.default.or(base.default),
            by_type,
            // As in Apache, this depends only on the settings that were added last.
            wildcards: add.wildcards,
        }
    }
}

/// The settings of mod_mime.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mime {
    /// By extension, in lower case and without the dot.
    pub extensions: BTreeMap<String, Extension>,
    /// The extensions and attributes that `Remove…` directives name.
    pub removed: Vec<(String, Attribute)>,
    pub default_language: Option<String>,
}

/// The meaning of an extension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extension {
    /// The media type; empty after `RemoveType`.
    pub media_type: Option<(Arc<str>, String)>,
    pub charset: Option<String>,
    pub language: Option<String>,
    pub encoding: Option<String>,
    pub handler: Option<(Arc<str>, String)>,
    /// The `RemoveHandler` or `RemoveType` directive that stops PHP from running files with this extension.
    pub closed: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    Charset,
    Language,
    Encoding,
    Handler(Arc<str>),
}

impl Mime {
    /// Merges as [`both`] does. `Remove…` directives also apply to the settings of their own file.
    fn both(base: &Option<Arc<Mime>>, add: &Option<Arc<Mime>>) -> Option<Arc<Mime>> {
        match (base, add) {
            (None, Some(add)) if !add.removed.is_empty() => {
                Some(Arc::new(Mime::merge(&Mime::default(), add)))
            }
            (base, add) => both(base, add, Mime::merge),
        }
    }

    fn merge(base: &Mime, add: &Mime) -> Mime {
        let mut extensions = base.extensions.clone();
        for (name, new) in &add.extensions {
            let old = extensions.entry(name.clone()).or_default();
            old.media_type = new.media_type.clone().or(old.media_type.take());
            old.charset = new.charset.clone().or(old.charset.take());
            old.language = new.language.clone().or(old.language.take());
            old.encoding = new.encoding.clone().or(old.encoding.take());
            if new.handler.is_some() {
                old.closed = None;
            }
            old.handler = new.handler.clone().or(old.handler.take());
            old.closed = new.closed.clone().or(old.closed.take());
        }
        let mut merged = Mime {
            extensions,
            removed: Vec::new(),
            default_language: add
                .default_language
                .clone()
                .or(base.default_language.clone()),
        };
        merged.remove(&add.removed);
        merged
    }

    /// Removes the attributes that `Remove…` directives name.
    pub(crate) fn remove(&mut self, removed: &[(String, Attribute)]) {
        for (name, attribute) in removed {
            let extension = self.extensions.entry(name.clone()).or_default();
            match attribute {
                Attribute::Charset => extension.charset = None,
                Attribute::Language => extension.language = None,
                Attribute::Encoding => extension.encoding = None,
                Attribute::Handler(line) => {
                    extension.handler = None;
                    extension.closed = Some(line.clone());
                }
            }
        }
    }
}

/// The settings of mod_alias: `Redirect` and `RedirectMatch`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alias {
    pub redirects: Vec<Arc<Redirect>>,
    /// A `Redirect` without a path, which stands in a section.
    pub all: Option<(Arc<str>, u16, Option<Word>)>,
    pub relative: Option<bool>,
}

#[derive(Debug)]
pub(crate) struct Redirect {
    pub origin: Arc<str>,
    pub path: RedirectPath,
    pub status: u16,
    pub to: Option<String>,
}

#[derive(Debug)]
pub(crate) enum RedirectPath {
    Below(String),
    Matches(Regex),
}

impl Alias {
    fn merge(base: &Alias, add: &Alias) -> Alias {
        Alias {
            redirects: [&add.redirects[..], &base.redirects].concat(),
            all: add.all.clone().or_else(|| base.all.clone()),
            relative: add.relative.or(base.relative),
        }
    }
}

/// The settings of mod_dir.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dir {
    pub index: Option<Vec<String>>,
    pub slash: Option<bool>,
    pub fallback: Option<String>,
    pub check_handler: Option<bool>,
    /// `DirectoryIndexRedirect`; the inner value is `None` if it is off.
    pub index_redirect: Option<Option<u16>>,
}

impl Dir {
    fn merge(base: &Dir, add: &Dir) -> Dir {
        Dir {
            index: add.index.clone().or_else(|| base.index.clone()),
            slash: add.slash.or(base.slash),
            fallback: add.fallback.clone().or_else(|| base.fallback.clone()),
            check_handler: add.check_handler.or(base.check_handler),
            index_redirect: add.index_redirect.or(base.index_redirect),
        }
    }
}

/// mod_php's settings by name; `None` removes a setting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Php {
    pub values: BTreeMap<String, Option<String>>,
    /// The value and the line of `php_flag engine`.
    pub engine: Option<(Arc<str>, bool)>,
}

impl Php {
    fn merge(base: &Php, add: &Php) -> Php {
        let mut values = base.values.clone();
        values.extend(add.values.clone());
        Php {
            values,
            engine: add.engine.clone().or_else(|| base.engine.clone()),
        }
    }
}
