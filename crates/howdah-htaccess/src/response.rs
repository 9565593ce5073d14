//! Changes a response's header as the directives ask: media types, encodings, Expires, and the two lists of `Header`.

use std::sync::Arc;

use crate::config::{HeaderAction, HeaderCondition, HeaderLine, HeaderValue, HeaderValuePart};
use crate::decision::{Action, RequestDecision};
use crate::engine::{HookResult, RequestEngine};
use crate::evaluate::{Evaluation, ResponseSnapshot};
use crate::pattern::{LimitReached, Regex};
use crate::request::{EvaluatedRequest, EvaluationInput, InputDependencies, ServerContext};
use crate::table::Table;
use crate::text::pregsub;
use crate::types::without_charset;

/// The length at which a value that `Header edit*` builds stops growing, in bytes.
const MAX_EDITED_BYTES: usize = 64 << 10;

/// A directive followed by more directives than this is not checked for being replaced by a later one.
const MAX_LATER_DIRECTIVES: usize = 16;

/// A response's header while directives change it.
#[derive(Clone, Debug, Default)]
pub struct ResponseFields {
    /// The status.
    pub status: u16,
    /// All fields but `Content-Type`. Fields that belong to the connection must not be in it.
    pub table: Table,
    /// `Content-Type`.
    pub media_type: Option<Vec<u8>>,
    /// Whether the body is an unchanged file, whose type the directives determine.
    pub is_file: bool,
    /// When the file was modified, as Unix time in seconds.
    pub changed: Option<i64>,
}

/// A change of a response's header that depends on nothing but names and constant values of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstantEdit<'a> {
    /// Replaces all fields of this name.
    Set(&'a [u8], &'a [u8]),
    /// Adds a field to those of this name.
    Add(&'a [u8], &'a [u8]),
    /// Removes all fields of this name.
    Unset(&'a [u8]),
}

impl<'a> ConstantEdit<'a> {
    /// Returns the field's name.
    pub fn name(&self) -> &'a [u8] {
        let (ConstantEdit::Set(name, _) | ConstantEdit::Add(name, _) | ConstantEdit::Unset(name)) =
            self;
        name
    }

    /// Returns true if the change replaces or removes earlier fields of this name.
    pub fn replaces(&self) -> bool {
        !matches!(self, ConstantEdit::Add(..))
    }
}

impl RequestDecision {
    /// Returns true if the decision is the same for all clients that send this method, URL and host to this address of
    /// the server, with this version of HTTP.
    pub fn is_cacheable_by_url(&self) -> bool {
        let nobody = self.user.is_none() && !self.dependencies.has_credentials();
        self.dependencies.depends_only_on_url() && nobody && self.headers.is_none()
    }

    /// Returns true if the directives for responses depend on the request or the response.
    pub fn edits_depend_on_request(&self) -> bool {
        let headers = self.final_request.config().headers.as_ref();
        headers.is_some_and(|headers| {
            let mut lines = headers.always.iter().chain(&headers.on_success);
            lines.any(|line| line.plain(&self.final_request).is_none())
        })
    }

    /// Returns all changes that the directives make to this response, in order, or `None` if any of them depends on
    /// more than constants.
    pub fn constant_edits(
        &self,
        is_server_generated: bool,
    ) -> Option<impl Iterator<Item = ConstantEdit<'_>>> {
        let config = self.final_request.config();
        let (core, headers) = (config.core.as_ref(), config.headers.as_ref());
        let expires = config.expires.as_ref();
        let more = !self.always.is_empty()
            || !self.final_request.headers_out.is_empty()
            || headers.is_some_and(|headers| !headers.always.is_empty())
            || expires.is_some_and(|expires| expires.active == Some(true))
            || core.is_some_and(|core| core.default_charset.is_some() || core.etag.is_some())
            || self.final_request.media_type.is_some()
            || self.final_request.encoding.is_some()
            || !self.final_request.languages.is_empty();
        let lines = match headers {
            Some(headers) if !is_server_generated && !self.is_error => &headers.on_success[..],
            _ => &[],
        };
        let plain = move |line: &'_ Arc<HeaderLine>| line.plain(&self.final_request).is_some();
        if more || !lines.iter().all(plain) {
            return None;
        }
        let edits = lines.iter().enumerate().filter_map(move |(at, line)| {
            let edit = line.plain(&self.final_request).flatten()?;
            // The directives of a directory often repeat those of its parents; a change that a later directive replaces
            // is skipped.
            let later = &lines[at + 1..];
            let is_replaced = later.len() <= MAX_LATER_DIRECTIVES
                && later.iter().any(|later| {
                    let later = later.plain(&self.final_request).flatten();
                    later.is_some_and(|later| {
                        later.replaces() && later.name().eq_ignore_ascii_case(edit.name())
                    })
                });
            (!is_replaced).then_some(edit)
        });
        Some(edits)
    }

    /// Returns true if any directive may change the response.
    pub fn edits(&self) -> bool {
        let config = self.final_request.config();
        let core = config.core.as_ref();
        let headers = config.headers.as_ref();
        !self.always.is_empty()
            || !self.final_request.headers_out.is_empty()
            || headers
                .is_some_and(|headers| !headers.always.is_empty() || !headers.on_success.is_empty())
            || config
                .expires
                .as_ref()
                .is_some_and(|expires| expires.active == Some(true))
            || core.is_some_and(|core| core.default_charset.is_some() || core.etag.is_some())
            || self.final_request.media_type.is_some()
            || self.final_request.encoding.is_some()
            || !self.final_request.languages.is_empty()
    }

    /// Returns true if a directive removes the file's type (`RemoveType`).
    pub fn removes_type(&self) -> bool {
        self.final_request
            .media_type
            .as_ref()
            .is_some_and(Vec::is_empty)
    }

    /// Changes a response's header. If `is_server_generated` is true, the server generates the page itself, and only
    /// `Header always` applies to it. Returns the properties of the request that the directives have read.
    pub fn finish(
        &self,
        server: &dyn ServerContext,
        input: &EvaluationInput<'_>,
        fields: &mut ResponseFields,
        is_server_generated: bool,
    ) -> InputDependencies {
        let mut engine = RequestEngine::new(server, input);
        if let Some(headers) = &self.headers {
            engine.headers_in = std::borrow::Cow::Borrowed(headers);
        }
        let is_server_generated = is_server_generated || self.is_error;
        let mut always = self.always.clone();
        if !is_server_generated {
            self.set_type(fields);
        }
        for (name, value) in self.final_request.headers_out.iter() {
            if name.eq_ignore_ascii_case(b"vary") {
                vary(&mut fields.table, value);
            }
        }
        if !is_server_generated || fields.status < 400 {
            self.expire(&engine, fields, &mut always);
        }
        if let Some(headers) = &self.final_request.config().headers {
            let lines = [(&headers.always, true), (&headers.on_success, false)];
            for (list, is_always) in lines {
                if list.is_empty() || is_server_generated && !is_always {
                    continue;
                }
                // Expressions read this copy of the headers while the list changes the original.
                let snapshot = match list.iter().any(|line| line.has_expression()) {
                    true => (fields.table.clone(), always.clone()),
                    false => Default::default(),
                };
                let response = ResponseSnapshot {
                    fields: &snapshot.0,
                    always: &snapshot.1,
                    media_type: None,
                    status: fields.status,
                    is_of_script: matches!(self.action, Action::Script { .. }),
                };
                let table = match is_always {
                    true => &mut always,
                    false => &mut fields.table,
                };
                // If an expression exceeds its limits, the header stays as it is.
                let _ = edit(
                    &engine,
                    &self.final_request,
                    list,
                    table,
                    Some(response),
                    &mut fields.media_type,
                );
            }
        }
        // The fields for all responses come first, next to those of the same name.
        if !always.is_empty() {
            always.overlay(&fields.table);
            fields.table = always;
        }
        engine.dependencies
    }

    fn set_type(&self, fields: &mut ResponseFields) {
        let core = self.final_request.config().core.as_ref();
        if fields.is_file {
            if let Some(kind) = &self.final_request.media_type {
                fields.media_type = Some(kind.clone()).filter(|kind| !kind.is_empty());
            }
            if core.is_some_and(|core| core.etag.is_some_and(|etag| !etag.0)) {
                fields.table.unset(b"ETag");
            }
        }
        if let (true, Some(encoding)) = (fields.is_file, &self.final_request.encoding) {
            fields.table.set(b"Content-Encoding", encoding);
        }
        if !self.final_request.languages.is_empty()
            && fields.table.get(b"Content-Language").is_none()
        {
            let languages = self.final_request.languages.join(", ");
            fields.table.set(b"Content-Language", languages.as_bytes());
        }
        let Some(charset) = core.and_then(|core| core.default_charset.as_ref()) else {
            return;
        };
        // Only these two types get a charset, as in Apache's core.
        let Some(kind) = &fields.media_type else {
            return;
        };
        let essence = kind
            .split(|b| *b == b';')
            .next()
            .unwrap_or_default()
            .trim_ascii();
        let is_text = essence.eq_ignore_ascii_case(b"text/plain")
            || essence.eq_ignore_ascii_case(b"text/html");
        // A charset from the server's own table of types was not chosen by the site's author.
        let own = fields.is_file
            && (self.final_request.media_type.is_none() || self.final_request.type_by_table);
        match charset {
            Some(charset) if is_text && (own || !has_charset(kind)) => {
                let plain = without_charset(kind);
                fields.media_type = Some([&plain, &b"; charset="[..], charset.as_bytes()].concat());
            }
            None if own => fields.media_type = Some(without_charset(kind)),
            _ => {}
        }
    }

    /// Implements mod_expires.
    fn expire(&self, engine: &RequestEngine<'_>, fields: &mut ResponseFields, always: &mut Table) {
        let Some(expires) = &self.final_request.config().expires else {
            return;
        };
        if expires.active != Some(true) || fields.status >= 400 {
            return;
        }
        let has_own = always.get(b"Expires").is_some() || fields.table.get(b"Expires").is_some();
        if has_own {
            return;
        }
        // The page of a redirect without a media type is HTML.
        let kind = fields.media_type.as_deref().unwrap_or(match fields.status {
            300..=399 => b"text/html",
            _ => b"",
        });
        let essence = kind
            .split(|b| *b == b';')
            .next()
            .unwrap_or_default()
            .trim_ascii();
        let essence = crate::text::lossy(essence).to_ascii_lowercase();
        let wildcard = || {
            let (major, _) = essence.split_once('/').filter(|_| expires.wildcards)?;
            expires.by_type.get(&format!("{major}/*"))
        };
        let found = expires.by_type.get(&essence).or_else(wildcard);
        let Some(lifetime) = found.copied().or(expires.default) else {
            return;
        };
        let now = engine.server.now() / 1_000_000;
        let base = match (lifetime.from_modification, fields.changed) {
            (false, _) => now,
            (true, Some(changed)) => changed,
            (true, None) => return,
        };
        let at = base.saturating_add(lifetime.seconds).max(now);
        fields
            .table
            .merge(b"Cache-Control", format!("max-age={}", at - now).as_bytes());
        let seconds = u64::try_from(at).unwrap_or_default();
        let date = httpdate::fmt_http_date(
            std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds.min(253_402_300_799)),
        );
        fields.table.set(b"Expires", date.as_bytes());
    }
}

impl HeaderLine {
    /// Returns the change of a field, or `Some(None)` if the directive does nothing. Returns `None` if the directive
    /// depends on more than the presence of environment variables.
    fn plain(&self, request: &EvaluatedRequest) -> Option<Option<ConstantEdit<'_>>> {
        let holds = match &self.when {
            HeaderCondition::Always => true,
            HeaderCondition::Never => false,
            HeaderCondition::Env(name, wanted) => match request.env.get(name) {
                // The variable may be a request header.
                None if name.starts_with(b"HTTP_") => return None,
                value => value.is_some() == *wanted,
            },
            HeaderCondition::Expression(_) => return None,
        };
        let value: &[u8] = match &self.value {
            HeaderValue::Parts(parts) => match &parts[..] {
                [] => b"",
                [HeaderValuePart::Text(text)] => text,
                _ => return None,
            },
            HeaderValue::Expression(_) => return None,
        };
        if self.name.eq_ignore_ascii_case(b"content-type") {
            return None;
        }
        let edit = match &self.action {
            HeaderAction::Set => ConstantEdit::Set(&self.name, value),
            HeaderAction::Add => ConstantEdit::Add(&self.name, value),
            HeaderAction::Unset => ConstantEdit::Unset(&self.name),
            HeaderAction::Note => return Some(None),
            _ => return None,
        };
        Some(holds.then_some(edit))
    }
}

fn has_charset(kind: &[u8]) -> bool {
    kind.to_ascii_lowercase()
        .windows(8)
        .any(|w| w == b"charset=")
}

/// Adds names to `Vary` unless it already contains them.
fn vary(table: &mut Table, names: &[u8]) {
    for name in names.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
        let there = table.get(b"Vary").unwrap_or_default();
        let has = there
            .split(|b| *b == b',')
            .any(|own| own.trim_ascii().eq_ignore_ascii_case(name));
        if !has {
            table.merge(b"Vary", name);
        }
    }
}

/// Applies `Header` or `RequestHeader` directives to one list of fields.
pub(crate) fn edit(
    engine: &RequestEngine<'_>,
    request: &EvaluatedRequest,
    lines: &[Arc<HeaderLine>],
    table: &mut Table,
    response: Option<ResponseSnapshot<'_>>,
    media_type: &mut Option<Vec<u8>>,
) -> HookResult {
    for line in lines {
        let own_type = media_type.clone().filter(|_| line.has_expression());
        let response = response.map(|response| ResponseSnapshot {
            media_type: own_type.as_deref(),
            ..response
        });
        let evaluation = || Evaluation {
            response,
            ..Evaluation::new(engine, request)
        };
        let holds = match &line.when {
            HeaderCondition::Always => true,
            HeaderCondition::Never => false,
            HeaderCondition::Env(name, wanted) => {
                environment(engine, request, name, response).is_some() == *wanted
            }
            HeaderCondition::Expression(condition) => evaluation().condition(condition)?,
        };
        if !holds {
            continue;
        }
        let is_type = response.is_some() && line.name.eq_ignore_ascii_case(b"content-type");
        let value = || value(engine, request, response, &line.value, &mut evaluation());
        match &line.action {
            HeaderAction::Set | HeaderAction::SetIfEmpty => {
                let keeps = matches!(line.action, HeaderAction::SetIfEmpty);
                if keeps && table.get(&line.name).is_some() {
                    continue;
                }
                let value = value()?;
                match is_type {
                    true => *media_type = Some(value),
                    false => table.set(&line.name, &value),
                }
            }
            HeaderAction::Add => table.add(&line.name, &value()?),
            HeaderAction::Append => table.merge(&line.name, &value()?),
            HeaderAction::Merge => {
                let value = value()?;
                let there = table.get(&line.name).unwrap_or_default();
                let has = table.get(&line.name).is_some() && has_token(there, &value);
                if !has {
                    table.merge(&line.name, &value);
                }
            }
            HeaderAction::Unset => table.unset(&line.name),
            HeaderAction::Note => {}
            HeaderAction::Echo(regex) => {
                // The result also depends on fields that another visitor may send.
                engine.dependencies.header(b"*");
                for (name, value) in engine.headers_in.iter() {
                    if regex.is_match(name)? {
                        table.add(name, value);
                    }
                }
            }
            HeaderAction::Edit(regex, everywhere) => {
                let template = value()?;
                if is_type && let Some(kind) = media_type {
                    *kind = substitute(regex, kind, &template, *everywhere)?;
                }
                let all: Vec<Vec<u8>> = table
                    .iter()
                    .filter(|(name, _)| name.eq_ignore_ascii_case(&line.name))
                    .map(|(_, value)| substitute(regex, value, &template, *everywhere))
                    .collect::<Result<_, _>>()?;
                if !all.is_empty() {
                    table.unset(&line.name);
                    for value in all {
                        table.add(&line.name, &value);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Returns an environment variable. For a script's response the request headers are variables too, except those that
/// Apache withholds from scripts (`ap_add_common_vars` in server/util_script.c).
pub(crate) fn environment<'v>(
    engine: &'v RequestEngine<'_>,
    request: &'v EvaluatedRequest,
    name: &[u8],
    response: Option<ResponseSnapshot<'_>>,
) -> Option<&'v [u8]> {
    let set = request.env.get(name);
    if set.is_some() || !response.is_some_and(|response| response.is_of_script) {
        return set;
    }
    let header: Vec<u8> = name
        .strip_prefix(b"HTTP_")?
        .iter()
        .map(|b| if *b == b'_' { b'-' } else { *b })
        .collect();
    const KEPT: [&[u8]; 5] = [
        b"authorization",
        b"proxy-authorization",
        b"proxy",
        b"content-type",
        b"content-length",
    ];
    if KEPT.iter().any(|kept| header.eq_ignore_ascii_case(kept)) {
        return None;
    }
    engine.header(&header)
}

fn value(
    engine: &RequestEngine<'_>,
    request: &EvaluatedRequest,
    response: Option<ResponseSnapshot<'_>>,
    format: &HeaderValue,
    evaluation: &mut Evaluation<'_, '_>,
) -> Result<Vec<u8>, LimitReached> {
    let parts = match format {
        HeaderValue::Expression(word) => return evaluation.word(word),
        HeaderValue::Parts(parts) => parts,
    };
    let mut out = Vec::new();
    for part in parts {
        match part {
            HeaderValuePart::Text(text) => out.extend_from_slice(text),
            HeaderValuePart::Env(name) => {
                let value = environment(engine, request, name, response).unwrap_or(b"(null)");
                out.extend(
                    value
                        .iter()
                        .map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { *b }),
                );
            }
            HeaderValuePart::Ssl(name) => match &*engine.ssl_variable(name) {
                b"" => out.extend_from_slice(b"(null)"),
                value => out.extend_from_slice(value),
            },
            HeaderValuePart::Time => {
                engine.dependencies.time();
                out.extend_from_slice(format!("t={}", engine.server.now()).as_bytes());
            }
            HeaderValuePart::Duration => {
                engine.dependencies.time();
                out.extend_from_slice(b"D=0");
            }
            HeaderValuePart::Load(b'l') => out.extend_from_slice(b"l=0.00/0.00/0.00"),
            HeaderValuePart::Load(letter) => out.extend_from_slice(&[*letter, b'=', b'0']),
        }
    }
    Ok(out)
}

/// Returns true if one of the tokens of a list is `wanted`.
fn has_token(list: &[u8], wanted: &[u8]) -> bool {
    let mut quoted = false;
    let tokens = list.split(|b| {
        quoted ^= *b == b'"';
        *b == b',' && !quoted
    });
    let mut tokens = tokens.map(<[u8]>::trim_ascii_start);
    tokens.any(|token| token == wanted)
}

fn substitute(
    regex: &Regex,
    text: &[u8],
    template: &[u8],
    everywhere: bool,
) -> Result<Vec<u8>, LimitReached> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(found) = regex.groups(rest)? {
        let Some(Some(whole)) = found.first().cloned() else {
            break;
        };
        out.extend_from_slice(&rest[..whole.start]);
        out.extend(pregsub(template, rest, &found));
        // An empty match would be found again at the same position.
        let is_empty = whole.is_empty();
        rest = &rest[whole.end..];
        if !everywhere || is_empty || out.len() > MAX_EDITED_BYTES {
            break;
        }
    }
    out.extend_from_slice(rest);
    Ok(out)
}
