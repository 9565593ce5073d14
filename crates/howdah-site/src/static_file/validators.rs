//! Entity tags, modification dates, and preconditions in the order of RFC 9110 §13.2.2. The functions are pure; the
//! caller passes the time.
//!
//! **The tag** is `"SECONDS.NANOSECONDS-SIZE"` of the content's last change, in hexadecimal, like the tag of nginx but
//! with nanoseconds: two changes within one second get two tags, so the tag is strong (§8.8.1). The inode is not
//! included, so hosts behind one load balancer have the same tags for files deployed with their times (`rsync -t`,
//! `tar`); Apache dropped it for that reason too (2.3.15). A file that changed so recently that its next change could
//! have the same time has no tag yet.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use howdah_http::message::RequestHead;

use crate::docroot::root::FileMeta;

/// The longest tick of the clock with which the kernel stamps files (`CONFIG_HZ=100`), doubled.
const CLOCK_TICK: Duration = Duration::from_millis(20);
/// The longest tick of file systems without nanoseconds (FAT: two seconds).
const COARSE_CLOCK_TICK: Duration = Duration::from_secs(2);

/// Returns whether no later change of the file can have the same times, so they identify its content.
pub fn is_settled(meta: &FileMeta, now: SystemTime) -> bool {
    let coarse = meta.mtime.1 == 0 && meta.ctime.1 == 0;
    let settles = if coarse {
        COARSE_CLOCK_TICK
    } else {
        CLOCK_TICK
    };
    // The later of the two is used. Times before 1970 are old enough.
    let (seconds, nanoseconds) = meta.mtime.max(meta.ctime);
    let since_epoch = Duration::new(u64::try_from(seconds).unwrap_or(0), nanoseconds);
    now.duration_since(UNIX_EPOCH + since_epoch)
        .is_ok_and(|age| age >= settles)
}

/// The validators of a representation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validators {
    /// The strong entity tag; `None` while the file is too young for one.
    pub etag: Option<Vec<u8>>,
    /// `Last-Modified`, in whole seconds since 1970.
    pub last_modified: u64,
}

impl Validators {
    /// Returns the validators of a file. `suffix` distinguishes the codings of one resource.
    pub fn of(meta: &FileMeta, suffix: &str, now: SystemTime) -> Validators {
        let (seconds, nanoseconds) = meta.mtime;
        Validators {
            etag: is_settled(meta, now)
                .then(|| format!("\"{seconds:x}.{nanoseconds:x}-{:x}{suffix}\"", meta.size).into()),
            // RFC 9110 §8.8.2.1 forbids a time in the future.
            last_modified: u64::try_from(seconds)
                .unwrap_or(0)
                .min(now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()),
        }
    }

    /// Returns the value of `Last-Modified`.
    pub fn http_date(&self) -> String {
        httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(self.last_modified))
    }
}

/// The request headers that determine the response for a file, found in one pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Preconditions<'r> {
    /// Whether any precondition header is present.
    any: bool,
    if_match: bool,
    if_none_match: bool,
    if_unmodified_since: Option<&'r [u8]>,
    if_modified_since: Option<&'r [u8]>,
    /// The value of `Range`, for GET (RFC 9110 §14.2).
    pub range: Option<&'r [u8]>,
    if_range: Option<&'r [u8]>,
    /// Whether there is an `Accept-Encoding`.
    pub accept_encoding: bool,
}

/// The result of a request's preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreconditionResult {
    /// Respond as if there were no preconditions.
    Send,
    /// Respond with a 304.
    NotModified,
    /// Respond with a 412.
    PreconditionFailed,
}

impl<'r> Preconditions<'r> {
    /// Reads the preconditions of a request.
    pub fn of(head: &'r RequestHead) -> Preconditions<'r> {
        let mut found = Preconditions::default();
        for (name, value) in head.headers() {
            match name.first().map(u8::to_ascii_lowercase) {
                Some(b'i') if name.len() > 7 => found.precondition(name, value),
                Some(b'r') if name.eq_ignore_ascii_case(b"range") && head.method() == b"GET" => {
                    found.range = Some(value);
                }
                Some(b'a') if name.eq_ignore_ascii_case(b"accept-encoding") => {
                    found.accept_encoding = true;
                }
                _ => {}
            }
        }
        found
    }

    fn precondition(&mut self, name: &[u8], value: &'r [u8]) {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        if is(b"if-match") {
            self.if_match = true;
        } else if is(b"if-none-match") {
            self.if_none_match = true;
        } else if is(b"if-modified-since") {
            self.if_modified_since = Some(value);
        } else if is(b"if-unmodified-since") {
            self.if_unmodified_since = Some(value);
        } else if is(b"if-range") {
            self.if_range = Some(value);
            return;
        } else {
            return;
        }
        self.any = true;
    }

    /// Evaluates RFC 9110 §13.2.2, steps 1 to 4, for a GET or HEAD of an existing file.
    pub fn evaluate(&self, head: &RequestHead, validators: &Validators) -> PreconditionResult {
        if !self.any {
            return PreconditionResult::Send;
        }
        if self.if_match {
            // Step 1: strong comparison.
            if !list_contains_tag(head, b"if-match", validators, false) {
                return PreconditionResult::PreconditionFailed;
            }
        } else if let Some(date) = self.if_unmodified_since.and_then(parse_date)
            && validators.last_modified > date
        {
            // Step 2. An invalid date is ignored (§13.1.4).
            return PreconditionResult::PreconditionFailed;
        }
        if self.if_none_match {
            // Step 3: weak comparison.
            if list_contains_tag(head, b"if-none-match", validators, true) {
                return PreconditionResult::NotModified;
            }
        } else if let Some(date) = self.if_modified_since.and_then(parse_date)
            && validators.last_modified <= date
        {
            // Step 4.
            return PreconditionResult::NotModified;
        }
        PreconditionResult::Send
    }

    /// Step 5: returns whether `Range` applies. A tag is compared strongly. A date must match exactly (§13.1.5), and is
    /// strong only once the second that it names has passed, which is the case if the file has a tag.
    pub fn range_applies(&self, validators: &Validators) -> bool {
        match self.if_range {
            None => true,
            Some(tag) if tag.starts_with(b"\"") => validators.etag.as_deref() == Some(tag),
            Some(tag) if tag.starts_with(b"W/") => false,
            Some(date) => {
                validators.etag.is_some() && parse_date(date) == Some(validators.last_modified)
            }
        }
    }
}

/// Returns whether a list of entity tags contains the representation's, or is `*`.
fn list_contains_tag(head: &RequestHead, name: &[u8], validators: &Validators, weak: bool) -> bool {
    head.header_all(name).any(|list| {
        list.trim_ascii() == b"*"
            || entity_tags(list)
                .any(|(is_weak, tag)| (weak || !is_weak) && validators.etag.as_deref() == Some(tag))
    })
}

/// Returns the tags of a list: whether each is weak, and the opaque tag with its quotes. Stops where the text is not a
/// list, since the rest cannot be interpreted.
fn entity_tags(list: &[u8]) -> impl Iterator<Item = (bool, &[u8])> {
    let mut rest = list;
    std::iter::from_fn(move || {
        while let Some((b' ' | b'\t' | b',', after)) = rest.split_first() {
            rest = after;
        }
        let (is_weak, after) = match rest.strip_prefix(b"W/") {
            Some(after) => (true, after),
            None => (false, rest),
        };
        let inner = after.strip_prefix(b"\"")?;
        let end = inner.iter().position(|b| *b == b'"')?;
        let (tag, after) = after.split_at(end + 2);
        rest = after;
        Some((is_weak, tag))
    })
}

/// Parses any of the three forms of RFC 9110 §5.6.7 into seconds since 1970.
fn parse_date(text: &[u8]) -> Option<u64> {
    let time = httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
#[path = "validators_tests.rs"]
mod tests;
