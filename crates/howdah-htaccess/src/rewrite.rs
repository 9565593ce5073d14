//! mod_rewrite in the context of a directory: applies rules and conditions to a request and acts on the result.

mod expand;

use std::sync::Arc;

use crate::decision::HtaccessRefusal;
use crate::engine::{HookError, HookResult, RequestEngine};
use crate::evaluate::{Evaluation, lexicography};
use crate::pattern::Groups;
use crate::request::{EvaluatedRequest, Handler, Stat};
use crate::rules::{Cond, NumberTest, RewriteSettings, Rule, Test, TextTest};
use crate::text::{self, absolute_uri, escape_uri, lossy, number};

/// Twice the maximum length of a request line, in bytes. A longer result comes from a loop.
const MAX_REWRITTEN_BYTES: usize = 2 * 8190;
/// The maximum number of rules tried for a request, including those of its internal redirects.
const MAX_TRIED_RULES: u32 = 200_000;

/// The effect of a list of rules.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RulesEffect {
    Nothing,
    Changed,
    /// Changed, and the last change must not be escaped.
    Unescaped,
}

/// The state of a list of rules while it runs.
#[derive(Default)]
pub(crate) struct RuleContext {
    /// The directory as a file name, with a trailing slash.
    directory: Arc<[u8]>,
    base: Option<String>,
    /// The text that the rule's pattern is matched against.
    uri: Vec<u8>,
    /// The text and groups that the rule and the last condition have matched.
    rule_match: Option<(Vec<u8>, Groups)>,
    cond_match: Option<(Vec<u8>, Groups)>,
    /// The request headers that conditions have read.
    vary: Vec<Vec<u8>>,
    vary_this: Vec<Vec<u8>>,
}

/// The result of trying a rule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RuleResult {
    NotMatched,
    /// The request was changed as the rule says.
    Applied,
    /// The rule redirects, which a site that routes its requests itself does not do. The request is unchanged.
    PassedOver,
}

impl RequestEngine<'_> {
    pub(crate) fn rewrite(&mut self, request: &mut EvaluatedRequest) -> HookResult {
        let Some(conf) = request.config.rewrite.clone() else {
            return Ok(());
        };
        if conf.engine != Some(true) {
            return Ok(());
        }
        // For a directory named without its trailing slash, mod_dir redirects first.
        let no_slash = conf.options.unwrap_or_default() & RewriteSettings::NO_SLASH != 0;
        if !no_slash && conf.directory.strip_suffix(b"/") == Some(&request.filename[..]) {
            return Ok(());
        }
        if request.ended {
            return Ok(());
        }
        if request
            .config
            .core
            .as_ref()
            .is_some_and(|core| !core.options.allow_links())
        {
            return Err(HookError::Status(403, HtaccessRefusal::Denied));
        }
        let (filename, args) = (request.filename.clone(), request.args.clone());
        let done = self.apply_rules(request, &conf)?;
        if done == RulesEffect::Nothing {
            request.filename = filename;
            return Ok(());
        }
        if request.refusals_only {
            // The following hooks must see the path that the client requested.
            request.is_led_elsewhere =
                request.filename != filename && request.filename != request.uri;
            request.filename = filename;
            return Ok(());
        }
        self.settle(request, &conf, done, &filename, args)
    }

    /// Acts on a changed file name.
    fn settle(
        &self,
        request: &mut EvaluatedRequest,
        conf: &RewriteSettings,
        done: RulesEffect,
        before: &[u8],
        args_before: Option<Vec<u8>>,
    ) -> HookResult {
        let (scheme, _) = absolute_uri(&request.filename);
        let escapes = scheme > 0 && done == RulesEffect::Changed;
        let raw = |args: &Vec<u8>| args.iter().any(|b| b.is_ascii_control() || *b == b' ');
        if !escapes && request.args.as_ref().is_some_and(raw) {
            return Err(HookError::Status(403, HtaccessRefusal::Denied));
        }
        if request.filename.starts_with(b"proxy:") {
            return Err(HookError::Status(403, HtaccessRefusal::Unsupported));
        }
        if scheme > 0 {
            return self.redirect_outside(request, conf, done, scheme, &args_before);
        }
        if !request.filename.starts_with(b"/") {
            return Err(HookError::Status(400, HtaccessRefusal::BadPath));
        }
        if request.filename == before {
            return Ok(());
        }
        let root = self.input.document_root.to_vec();
        request.filename = match &conf.base {
            Some(base) => substitute_prefix(&request.filename, &conf.directory, base.as_bytes()),
            None => match request.filename.strip_prefix(&root[..]) {
                Some(below) if below.starts_with(b"/") => below.to_vec(),
                _ => request.filename.clone(),
            },
        };
        request.handler = Handler::Redirect;
        Ok(())
    }

    fn redirect_outside(
        &self,
        request: &mut EvaluatedRequest,
        conf: &RewriteSettings,
        done: RulesEffect,
        scheme: usize,
        args_before: &Option<Vec<u8>>,
    ) -> HookResult {
        let mut to = std::mem::take(&mut request.filename);
        let slash = to[scheme..].iter().position(|b| *b == b'/');
        if let (Some(base), Some(slash)) = (&conf.base, slash) {
            let path = scheme + slash + 1;
            if path < to.len() {
                let directory = conf.directory.strip_prefix(b"/").unwrap_or(&conf.directory);
                let replaced = substitute_prefix(&to[path..], directory, &base.as_bytes()[1..]);
                to.truncate(path);
                to.extend(replaced);
            }
        }
        if done == RulesEffect::Changed {
            to = escape_absolute(&to, scheme);
        }
        if let Some(args) = &request.args {
            to.push(b'?');
            match done == RulesEffect::Unescaped || Some(args) == args_before.as_ref() {
                true => to.extend_from_slice(args),
                false => to.extend(escape_uri(args)),
            }
        }
        let status = match request.status {
            300..=399 => std::mem::replace(&mut request.status, 200),
            _ => 302,
        };
        request.headers_out.set(b"Location", &to);
        Err(HookError::Status(status, HtaccessRefusal::Status))
    }

    fn apply_rules(
        &mut self,
        request: &mut EvaluatedRequest,
        conf: &RewriteSettings,
    ) -> HookResult<RulesEffect> {
        let mut done = RulesEffect::Nothing;
        let mut context = RuleContext {
            directory: conf.directory.clone(),
            base: conf.base.clone(),
            ..RuleContext::default()
        };
        let mut round = 1;
        let mut at = 0;
        while let Some(rule) = conf.rules.get(at) {
            let flags = &rule.flags;
            at += 1;
            if request.is_sub && (flags.no_sub_request || flags.redirect)
                || request.refusals_only && rule.only_redirects()
            {
                continue;
            }
            self.rules.set(self.rules.get() + 1);
            if self.rules.get() > MAX_TRIED_RULES {
                return Err(HookError::Status(500, HtaccessRefusal::Loop));
            }
            context.vary.clear();
            let result = self.apply_rule(request, rule, &mut context)?;
            if result == RuleResult::PassedOver {
                continue;
            }
            if result == RuleResult::NotMatched {
                // A rule that does not match also skips the rules that are chained to it.
                let mut chained = flags.chain;
                while chained && at < conf.rules.len() {
                    chained = conf.rules[at].flags.chain;
                    at += 1;
                }
                continue;
            }
            if request.filename.len() > MAX_REWRITTEN_BYTES {
                return Err(HookError::Status(500, HtaccessRefusal::Loop));
            }
            for name in std::mem::take(&mut context.vary) {
                request.headers_out.merge(b"Vary", &name);
            }
            self.trace_match(request, rule);
            if flags.status {
                self.record_decision(&rule.origin);
                return Err(self.forced_status(request, rule));
            }
            if !flags.no_sub {
                self.record_decision(&rule.origin);
                done = match flags.no_escape {
                    true => RulesEffect::Unescaped,
                    false => RulesEffect::Changed,
                };
            }
            if flags.pass_through {
                if absolute_uri(&request.filename).0 > 0 {
                    return Err(HookError::Status(400, HtaccessRefusal::BadPath));
                }
                done = RulesEffect::Changed;
                break;
            }
            if flags.end {
                request.ended = true;
                break;
            }
            if flags.proxy || flags.last {
                break;
            }
            if let Some(most) = flags.next {
                round += 1;
                if round >= most {
                    return Err(HookError::Status(500, HtaccessRefusal::Loop));
                }
                at = 0;
            } else {
                at += flags.skip;
            }
        }
        Ok(done)
    }

    /// Returns the error that ends the request with a rule's own status.
    fn forced_status(&self, request: &mut EvaluatedRequest, rule: &Rule) -> HookError {
        request.status = 200;
        let refusal = match rule.flags.code {
            403 | 404 | 410 => HtaccessRefusal::Denied,
            _ => HtaccessRefusal::Status,
        };
        HookError::Status(rule.flags.code, refusal)
    }

    fn apply_rule(
        &mut self,
        request: &mut EvaluatedRequest,
        rule: &Rule,
        context: &mut RuleContext,
    ) -> HookResult<RuleResult> {
        let flags = &rule.flags;
        let mut uri = [&request.filename[..], &request.path_info].concat();
        if uri.starts_with(&context.directory) {
            uri.drain(..context.directory.len());
        }
        context.uri = uri;
        let found = self.groups(&rule.regex, &context.uri)?;
        if found.is_some() == flags.negated {
            let uri = &context.uri;
            let message = || format!("does not match `{}`", lossy(uri));
            self.server.trace(rule.origin.as_deref(), &message);
            return Ok(RuleResult::NotMatched);
        }
        context.vary_this.clear();
        context.cond_match = None;
        context.rule_match = found.map(|found| (context.uri.clone(), found));
        if let Some(failed) = self.condition_that_fails(request, &rule.conditions, context)? {
            let message = || {
                let input = rule.conditions.get(failed).map(|cond| lossy(&cond.input));
                let input = input.unwrap_or_default();
                format!("its condition {} on {input} does not hold", failed + 1)
            };
            self.server.trace(rule.origin.as_deref(), &message);
            return Ok(RuleResult::NotMatched);
        }
        let mut new = None;
        if !flags.no_sub {
            let (text, from_request) = self.expand(request, context, &rule.output, Some(rule));
            // With `refusals_only`, the site does not use the new text.
            if from_request && !flags.unsafe_allow_3f && !request.refusals_only {
                request.status = 403;
                return Err(HookError::Status(403, HtaccessRefusal::Denied));
            }
            new = Some(text);
        }
        self.expand_env(request, context, rule);
        self.expand_cookies(request, context, rule);
        let Some(mut new) = new else {
            self.remember_types(request, context, rule);
            return Ok(RuleResult::Applied);
        };
        if request.refusals_only && !flags.proxy && (flags.redirect || self.leaves_site(&new)) {
            let message = || "matches, but this site does not redirect".to_owned();
            self.server.trace(rule.origin.as_deref(), &message);
            return Ok(RuleResult::PassedOver);
        }
        let mut prefixed = false;
        if !new.starts_with(b"/") && absolute_uri(&new).0 == 0 {
            new = [&context.directory[..], &new].concat();
            prefixed = true;
        }
        request.filename = new;
        if flags.discard_path_info {
            request.path_info.clear();
        }
        split_query(request, rule);
        if flags.proxy {
            let qualified = self.qualified(&request.filename);
            request.filename = [&b"proxy:"[..], &qualified].concat();
            return Ok(RuleResult::Applied);
        }
        if flags.redirect {
            request.filename = self.qualified(&request.filename);
            request.status = flags.code;
            return Ok(RuleResult::Applied);
        }
        if let Some(path) = self.own_path(&request.filename) {
            request.filename = path;
        }
        if absolute_uri(&request.filename).0 > 0 {
            request.status = flags.code;
            return Ok(RuleResult::Applied);
        }
        if !flags.unc && !prefixed && !rule.output.starts_with(b"//") {
            let doubled = request
                .filename
                .windows(2)
                .take_while(|w| *w == b"//")
                .count();
            request.filename.drain(..doubled);
        }
        self.remember_types(request, context, rule);
        Ok(RuleResult::Applied)
    }

    /// Traces how the rule changed the request.
    fn trace_match(&self, request: &EvaluatedRequest, rule: &Rule) {
        let message = || match (&rule.flags, &request.args) {
            (flags, _) if flags.status => format!("matches: {}", flags.code),
            (flags, _) if flags.no_sub => "matches, and does not change the path".to_owned(),
            (_, Some(args)) => {
                format!("matches: {}?{}", lossy(&request.filename), lossy(args))
            }
            (_, None) => format!("matches: {}", lossy(&request.filename)),
        };
        self.server.trace(rule.origin.as_deref(), &message);
    }

    /// Returns the index of the first condition that keeps the rule from being applied, or `None` if all conditions
    /// hold.
    fn condition_that_fails(
        &mut self,
        request: &mut EvaluatedRequest,
        list: &[Cond],
        context: &mut RuleContext,
    ) -> HookResult<Option<usize>> {
        let mut at = 0;
        while let Some(cond) = list.get(at) {
            let holds = self.condition_holds(request, cond, context)?;
            if cond.no_vary {
                context.vary_this.clear();
            }
            if cond.or_next && !holds {
                context.vary_this.clear();
                at += 1;
                continue;
            }
            if cond.or_next {
                // The remaining alternatives of the `OR` are skipped.
                while list.get(at).is_some_and(|cond| cond.or_next) {
                    at += 1;
                }
            } else if !holds {
                return Ok(Some(at));
            }
            context.vary.append(&mut context.vary_this);
            at += 1;
        }
        Ok(None)
    }

    fn condition_holds(
        &mut self,
        request: &mut EvaluatedRequest,
        cond: &Cond,
        context: &mut RuleContext,
    ) -> HookResult<bool> {
        if let Test::Expression(condition) = &*cond.test {
            let mut evaluation = Evaluation::new(self, request);
            let holds = evaluation.condition(condition)?;
            let matched = evaluation.matched.take();
            context.vary_this.append(&mut evaluation.vary);
            if holds && !cond.negated {
                context.cond_match = matched;
            }
            return Ok(holds != cond.negated);
        }
        let input = self.expand(request, context, &cond.input, None).0;
        let stat = || self.server.stat(&input);
        let holds = match &*cond.test {
            Test::Regex(regex) => {
                let found = self.groups(regex, &input)?;
                let holds = found.is_some();
                if let (Some(found), false) = (found, cond.negated) {
                    context.cond_match = Some((input, found));
                }
                holds
            }
            Test::File(b'f') => stat() == Stat::File,
            Test::File(b'd') => stat() == Stat::Directory,
            Test::File(b's') => self.server.length(&input).is_some_and(|length| length > 0),
            Test::File(b'x') => self.server.is_executable(&input),
            Test::File(b'l') => self.server.is_link(&input),
            Test::File(b'F') => self.file_is_accessible(request, &input),
            Test::File(_) => self.url_is_accessible(request, &input),
            Test::Text(test, pattern) => text_holds(*test, &input, pattern, cond.no_case),
            Test::Number(test, wanted) => {
                let value = number(&input);
                match test {
                    NumberTest::Less => value < *wanted,
                    NumberTest::LessOrEqual => value <= *wanted,
                    NumberTest::Equal => value == *wanted,
                    NumberTest::GreaterOrEqual => value >= *wanted,
                    NumberTest::Greater => value > *wanted,
                }
            }
            Test::Expression(_) => false,
        };
        Ok(holds != cond.negated)
    }

    /// Returns the URL with scheme and host, which are added if they are missing.
    fn qualified(&self, to: &[u8]) -> Vec<u8> {
        if absolute_uri(to).0 > 0 {
            return to.to_vec();
        }
        let slash: &[u8] = if to.starts_with(b"/") { b"" } else { b"/" };
        [&self.input.origin(), slash, to].concat()
    }

    /// Returns true for an absolute URL of another site.
    fn leaves_site(&self, url: &[u8]) -> bool {
        let url = url.split(|b| *b == b'?').next().unwrap_or_default();
        absolute_uri(url).0 > 0 && self.own_path(url).is_none()
    }

    /// Returns the path of an absolute URL whose scheme and host are those of the request.
    fn own_path(&self, url: &[u8]) -> Option<Vec<u8>> {
        let scheme: &[u8] = if self.input.https {
            b"https://"
        } else {
            b"http://"
        };
        if url.len() <= scheme.len() || !url[..scheme.len()].eq_ignore_ascii_case(scheme) {
            return None;
        }
        let rest = &url[scheme.len()..];
        let end = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = match authority.iter().position(|b| *b == b':') {
            Some(colon) => (&authority[..colon], number(&authority[colon + 1..])),
            None => (authority, if self.input.https { 443 } else { 80 }),
        };
        // The site's port is the port that the client connected to.
        let is_ours = host.eq_ignore_ascii_case(self.input.host_name())
            && port == i64::from(self.input.server_port);
        is_ours.then(|| match path {
            b"" => b"/".to_vec(),
            path => path.to_vec(),
        })
    }
}

fn text_holds(test: TextTest, input: &[u8], pattern: &[u8], no_case: bool) -> bool {
    let order = match no_case {
        true => input
            .to_ascii_lowercase()
            .cmp(&pattern.to_ascii_lowercase()),
        false if test == TextTest::Equal => input.cmp(pattern),
        false => lexicography(input, pattern),
    };
    match test {
        TextTest::Less => order.is_lt(),
        TextTest::LessOrEqual => order.is_le(),
        TextTest::Equal => order.is_eq(),
        TextTest::GreaterOrEqual => order.is_ge(),
        TextTest::Greater => order.is_gt(),
    }
}

/// Splits the query from a substitution.
fn split_query(request: &mut EvaluatedRequest, rule: &Rule) {
    let flags = &rule.flags;
    if flags.no_query {
        request.args = None;
        return;
    }
    let (skip, has_query) = absolute_uri(&request.filename);
    if skip > 0 && !has_query {
        request.args = None;
        return;
    }
    if flags.discard_query {
        request.args = None;
    }
    let rest = &request.filename[skip..];
    let mark = match flags.last_query {
        true => rest.iter().rposition(|b| *b == b'?'),
        false => rest.iter().position(|b| *b == b'?'),
    };
    let Some(mark) = mark else { return };
    let own = request.filename.split_off(skip + mark)[1..].to_vec();
    match flags.append_query {
        true if own.is_empty() => {}
        true => {
            let old = request.args.take().unwrap_or_default();
            request.args = Some([&own, &b"&"[..], &old].concat());
        }
        false => request.args = Some(own),
    }
    if let Some(args) = &mut request.args {
        if args.last() == Some(&b'&') {
            args.pop();
        } else if args.is_empty() {
            request.args = None;
        }
    }
}

/// Replaces the directory `from` at the start of `text` by `to`.
fn substitute_prefix(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let from = from.strip_suffix(b"/").unwrap_or(from);
    match text.strip_prefix(from) {
        Some(rest) if rest.starts_with(b"/") => {
            let slash: &[u8] = match to {
                [] => b"",
                to if to.ends_with(b"/") => b"",
                _ => b"/",
            };
            [to, slash, &rest[1..]].concat()
        }
        _ => text.to_vec(),
    }
}

/// Escapes the part of an absolute URL after its host.
fn escape_absolute(url: &[u8], scheme: usize) -> Vec<u8> {
    let mut start = scheme;
    if url[..scheme].ends_with(b"/") {
        match url[scheme..].iter().position(|b| *b == b'/') {
            Some(slash) if scheme + slash + 1 < url.len() => start = scheme + slash + 1,
            _ => return url.to_vec(),
        }
    }
    [&url[..start], &text::escape_uri(&url[start..])].concat()
}
