//! One path and the rules' conditions on it: what matches, what variables hold, where a rule leads. Counts the
//! work.

use super::super::access_query::{AccessQuery, Lies};
use super::super::pattern::{Groups, LimitReached, Regex};
use super::super::truth::Truth;
use super::{Condition, RewriteRule, Test};
use crate::docroot::root::FileKind;

/// How many bytes a request's rules may look at, with [`STEP`] for each look; beyond it the path is refused.
/// A byte takes a nanosecond.
const MOST_WORK: usize = 1 << 20;
/// As how many bytes one counts where it is found out what the groups of an expression have matched.
const WITH_GROUPS: usize = 4;
/// What a look at no text at all counts: 32 768 looks are possible.
const STEP: usize = 32;
/// A text put together from variables and groups is not longer.
const LONGEST_TEXT: usize = 16 << 10;

/// A path on its way through the rules.
pub(super) struct Rewriting<'a, 'r> {
    asked: &'a AccessQuery<'r>,
    /// The URL path as it is now.
    path: Vec<u8>,
    /// Where in `path` the part begins that patterns see.
    stripped: usize,
    pub(super) moved: bool,
    rule_groups: (Vec<u8>, Groups),
    condition_groups: (Vec<u8>, Groups),
    /// What is left of [`MOST_WORK`].
    work: usize,
}

impl<'a, 'r> Rewriting<'a, 'r> {
    pub(super) fn new(asked: &'a AccessQuery<'r>, stripped: usize) -> Rewriting<'a, 'r> {
        Rewriting {
            asked,
            path: asked.path.to_vec(),
            stripped,
            moved: false,
            rule_groups: Default::default(),
            condition_groups: Default::default(),
            work: MOST_WORK,
        }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), LimitReached> {
        let left = self.work.checked_sub(bytes + STEP);
        self.work = left.ok_or(LimitReached)?;
        Ok(())
    }

    pub(super) fn matches(&mut self, rule: &RewriteRule) -> Result<Truth, LimitReached> {
        let subject = self.path[self.stripped..].to_vec();
        self.spend(subject.len())?;
        let groups = self.look(&rule.pattern, &subject, rule.uses_groups)?;
        if groups.is_some() == rule.negated {
            return Ok(Truth::NO);
        }
        self.rule_groups = (subject, groups.unwrap_or_default());
        self.condition_groups = Default::default();
        let mut all = Truth::YES;
        let mut any: Option<Truth> = None;
        for condition in &rule.conditions {
            let holds = match any {
                // Apache does not look at the rest of an alternative that holds.
                Some(so_far) if so_far.is_yes() => Truth::YES,
                _ => self.holds(condition, rule.uses_condition_groups)?,
            };
            let so_far = any.unwrap_or(Truth::NO).or(holds);
            if condition.or {
                any = Some(so_far);
                continue;
            }
            any = None;
            all = all.and(so_far);
            if all.is_no() {
                return Ok(all);
            }
        }
        // An `OR` behind the last condition: Apache takes the rule for matched, whatever that one says.
        Ok(all)
    }

    /// Whether `text`, which has been counted once, matches; with what its groups have matched, if asked to.
    fn look(
        &mut self,
        pattern: &Regex,
        text: &[u8],
        with_groups: bool,
    ) -> Result<Option<Groups>, LimitReached> {
        if !with_groups {
            return Ok(pattern.is_match(text)?.then(Groups::new));
        }
        self.spend(text.len() * (WITH_GROUPS - 1))?;
        pattern.groups(text)
    }

    pub(super) fn holds(
        &mut self,
        condition: &Condition,
        with_groups: bool,
    ) -> Result<Truth, LimitReached> {
        let negate = |truth: Truth| match condition.negated {
            true => truth.not(),
            false => truth,
        };
        if let Test::Is(letter) = condition.test
            && let Some(truth) = self.known_kind(&condition.text, letter)
        {
            return Ok(negate(truth));
        }
        let Some(text) = self.expand(&condition.text)? else {
            return Ok(negate(Truth::depends(false)));
        };
        let truth = match &condition.test {
            Test::Matches(regex) => {
                let groups = self.look(regex, &text, with_groups)?;
                let holds = groups.is_some();
                if let (Some(groups), false) = (groups, condition.negated) {
                    self.condition_groups = (text, groups);
                }
                Truth::known(holds)
            }
            Test::Equals(other) => {
                let other = self.expand(other)?.unwrap_or_default();
                Truth::known(match condition.ignore_case {
                    true => text.eq_ignore_ascii_case(&other),
                    false => text == other,
                })
            }
            Test::Is(letter) => self.is(&text, *letter),
            Test::Unknown => Truth::depends(false),
        };
        Ok(negate(truth))
    }

    /// The usual `%{REQUEST_FILENAME} -f` asks about what has been found already.
    fn known_kind(&self, text: &str, letter: u8) -> Option<Truth> {
        if self.moved || !matches!(text, "%{REQUEST_FILENAME}" | "%{SCRIPT_FILENAME}") {
            return None;
        }
        let lies = self.asked.lies;
        match letter {
            b'f' => Some(Truth::known(matches!(lies, Lies::File | Lies::Script))),
            b'd' => Some(Truth::known(lies == Lies::Directory)),
            b's' if lies == Lies::Nothing => Some(Truth::NO),
            b'l' | b'h' | b'L' if lies == Lies::Nothing => Some(Truth::NO),
            _ => None,
        }
    }

    fn is(&self, file: &[u8], letter: u8) -> Truth {
        let root = self.asked.root.path();
        let relative = file
            .strip_prefix(root.strip_suffix(b"/").unwrap_or(root))
            .and_then(|rest| rest.strip_prefix(b"/"));
        let Some(relative) = relative else {
            return Truth::depends(false);
        };
        let climbs = relative.split(|b| *b == b'/').any(|part| part == b"..");
        if climbs || relative.contains(&0) {
            return Truth::depends(false);
        }
        self.asked.look();
        let found = self.asked.root.stat_relative(relative);
        match letter {
            b'f' => Truth::known(found.is_ok_and(|meta| meta.kind == FileKind::File)),
            b'd' => Truth::known(found.is_ok_and(|meta| meta.kind == FileKind::Directory)),
            b's' => {
                Truth::known(found.is_ok_and(|meta| meta.kind == FileKind::File && meta.size > 0))
            }
            _ if found.is_err() => Truth::NO,
            _ => Truth::depends(false),
        }
    }

    /// The path is another than the one asked about.
    pub(super) fn is_away(&self) -> bool {
        self.path != self.asked.path && self.path != self.asked.path[..self.asked.name]
    }

    /// Whether a rule would lead elsewhere. Goes nowhere.
    pub(super) fn leads_away(&mut self, to: &str, base: &[u8]) -> Result<bool, LimitReached> {
        let before = (self.path.clone(), self.stripped, self.moved);
        let went = self.go(to, base);
        let away = self.is_away();
        (self.path, self.stripped, self.moved) = before;
        went.map(|()| away)
    }

    /// Goes where a rule leads.
    pub(super) fn go(&mut self, to: &str, base: &[u8]) -> Result<(), LimitReached> {
        self.moved = true;
        let to = self.expand(to)?.unwrap_or_default();
        let to = to.split(|b| *b == b'?').next().unwrap_or_default();
        let root = self.asked.root.path();
        if let Some(below) = to
            .strip_prefix(root)
            .filter(|below| below.starts_with(b"/"))
        {
            self.path = below.to_vec();
            self.stripped = 0;
        } else if to.starts_with(b"/") {
            self.path = to.to_vec();
            self.stripped = 0;
        } else {
            self.path = [base, to].concat();
            self.stripped = base.len();
        }
        Ok(())
    }

    /// `$1`, `%1`, `%{VARIABLE}`; `None` if one of them is not known here.
    fn expand(&mut self, text: &str) -> Result<Option<Vec<u8>>, LimitReached> {
        let mut out = Vec::with_capacity(text.len());
        let known = self.expand_into(text, &mut out)?;
        self.spend(out.len())?;
        Ok(known.map(|()| out))
    }

    fn expand_into(&self, text: &str, out: &mut Vec<u8>) -> Result<Option<()>, LimitReached> {
        let mut rest = text.as_bytes();
        while let Some((&byte, after)) = rest.split_first() {
            if out.len() > LONGEST_TEXT {
                return Err(LimitReached);
            }
            rest = after;
            match (byte, after) {
                (b'\\', [escaped, after @ ..]) => {
                    out.push(*escaped);
                    rest = after;
                }
                (b'$' | b'%', [digit @ b'0'..=b'9', after @ ..]) => {
                    let (text, groups) = match byte {
                        b'$' => &self.rule_groups,
                        _ => &self.condition_groups,
                    };
                    if let Some(Some(range)) = groups.get(usize::from(digit - b'0')) {
                        out.extend_from_slice(&text[range.clone()]);
                    }
                    rest = after;
                }
                (b'%', [b'{', after @ ..]) => {
                    let end = after.iter().position(|b| *b == b'}');
                    let known = end.and_then(|end| {
                        rest = &after[end + 1..];
                        self.variable(&after[..end], out)
                    });
                    if known.is_none() {
                        return Ok(None);
                    }
                }
                // A map.
                (b'$', [b'{', ..]) => return Ok(None),
                _ => out.push(byte),
            }
        }
        Ok(Some(()))
    }

    fn variable(&self, name: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let asked = self.asked;
        if let Some(field) = name.strip_prefix(b"HTTP:") {
            asked.head()?;
            out.extend_from_slice(asked.header(field).unwrap_or_default());
            return Some(());
        }
        let field: &[u8] = match name {
            b"REQUEST_URI" => {
                out.extend_from_slice(asked.path);
                return Some(());
            }
            b"REQUEST_FILENAME" | b"SCRIPT_FILENAME" => {
                let path = match self.moved {
                    true => &self.path,
                    false => &asked.path[..asked.name],
                };
                out.extend_from_slice(&asked.root.file_name(path));
                return Some(());
            }
            b"DOCUMENT_ROOT" => {
                out.extend_from_slice(asked.root.path());
                return Some(());
            }
            b"PATH_INFO" => {
                out.extend_from_slice(&asked.path[asked.name..]);
                return Some(());
            }
            b"REQUEST_METHOD" => {
                out.extend_from_slice(asked.method);
                return Some(());
            }
            b"QUERY_STRING" => {
                out.extend_from_slice(asked.head()?.query().unwrap_or_default());
                return Some(());
            }
            b"THE_REQUEST" => {
                let head = asked.head()?;
                let version = head.version().as_str().as_bytes();
                for part in [head.method(), b" ", head.target(), b" ", version] {
                    out.extend_from_slice(part);
                }
                return Some(());
            }
            b"ENV:REDIRECT_STATUS" => {
                if asked.redirected {
                    out.extend_from_slice(b"200");
                }
                return Some(());
            }
            b"IS_SUBREQ" => {
                out.extend_from_slice(b"false");
                return Some(());
            }
            b"SERVER_NAME" => {
                out.extend_from_slice(crate::site::host_name(asked.head()?.host()));
                return Some(());
            }
            b"HTTP_ACCEPT" => b"accept",
            b"HTTP_COOKIE" => b"cookie",
            b"HTTP_FORWARDED" => b"forwarded",
            b"HTTP_HOST" => b"host",
            b"HTTP_REFERER" => b"referer",
            b"HTTP_USER_AGENT" => b"user-agent",
            _ => return None,
        };
        asked.head()?;
        out.extend_from_slice(asked.header(field).unwrap_or_default());
        Some(())
    }
}
