//! Finds what differs between the responses of the old server and a response of Howdah.

use siphasher::sip::SipHasher13;

use super::DifferenceName;
use super::mask::BodyMask;
use super::response::{ComparedBody, ComparedResponse};

/// The length from which it matters that a body is not compressed, in bytes.
const WORTH_COMPRESSING: usize = 1024;

/// Names of media types that browsers treat alike: RFC 9239 §6 for scripts, RFC 7303 §9.2 for XML, RFC 8081 §4.4 for
/// fonts, and the registered name of icons beside the usual one.
const SAME_MEDIA_TYPES: &[&[&str]] = &[
    &[
        "text/javascript",
        "application/javascript",
        "application/x-javascript",
    ],
    &["text/xml", "application/xml"],
    &[
        "font/ttf",
        "application/x-font-ttf",
        "application/font-sfnt",
        "font/sfnt",
    ],
    &[
        "font/woff",
        "application/font-woff",
        "application/x-font-woff",
    ],
    &["font/woff2", "application/font-woff2"],
    &["image/vnd.microsoft.icon", "image/x-icon"],
];

/// A difference that has not been explained yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDifference {
    /// Its kind.
    pub name: DifferenceName,
    /// The value of the old server.
    pub old: String,
    /// The value of Howdah.
    pub new: String,
    /// Whether nothing is worse than before.
    pub is_harmless: bool,
}

/// What one request is about, which decides which differences matter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RequestPurpose {
    /// A page or a file.
    Content,
    /// A path that the old server refuses, although a file may exist there.
    Denied,
    /// A directory without an index, which the old server refuses to list. Howdah treats it as missing, so a front
    /// controller may respond; there is nothing in it that could be opened.
    Directory,
    /// A part of a file.
    Range,
    /// A response that may be compressed.
    Compression,
    /// Whether a stored copy of a file is still current.
    Validation,
}

/// The responses of the old server to one request.
#[derive(Clone, Debug)]
pub struct OldResponses {
    all: Vec<ComparedResponse>,
    mask: BodyMask,
    body_varies: bool,
}

impl OldResponses {
    /// Begins with the first response.
    pub fn new(first: ComparedResponse) -> OldResponses {
        OldResponses {
            mask: BodyMask::new(text_of(&first.body)),
            all: vec![first],
            body_varies: false,
        }
    }

    /// Adds another response to the same request.
    pub fn add(&mut self, response: ComparedResponse) {
        match (&self.all[0].body, &response.body) {
            (ComparedBody::Text(_), ComparedBody::Text(text)) => {
                self.body_varies |= !self.mask.widen(text);
            }
            (first, body) => self.body_varies |= first != body,
        }
        self.all.push(response);
    }

    /// Returns the first response.
    pub fn first(&self) -> &ComparedResponse {
        &self.all[0]
    }

    /// Returns whether the responses have too little in common for a comparison.
    pub fn vary(&self, purpose: RequestPurpose) -> bool {
        let compares_bodies = matches!(purpose, RequestPurpose::Content | RequestPurpose::Range);
        let same = self.agree(|one| &one.status) && self.agree(|one| &one.location);
        compares_bodies && self.body_varies || !same
    }

    fn agree<T: PartialEq>(&self, of: impl Fn(&ComparedResponse) -> &T) -> bool {
        self.all.iter().all(|one| of(one) == of(&self.all[0]))
    }

    /// Compares a response of Howdah. A part in which the old responses differ among themselves is only compared where
    /// it is missing.
    pub fn differences(
        &self,
        new: &ComparedResponse,
        purpose: RequestPurpose,
    ) -> Vec<FoundDifference> {
        let mut found = Findings::default();
        let old = self.first();
        if self.compare_status(new, purpose, &mut found) {
            return found.0;
        }
        match purpose {
            RequestPurpose::Denied | RequestPurpose::Directory | RequestPurpose::Validation => {}
            RequestPurpose::Compression if old.encoding.is_some() == new.encoding.is_some() => {}
            RequestPurpose::Compression => {
                // A short response becomes hardly shorter, so Howdah does not compress it.
                let is_lost = new.encoding.is_none() && length(&new.body) >= WORTH_COMPRESSING;
                found.compare(
                    DifferenceName::CompressionDiffers,
                    &old.encoding,
                    &new.encoding,
                    !is_lost,
                );
            }
            RequestPurpose::Range => {
                found.compare(DifferenceName::RangeDiffers, &old.range, &new.range, false);
                self.compare_body(new, &mut found);
            }
            RequestPurpose::Content => {
                self.compare_headers(new, &mut found);
                self.compare_body(new, &mut found);
            }
        }
        found.0
    }

    /// Compares the statuses; returns true if nothing else needs to be compared.
    fn compare_status(
        &self,
        new: &ComparedResponse,
        purpose: RequestPurpose,
        found: &mut Findings,
    ) -> bool {
        let old = self.first();
        // A failure without a name is that of a script, which has run.
        let runs = new.status >= 500 && new.howdah_error.is_none();
        let is_unlisted = purpose == RequestPurpose::Directory && matches!(old.status, 403 | 404);
        let was_denied = matches!(old.status, 401 | 403) && !is_unlisted
            || purpose == RequestPurpose::Denied && old.refuses();
        let harmless = match (old.status, new.status) {
            (one, other) if one == other => {
                return old.refuses() && purpose == RequestPurpose::Denied;
            }
            _ if was_denied && (new.serves() || runs) => {
                found.status(DifferenceName::OpensDenied, old, new, false);
                return true;
            }
            (500.., 500..) => return true,
            (_, 200..=299) if is_unlisted => true,
            (_, 500..) => {
                found.status(DifferenceName::ServerError, old, new, false);
                return true;
            }
            // Which of these statuses refuses a request makes no difference to visitors.
            (403 | 404 | 410, 403 | 404 | 410) => true,
            // The old server does not deny the path after all, and Howdah does not send the file either.
            (_, ..500) if purpose == RequestPurpose::Denied && !old.refuses() && !new.serves() => {
                true
            }
            (200, 304) if purpose == RequestPurpose::Validation => true,
            (200, 206) if purpose == RequestPurpose::Range => true,
            _ => false,
        };
        let name = match purpose {
            RequestPurpose::Range => DifferenceName::RangeDiffers,
            RequestPurpose::Validation => DifferenceName::ValidatorsDiffer,
            _ => DifferenceName::StatusDiffers,
        };
        found.status(name, old, new, harmless);
        true
    }

    fn compare_headers(&self, new: &ComparedResponse, found: &mut Findings) {
        let old = self.first();
        if self.agree(|one| &one.location) {
            found.compare(
                DifferenceName::LocationDiffers,
                &old.location,
                &new.location,
                false,
            );
        }
        if old.status < 300 {
            self.compare_media_type(new, found);
        }
        if self.agree(|one| &one.authentication) {
            found.compare(
                DifferenceName::AuthenticationDiffers,
                &old.authentication,
                &new.authentication,
                old.authentication.is_none(),
            );
        }
        if old.certificate != new.certificate {
            found.add(
                DifferenceName::CertificateDiffers,
                shown_certificate(old),
                shown_certificate(new),
                false,
            );
        }
        self.compare_security(new, found);
        self.compare_storage(new, found);
    }

    /// Compares what browsers store: cookies, and for how long they keep a response.
    fn compare_storage(&self, new: &ComparedResponse, found: &mut Findings) {
        let old = self.first();
        if self.agree(|one| &one.cookies) {
            let names =
                |cookies: &[String]| Some(cookies.join(", ")).filter(|text| !text.is_empty());
            found.compare(
                DifferenceName::CookiesDiffer,
                &names(&old.cookies),
                &names(&new.cookies),
                false,
            );
        }
        if old.status < 400 && self.agree(|one| &one.cache_control) {
            found.compare(
                DifferenceName::CacheControlDiffers,
                &old.cache_control,
                &new.cache_control,
                false,
            );
        }
        if old.status == 200 && old.etag.is_some() != new.etag.is_some() {
            let is_lost = old.etag.is_some();
            found.compare(
                DifferenceName::ValidatorsDiffer,
                &old.etag,
                &new.etag,
                !is_lost,
            );
        }
    }

    fn compare_media_type(&self, new: &ComparedResponse, found: &mut Findings) {
        let old = self.first();
        let with_charset = |one: &ComparedResponse| {
            let kind = one.media_type.clone()?;
            Some(match &one.charset {
                Some(charset) => format!("{kind}; charset={charset}"),
                None => kind,
            })
        };
        let same_charset =
            old.charset.is_none() || new.charset.is_none() || old.charset == new.charset;
        if old.media_type == new.media_type && same_charset {
            return;
        }
        let kinds = [&old.media_type, &new.media_type];
        let is_in = |names: &&[&str]| {
            let known =
                |kind: &&Option<String>| kind.as_deref().is_some_and(|kind| names.contains(&kind));
            kinds.iter().all(known)
        };
        let harmless = same_charset && SAME_MEDIA_TYPES.iter().any(is_in);
        found.compare(
            DifferenceName::ContentTypeDiffers,
            &with_charset(old),
            &with_charset(new),
            harmless,
        );
    }

    fn compare_security(&self, new: &ComparedResponse, found: &mut Findings) {
        // Howdah omits headers about the content of a page from its own error pages.
        if new.howdah_error.is_some() && self.first().is_own_error_page {
            return;
        }
        for (index, (name, old)) in self.first().security.iter().enumerate() {
            let varies = !self.agree(|one| &one.security[index]);
            let new = &new.security[index].1;
            if old == new || varies && new.is_some() {
                continue;
            }
            // Browsers ignore this header without TLS, where Howdah does not send it (RFC 6797, section 8.1).
            let is_ignored =
                *name == "strict-transport-security" && self.first().certificate.is_none();
            let shown = |value: &Option<String>| Some(format!("{name}: {}", value.as_ref()?));
            found.compare(
                DifferenceName::SecurityHeaderDiffers,
                &shown(old),
                &shown(new),
                old.is_none() || is_ignored,
            );
        }
    }

    fn compare_body(&self, new: &ComparedResponse, found: &mut Findings) {
        let old = self.first();
        let is_redirect = (300..400).contains(&old.status);
        let both_own = old.is_own_error_page && new.is_own_error_page;
        if is_redirect || both_own || self.body_varies {
            return;
        }
        match (&old.body, &new.body) {
            (ComparedBody::Text(_), ComparedBody::Text(text)) => {
                if let Some(at) = self.mask.mismatch(text) {
                    found.add(DifferenceName::BodyDiffers, at.old, at.new, false);
                }
            }
            (one, other) if one != other => {
                found.add(
                    DifferenceName::BodyDiffers,
                    describe(one),
                    describe(other),
                    false,
                );
            }
            _ => {}
        }
    }
}

/// Returns a short text that identifies a certificate.
fn shown_certificate(response: &ComparedResponse) -> String {
    let shown = |bytes: &Vec<u8>| format!("certificate {:016x}", SipHasher13::new().hash(bytes));
    response.certificate.as_ref().map(shown).unwrap_or_default()
}

fn text_of(body: &ComparedBody) -> &str {
    match body {
        ComparedBody::Text(text) => text,
        ComparedBody::Bytes(_) => "",
    }
}

fn length(body: &ComparedBody) -> usize {
    match body {
        ComparedBody::Text(text) => text.len(),
        ComparedBody::Bytes(bytes) => bytes.len(),
    }
}

fn describe(body: &ComparedBody) -> String {
    format!("{} bytes", length(body))
}

#[derive(Default)]
struct Findings(Vec<FoundDifference>);

impl Findings {
    fn add(&mut self, name: DifferenceName, old: String, new: String, is_harmless: bool) {
        self.0.push(FoundDifference {
            name,
            old,
            new,
            is_harmless,
        });
    }

    fn compare(
        &mut self,
        name: DifferenceName,
        old: &Option<String>,
        new: &Option<String>,
        is_harmless: bool,
    ) {
        if old != new {
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            self.add(name, text(old), text(new), is_harmless);
        }
    }

    fn status(
        &mut self,
        name: DifferenceName,
        old: &ComparedResponse,
        new: &ComparedResponse,
        is_harmless: bool,
    ) {
        let shown = |one: &ComparedResponse| match (&one.howdah_error, &one.location) {
            (Some(name), _) => format!("{} {name}", one.status),
            (None, Some(location)) => format!("{} to {location}", one.status),
            (None, None) => one.status.to_string(),
        };
        self.add(name, shown(old), shown(new), is_harmless);
    }
}

#[cfg(test)]
mod tests;
