//! The settings of a file or of one of its sections, grouped by Apache's modules because each module merges in its own
//! way. This module holds and merges values; it does not evaluate them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::expression::{Condition, Word};
use crate::limits::{Address, Methods};
use crate::pattern::{Regex, fnmatch};
use crate::rules::RewriteSettings;
use crate::table::Table;

/// The settings of one scope, or those of a request after all scopes have been merged.
#[derive(Clone, Debug, Default)]
pub struct Config {
    pub(crate) core: Option<Arc<CoreSettings>>,
    /// `<Files>` sections, in order.
    pub(crate) files: Vec<Arc<FilesSection>>,
    /// `<If>`, `<ElseIf>`, `<Else>`, in order.
    pub(crate) ifs: Vec<Arc<IfSection>>,
    pub(crate) rewrite: Option<Arc<RewriteSettings>>,
    pub(crate) authz: Option<Arc<AuthzSettings>>,
    pub(crate) compat: Option<Arc<AccessCompatSettings>>,
    pub(crate) authn: Option<Arc<AuthnSettings>>,
    pub(crate) headers: Option<Arc<HeaderSettings>>,
    pub(crate) setenvif: Option<Arc<Vec<Arc<SetEnvIf>>>>,
    pub(crate) env: Option<Arc<EnvSettings>>,
    pub(crate) expires: Option<Arc<ExpiresSettings>>,
    pub(crate) mime: Option<Arc<MimeSettings>>,
    pub(crate) alias: Option<Arc<AliasSettings>>,
    pub(crate) dir: Option<Arc<DirSettings>>,
    pub(crate) php: Option<Arc<PhpSettings>>,
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
    pub(crate) fn needs_no_defaults(&self) -> bool {
        self.authz.is_none()
            && self
                .mime
                .as_ref()
                .is_none_or(|mime| mime.removed.is_empty())
    }

    /// Returns true if these settings or those of their sections lead requests elsewhere or change responses. Settings
    /// that only refuse requests, such as `Require`, do neither.
    pub(crate) fn does_more_than_refuse(&self) -> bool {
        let rewrites = |rewrite: &Arc<RewriteSettings>| {
            rewrite.engine == Some(true) && rewrite.rules.iter().any(|rule| rule.leads_elsewhere())
        };
        let redirects = |alias: &Arc<AliasSettings>| {
            let mut redirects = alias.redirects.iter();
            redirects.any(|redirect| (300..400).contains(&redirect.status))
        };
        let chooses = |dir: &Arc<DirSettings>| dir.index.is_some() || dir.fallback.is_some();
        self.headers.is_some()
            || self.expires.is_some()
            || self.rewrite.as_ref().is_some_and(rewrites)
            || self.alias.as_ref().is_some_and(redirects)
            || self.dir.as_ref().is_some_and(chooses)
            || self
                .files
                .iter()
                .any(|section| section.config.does_more_than_refuse())
            || self
                .ifs
                .iter()
                .any(|section| section.config.does_more_than_refuse())
    }

    /// Returns the settings of `self` overridden by those of `add`.
    pub(crate) fn merge(&self, add: &Config) -> Config {
        let chained = |a: &[Arc<FilesSection>], b: &[Arc<FilesSection>]| [a, b].concat();
        Config {
            core: both(&self.core, &add.core, CoreSettings::merge),
            files: chained(&self.files, &add.files),
            ifs: [&self.ifs[..], &add.ifs].concat(),
            rewrite: both(&self.rewrite, &add.rewrite, RewriteSettings::merge),
            authz: AuthzSettings::both(&self.authz, &add.authz),
            // mod_access_compat does not merge its settings.
            compat: add.compat.clone().or_else(|| self.compat.clone()),
            authn: both(&self.authn, &add.authn, AuthnSettings::merge),
            headers: both(&self.headers, &add.headers, HeaderSettings::merge),
            setenvif: both(&self.setenvif, &add.setenvif, |a, b| [&a[..], b].concat()),
            env: both(&self.env, &add.env, EnvSettings::merge),
            expires: both(&self.expires, &add.expires, ExpiresSettings::merge),
            mime: MimeSettings::both(&self.mime, &add.mime),
            alias: both(&self.alias, &add.alias, AliasSettings::merge),
            dir: both(&self.dir, &add.dir, DirSettings::merge),
            php: both(&self.php, &add.php, PhpSettings::merge),
        }
    }
}

/// A `<Files>` or `<FilesMatch>` section.
#[derive(Debug)]
pub(crate) struct FilesSection {
    pub names: FileNameTest,
    pub config: Config,
}

#[derive(Debug)]
pub(crate) enum FileNameTest {
    Plain(String),
    Shell(String),
    Expression(Regex),
}

impl FileNameTest {
    pub(crate) fn are(&self, name: &[u8]) -> Result<bool, crate::pattern::LimitReached> {
        match self {
            FileNameTest::Plain(plain) => Ok(plain.as_bytes() == name),
            FileNameTest::Shell(pattern) => Ok(fnmatch(pattern.as_bytes(), name)),
            FileNameTest::Expression(regex) => regex.is_match(name),
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
pub(crate) struct CoreSettings {
    pub error_documents: BTreeMap<u16, ErrorDocument>,
    pub force_type: Option<(Arc<str>, String)>,
    pub handler: Option<(Arc<str>, Word)>,
    pub default_charset: Option<Option<String>>,
    pub accept_path_info: Option<Option<bool>>,
    pub options: LinkOptions,
    pub etag: Option<ETag>,
    pub body_limit: Option<u64>,
    /// The line of a directive that restricts access by TLS. True means `SSLRequireSSL`; false means a directive that
    /// requires more of TLS than is known here, which denies every request.
    pub tls_only: Option<(Arc<str>, bool)>,
}

/// `FileETag`: whether the header `ETag` is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ETag(pub bool);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ErrorDocument {
    Default,
    /// A path of this site or a URL.
    Target(Word),
    /// A string, including the quotation mark that Apache puts before it.
    Text(Word),
}

/// `Options`. Only the settings of symbolic links matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkOptions {
    /// The flags that are set without a sign. Rewriting is forbidden if neither `FollowSymLinks` nor
    /// `SymLinksIfOwnerMatch` is in effect.
    pub set: Option<u8>,
    pub added: u8,
    pub removed: u8,
}

impl LinkOptions {
    pub(crate) const LINKS: u8 = 1;
    pub(crate) const OWNER: u8 = 2;

    fn merge(self, add: LinkOptions) -> LinkOptions {
        match add.set {
            Some(_) => add,
            None => LinkOptions {
                set: self.set.map(|set| set & !add.removed | add.added),
                added: self.added & !add.removed | add.added,
                removed: self.removed & !add.added | add.removed,
            },
        }
    }

    /// Returns true if symbolic links may be followed, which is the default.
    pub(crate) fn allow_links(self) -> bool {
        let base = self.set.unwrap_or(LinkOptions::LINKS);
        (base & !self.removed | self.added) & (LinkOptions::LINKS | LinkOptions::OWNER) != 0
    }
}

impl CoreSettings {
    fn merge(base: &CoreSettings, add: &CoreSettings) -> CoreSettings {
        let mut error_documents = base.error_documents.clone();
        error_documents.extend(add.error_documents.clone());
        CoreSettings {
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
pub(crate) struct AuthzSettings {
    pub merging: AuthMerging,
    pub section: Option<Arc<Require>>,
    /// The last of its directives, for messages.
    pub origin: Option<Arc<str>>,
    pub forbidden_on_fail: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AuthMerging {
    #[default]
    Unset,
    Off,
    And,
    Or,
}

impl AuthzSettings {
    /// Merges as [`both`] does, with the server's default, which grants access to all, below the first file.
    fn both(
        base: &Option<Arc<AuthzSettings>>,
        add: &Option<Arc<AuthzSettings>>,
    ) -> Option<Arc<AuthzSettings>> {
        match (base, add) {
            (None, Some(add)) => Some(AuthzSettings::first(add)),
            (base, add) => both(base, add, AuthzSettings::merge),
        }
    }

    /// Merges `add` with the server's default.
    pub(crate) fn first(add: &Arc<AuthzSettings>) -> Arc<AuthzSettings> {
        if !matches!(add.merging, AuthMerging::And | AuthMerging::Or) {
            return add.clone();
        }
        let granted = Require {
            methods: Methods::ALL,
            negated: false,
            requirement: Requirement::Everybody(true),
        };
        let server = AuthzSettings {
            section: Some(Arc::new(granted)),
            ..AuthzSettings::default()
        };
        Arc::new(AuthzSettings::merge(&server, add))
    }

    fn merge(base: &AuthzSettings, add: &AuthzSettings) -> AuthzSettings {
        let forbidden_on_fail = add.forbidden_on_fail.or(base.forbidden_on_fail);
        let merges = matches!(add.merging, AuthMerging::And | AuthMerging::Or);
        let (from, section) = match (&base.section, &add.section) {
            // Two sections that merge become one that contains both.
            (Some(old), Some(new)) if merges => {
                let all = add.merging == AuthMerging::And;
                let merged = Require {
                    methods: Methods(old.methods.0 | new.methods.0),
                    negated: false,
                    requirement: match all {
                        true => Requirement::All(vec![old.clone(), new.clone()]),
                        false => Requirement::Any(vec![old.clone(), new.clone()]),
                    },
                };
                (add, Some(Arc::new(merged)))
            }
            (_, Some(new)) => (add, Some(new.clone())),
            // With `AuthMerging Off` and no `Require`, nothing is required any more.
            (_, None) if add.merging == AuthMerging::Off => (add, None),
            (old, None) => (base, old.clone()),
        };
        AuthzSettings {
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
    pub requirement: Requirement,
}

#[derive(Debug)]
pub(crate) enum Requirement {
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
pub(crate) struct AccessCompatSettings {
    pub order: Vec<(Methods, AccessOrder)>,
    pub allow: Vec<(Methods, Address)>,
    pub deny: Vec<(Methods, Address)>,
    /// `Satisfy`: true for `Any`.
    pub satisfy_any: Vec<(Methods, bool)>,
    /// The directive that most likely denies access, for messages.
    pub origin: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessOrder {
    AllowDeny,
    DenyAllow,
    MutualFailure,
}

/// The settings of mod_authn_core, mod_auth_basic, mod_authn_file and mod_authz_groupfile.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuthnSettings {
    /// The `AuthType`, in lower case.
    pub kind: Option<String>,
    pub name: Option<Word>,
    pub user_file: Option<String>,
    pub group_file: Option<String>,
    /// Whether `AuthBasicProvider` names a provider other than `file`.
    pub other_provider: Option<bool>,
}

impl AuthnSettings {
    fn merge(base: &AuthnSettings, add: &AuthnSettings) -> AuthnSettings {
        AuthnSettings {
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
pub(crate) struct HeaderSettings {
    pub request: Vec<Arc<HeaderLine>>,
    pub on_success: Vec<Arc<HeaderLine>>,
    pub always: Vec<Arc<HeaderLine>>,
}

impl HeaderSettings {
    fn merge(base: &HeaderSettings, add: &HeaderSettings) -> HeaderSettings {
        let chain = |a: &[Arc<HeaderLine>], b: &[Arc<HeaderLine>]| [a, b].concat();
        HeaderSettings {
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
    pub value: HeaderValue,
    pub when: HeaderCondition,
}

impl HeaderLine {
    /// Returns true if the directive may read the response.
    pub(crate) fn has_expression(&self) -> bool {
        matches!(self.when, HeaderCondition::Expression(_))
            || matches!(self.value, HeaderValue::Expression(_))
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
    /// Replaces the first match, or every match if the second value is true.
    Edit(Regex, bool),
}

#[derive(Debug)]
pub(crate) enum HeaderCondition {
    Always,
    /// `early`: such a directive never applies here, because Apache applies it before it reads `.htaccess` files.
    Never,
    Env(Vec<u8>, bool),
    Expression(Condition),
}

/// A value with specifiers such as `%{NAME}e`.
#[derive(Debug)]
pub(crate) enum HeaderValue {
    Parts(Vec<HeaderValuePart>),
    Expression(Word),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderValuePart {
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
pub(crate) struct EnvSettings {
    pub set: Table,
    pub unset: Vec<String>,
}

impl EnvSettings {
    fn merge(base: &EnvSettings, add: &EnvSettings) -> EnvSettings {
        let mut set = base.set.clone();
        for name in &add.unset {
            set.unset(name.as_bytes());
        }
        for (name, value) in add.set.iter() {
            set.set(name, value);
        }
        EnvSettings {
            set,
            unset: Vec::new(),
        }
    }
}

/// The settings of mod_expires.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExpiresSettings {
    pub active: Option<bool>,
    pub default: Option<Lifetime>,
    /// By media type, in lower case.
    pub by_type: BTreeMap<String, Lifetime>,
    pub wildcards: bool,
}

/// Seconds since the access, or since the file was modified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub from_modification: bool,
    pub seconds: i64,
}

impl ExpiresSettings {
    fn merge(base: &ExpiresSettings, add: &ExpiresSettings) -> ExpiresSettings {
        let mut by_type = base.by_type.clone();
        by_type.extend(
            add.by_type
                .iter()
                .map(|(name, lifetime)| (name.clone(), *lifetime)),
        );
        ExpiresSettings {
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
pub(crate) struct MimeSettings {
    /// By extension, in lower case and without the dot.
    pub extensions: BTreeMap<String, ExtensionSettings>,
    /// The extensions and attributes that `Remove…` directives name.
    pub removed: Vec<(String, ExtensionAttribute)>,
    pub default_language: Option<String>,
}

/// The meaning of an extension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExtensionSettings {
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
pub(crate) enum ExtensionAttribute {
    Charset,
    Language,
    Encoding,
    Handler(Arc<str>),
}

impl MimeSettings {
    /// Merges as [`both`] does. `Remove…` directives also apply to the settings of their own file.
    fn both(
        base: &Option<Arc<MimeSettings>>,
        add: &Option<Arc<MimeSettings>>,
    ) -> Option<Arc<MimeSettings>> {
        match (base, add) {
            (None, Some(add)) if !add.removed.is_empty() => {
                Some(Arc::new(MimeSettings::merge(&MimeSettings::default(), add)))
            }
            (base, add) => both(base, add, MimeSettings::merge),
        }
    }

    fn merge(base: &MimeSettings, add: &MimeSettings) -> MimeSettings {
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
        let mut merged = MimeSettings {
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
    pub(crate) fn remove(&mut self, removed: &[(String, ExtensionAttribute)]) {
        for (name, attribute) in removed {
            let extension = self.extensions.entry(name.clone()).or_default();
            match attribute {
                ExtensionAttribute::Charset => extension.charset = None,
                ExtensionAttribute::Language => extension.language = None,
                ExtensionAttribute::Encoding => extension.encoding = None,
                ExtensionAttribute::Handler(line) => {
                    extension.handler = None;
                    extension.closed = Some(line.clone());
                }
            }
        }
    }
}

/// The settings of mod_alias: `Redirect` and `RedirectMatch`.
#[derive(Clone, Debug, Default)]
pub(crate) struct AliasSettings {
    pub redirects: Vec<Arc<RedirectDirective>>,
    /// A `Redirect` without a path, which is in a section.
    pub all: Option<(Arc<str>, u16, Option<Word>)>,
    pub relative: Option<bool>,
}

#[derive(Debug)]
pub(crate) struct RedirectDirective {
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

impl AliasSettings {
    fn merge(base: &AliasSettings, add: &AliasSettings) -> AliasSettings {
        AliasSettings {
            redirects: [&add.redirects[..], &base.redirects].concat(),
            all: add.all.clone().or_else(|| base.all.clone()),
            relative: add.relative.or(base.relative),
        }
    }
}

/// The settings of mod_dir.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirSettings {
    pub index: Option<Vec<String>>,
    pub slash: Option<bool>,
    pub fallback: Option<String>,
    pub check_handler: Option<bool>,
    /// `DirectoryIndexRedirect`; the inner value is `None` if it is off.
    pub index_redirect: Option<Option<u16>>,
}

impl DirSettings {
    fn merge(base: &DirSettings, add: &DirSettings) -> DirSettings {
        DirSettings {
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
pub(crate) struct PhpSettings {
    pub values: BTreeMap<String, Option<String>>,
    /// The value and the line of `php_flag engine`.
    pub engine: Option<(Arc<str>, bool)>,
}

impl PhpSettings {
    fn merge(base: &PhpSettings, add: &PhpSettings) -> PhpSettings {
        let mut values = base.values.clone();
        values.extend(add.values.clone());
        PhpSettings {
            values,
            engine: add.engine.clone().or_else(|| base.engine.clone()),
        }
    }
}
