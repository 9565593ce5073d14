//! A stored response: its headers, its plain body, its freshness, and the encoded forms that are made of it on first
//! demand. It is created only from a [`Storable`] and is immutable except for these forms.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::esi::{self, DeflatedTexts, EsiPart};
use crate::field;
use crate::generation::{Generations, PageValidity};
use crate::pass::Pass;
use crate::policy::{Freshness, PageState, Storable};
use crate::{HeaderFields, Millis};

/// The number of content codings in which a body may be kept in addition to the plain one.
pub const CODING_COUNT: usize = 3;

/// Estimated bytes of the structures around a page, the plain form's own lines and the allocator's overhead.
const PAGE_OVERHEAD_BYTES: usize = 1024;
/// Estimated bytes of the structures for a part of a page with ESI tags.
const ESI_PART_OVERHEAD_BYTES: usize = 256;

/// A form of a response that is ready to be sent.
#[derive(Debug)]
pub struct ResponseForm {
    /// The part of the header block that never changes, in the format of the caller that made the form.
    pub head: Bytes,
    /// The body as it is sent in this form: plain, or encoded.
    pub body: Bytes,
    /// For the plain form: whether it may be sent encoded to clients.
    pub encodable: bool,
}

/// A stored response. Its content never changes; encoded forms are added when they are first requested.
#[derive(Debug)]
pub struct Object {
    /// The response's status code.
    pub status: u16,
    /// A reason phrase that differs from the usual one.
    pub reason: Vec<u8>,
    /// The header fields, each as `Name: value\r\n`.
    pub lines: Bytes,
    /// The body without a content coding.
    pub body: Bytes,
    /// `Date`: when the response was made.
    pub date: Millis,
    /// How long the page may be served, and how long when it is stale.
    pub freshness: Freshness,
    /// The generation in which the page was born.
    pub born: u64,
    /// The tags that the response gave itself, by which it can be purged.
    pub tags: Vec<Vec<u8>>,
    /// The URL's key, without the variant.
    pub url_key: Vec<u8>,
    /// The last purge by name with which the page was compared. Older ones are not checked again, so a hit costs the
    /// same after any number of purges and with any number of tags.
    compared_up_to: AtomicU64,
    /// The plain form, then the encoded ones, each made when it is first sent.
    forms: [OnceLock<ResponseForm>; CODING_COUNT + 1],
    /// The forms that are on disk, one bit each.
    on_disk: AtomicU8,
    /// The parts of the body, if its ESI tags are processed. They are found when the page is made, or when a page from
    /// the disk is first sent.
    esi_parts: OnceLock<Option<Box<[EsiPart]>>>,
    deflation: Deflation,
}

/// The compressed texts of a page with ESI tags.
#[derive(Debug, Default)]
struct Deflation {
    texts: OnceLock<Arc<DeflatedTexts>>,
    is_under_way: AtomicBool,
}

/// The right to compress the texts of a page, which one task has at a time.
#[derive(Debug)]
pub struct DeflationPermit(Arc<Object>);

impl DeflationPermit {
    /// Adds the compressed texts to the page.
    pub fn complete(self, texts: DeflatedTexts) {
        // The first outcome counts.
        let _ = self.0.deflation.texts.set(Arc::new(texts));
    }
}

impl Drop for DeflationPermit {
    fn drop(&mut self) {
        self.0
            .deflation
            .is_under_way
            .store(false, Ordering::Release);
    }
}

/// The input for an [`Object`].
#[derive(Debug)]
pub struct ObjectDraft<'a> {
    /// The response's status code.
    pub status: u16,
    /// A reason phrase that differs from the usual one.
    pub reason: &'a [u8],
    /// All header fields of the response, in order.
    pub fields: &'a HeaderFields<'a>,
    /// The body without a content coding.
    pub body: Bytes,
    /// The URL's key, without the variant.
    pub url_key: &'a [u8],
    /// The generation that was current before the response began to be made.
    pub born: u64,
}

impl Object {
    /// Creates an object from a response that the policy allowed. The body must be complete.
    pub fn new(storable: &Storable, draft: ObjectDraft<'_>) -> Result<Object, Pass> {
        storable.check_complete(draft.body.len() as u64)?;
        let mut lines = Vec::new();
        for (name, value) in draft.fields.iter().filter(|(n, _)| !storable.omits(n)) {
            for part in [*name, b": ", *value, b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
        let esi_parts = match storable.has_esi() {
            true => esi::parse_page(&draft.body).map(Vec::into_boxed_slice),
            false => None,
        };
        // A page without tags is sent like any other.
        if esi_parts.is_some() {
            add_esi_mark(&mut lines);
        }
        let freshness = *storable.freshness();
        let date = field::first(draft.fields, b"date").and_then(field::date);
        Ok(Object {
            status: draft.status,
            reason: draft.reason.to_vec(),
            lines: without_spare_capacity(lines),
            body: draft.body,
            date: date.unwrap_or(freshness.received),
            freshness,
            born: draft.born,
            tags: storable.tags().to_vec(),
            url_key: draft.url_key.to_vec(),
            compared_up_to: AtomicU64::new(draft.born),
            forms: Default::default(),
            on_disk: AtomicU8::new(0),
            esi_parts: OnceLock::from(esi_parts),
            deflation: Deflation::default(),
        })
    }

    /// Returns the object after a 304 of the application (RFC 9111 §4.3.4): the headers that it sent replace those of
    /// the same names, the freshness is computed again, and the body stays.
    pub fn revalidated(&self, storable: &Storable, update: &HeaderFields<'_>, born: u64) -> Object {
        let kept = |name: &[u8]| {
            const OF_THE_BODY: [&[u8]; 4] = [
                b"content-length",
                b"content-encoding",
                b"content-type",
                b"content-range",
            ];
            OF_THE_BODY.iter().any(|n| name.eq_ignore_ascii_case(n))
        };
        let mut lines = Vec::with_capacity(self.lines.len());
        let mut put = |name: &[u8], value: &[u8]| {
            for part in [name, b": ", value, b"\r\n"] {
                lines.extend_from_slice(part);
            }
        };
        let replaced =
            |name: &[u8]| !kept(name) && update.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        let own_mark = (esi::MARK_NAME, esi::MARK_VALUE);
        let is_own_mark = |field: &(&[u8], &[u8])| storable.has_esi() && *field == own_mark;
        let kept_fields = self.fields().filter(|field| !is_own_mark(field));
        for (name, value) in kept_fields.filter(|(n, _)| !replaced(n)) {
            put(name, value);
        }
        for (name, value) in update {
            if !kept(name) && !storable.omits(name) {
                put(name, value);
            }
        }
        // The body has not changed, so it has the same tags.
        let esi_parts = match storable.has_esi() {
            true => OnceLock::from(self.esi_parts().map(Box::from)),
            false => OnceLock::new(),
        };
        if matches!(esi_parts.get(), Some(Some(_))) {
            add_esi_mark(&mut lines);
        }
        let date = field::first(update, b"date").and_then(field::date);
        Object {
            status: self.status,
            reason: self.reason.clone(),
            lines: without_spare_capacity(lines),
            body: self.body.clone(),
            date: date.unwrap_or(storable.freshness().received),
            freshness: *storable.freshness(),
            born,
            tags: self.tags.clone(),
            url_key: self.url_key.clone(),
            compared_up_to: AtomicU64::new(born),
            forms: Default::default(),
            on_disk: AtomicU8::new(0),
            esi_parts,
            deflation: Deflation::default(),
        }
    }

    /// Restores an object from the content of the disk store. The caller adds birth, tags and key.
    pub(crate) fn restored(
        status: u16,
        reason: &[u8],
        lines: &[u8],
        body: Bytes,
        date: Millis,
        freshness: Freshness,
    ) -> Object {
        Object {
            status,
            reason: reason.to_vec(),
            lines: Bytes::copy_from_slice(lines),
            body,
            date,
            freshness,
            born: 0,
            tags: Vec::new(),
            url_key: Vec::new(),
            compared_up_to: AtomicU64::new(0),
            forms: Default::default(),
            on_disk: AtomicU8::new(0),
            esi_parts: OnceLock::new(),
            deflation: Deflation::default(),
        }
    }

    /// Sets the generation in which the page was born; it has been compared with no purge since.
    pub(crate) fn set_born(&mut self, born: u64) {
        self.born = born;
        self.compared_up_to = AtomicU64::new(born);
    }

    /// Converts a page that another server has rendered to the form in which this server stores it under `url_key`, as
    /// if its render had begun here at `born`. If the other server's clock is ahead, the page counts as received `now`.
    pub fn adopted(mut self, url_key: &[u8], born: u64, now: Millis) -> Object {
        self.set_born(born);
        self.url_key = url_key.to_vec();
        self.freshness.received = self.freshness.received.min(now);
        self
    }

    /// Returns the form of a coding (0: plain), if it has been made.
    pub fn existing_form(&self, coding: usize) -> Option<&ResponseForm> {
        self.forms.get(coding)?.get()
    }

    /// Returns the forms that have been made, one bit each; the plain one always exists.
    pub(crate) fn existing_forms(&self) -> u8 {
        (1..=CODING_COUNT).fold(1, |bits, coding| {
            bits | u8::from(self.existing_form(coding).is_some()) << coding
        })
    }

    /// Returns whether the disk lacks any of these forms.
    pub(crate) fn disk_lacks(&self, forms: u8) -> bool {
        self.on_disk.load(Ordering::Acquire) & forms != forms
    }

    /// Notes that the disk has these forms.
    pub(crate) fn mark_on_disk(&self, forms: u8) {
        self.on_disk.fetch_or(forms, Ordering::AcqRel);
    }

    /// Returns the header fields as (name, value).
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines.split(|b| *b == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.iter().position(|b| *b == b':')?;
            Some((&line[..colon], line.get(colon + 2..)?))
        })
    }

    /// Returns the first header field of that name.
    pub fn field(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// Returns the parts of the body, if the application has marked the page and it has ESI tags. They are found once.
    pub fn esi_parts(&self) -> Option<&[EsiPart]> {
        let parts = self.esi_parts.get_or_init(|| {
            let is_marked = self.field(esi::MARK_NAME) == Some(esi::MARK_VALUE);
            let parts = is_marked.then(|| esi::parse_page(&self.body)).flatten();
            parts.map(Vec::into_boxed_slice)
        });
        parts.as_deref()
    }

    /// Returns the compressed texts of a page with ESI tags, if they have been made.
    pub fn deflated_texts(&self) -> Option<&Arc<DeflatedTexts>> {
        self.deflation.texts.get()
    }

    /// Returns the permit to compress the texts of the page, unless they have been or are being compressed.
    pub fn begin_deflation(self: &Arc<Object>) -> Option<DeflationPermit> {
        let is_under_way = &self.deflation.is_under_way;
        let begins = self.deflated_texts().is_none() && !is_under_way.swap(true, Ordering::AcqRel);
        begins.then(|| DeflationPermit(self.clone()))
    }

    /// Returns how the page may be used at `now`, by its lifetime and the purges since its birth, or `None` if it may
    /// not be used.
    pub fn state(&self, generations: &Generations, now: Millis) -> Option<PageState> {
        // This number is read first, because a purge that arrives meanwhile has a higher one.
        let last = generations.last_named_purge();
        let judged = self.compared_up_to.load(Ordering::Relaxed);
        match generations.validity_of(judged, &self.url_key, &self.tags) {
            PageValidity::Valid => {
                if last > judged {
                    self.compared_up_to.fetch_max(last, Ordering::Relaxed);
                }
                Some(self.freshness.state(now))
            }
            PageValidity::Purged => None,
            PageValidity::Stale { since } => Some(self.freshness.state_if_ended(since, now)),
        }
    }

    /// Returns the form of a coding (0: plain), which `make` creates if there is none yet.
    pub fn form(&self, coding: usize, make: impl FnOnce() -> ResponseForm) -> &ResponseForm {
        self.forms[coding.min(CODING_COUNT)].get_or_init(make)
    }

    /// Returns whether the page belongs to the site with this number.
    pub fn belongs_to_site(&self, site: u32) -> bool {
        self.url_key.starts_with(&site.to_le_bytes())
    }

    /// Returns the bytes that the parts of a page with ESI tags use besides the body: the URLs of the tags, and the texts
    /// that are joined from others or inserted by `<esi:inline>`.
    pub(crate) fn esi_bytes(&self) -> usize {
        let body = self.body.as_ptr_range();
        let own = |part: &EsiPart| match part {
            EsiPart::Text(text) if body.contains(&text.as_ptr()) => 0,
            EsiPart::Text(text) => text.len(),
            EsiPart::Include(tag) | EsiPart::Dropped(tag) => {
                tag.src.len() + tag.alt.as_ref().map_or(0, Vec::len)
            }
        };
        let parts = self.esi_parts().unwrap_or_default().iter();
        parts.map(|part| own(part) + ESI_PART_OVERHEAD_BYTES).sum()
    }

    /// Returns the bytes that the page uses in memory now. The encoded forms count for at least half of the plain body,
    /// which reserves room for those that are not made yet.
    pub fn memory_bytes(&self) -> u64 {
        let tags: usize = self.tags.iter().map(|tag| tag.len() + 24).sum();
        let coded = (1..=CODING_COUNT).filter_map(|coding| self.existing_form(coding));
        // An encoded form that is not shorter than the plain body shares the plain body.
        let body = |form: &ResponseForm| match form.body.as_ptr() == self.body.as_ptr() {
            true => 0,
            false => form.body.len(),
        };
        let coded: usize = coded.map(|form| form.head.len() + body(form)).sum();
        let coded = coded
            + self
                .deflated_texts()
                .map_or(0, |texts| texts.memory_bytes());
        let own = self.lines.len() * 2 + self.reason.len() + self.url_key.len() + tags;
        let plain = self.body.len() + self.esi_bytes();
        (own + plain + coded.max(plain / 2) + PAGE_OVERHEAD_BYTES) as u64
    }
}

/// Adds the header by which the stored page is recognised as one whose tags are processed. It is never sent.
fn add_esi_mark(lines: &mut Vec<u8>) {
    for part in [esi::MARK_NAME, b": ", esi::MARK_VALUE, b"\r\n"] {
        lines.extend_from_slice(part);
    }
}

/// Returns the bytes without a vector's spare capacity.
fn without_spare_capacity(bytes: Vec<u8>) -> Bytes {
    Bytes::from(bytes.into_boxed_slice())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::generation::{Force, Purge};
    use crate::policy::response::{ResponseFacts, decide_storable};
    use crate::policy::{CacheRules, CacheScheme};

    /// Creates a stored page with these headers and this body, received at 0.
    pub(crate) fn page(lines: &[(&str, &str)], body: &'static str) -> Object {
        let mut fields: Vec<(&[u8], &[u8])> = vec![(b"Cache-Control", b"max-age=60")];
        fields.extend(lines.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())));
        let storable = decide_storable(&facts(&fields), &rules()).unwrap();
        let draft = ObjectDraft {
            status: 200,
            reason: b"",
            fields: &fields,
            body: Bytes::from_static(body.as_bytes()),
            url_key: b"key",
            born: 1,
        };
        Object::new(&storable, draft).unwrap()
    }

    fn facts<'a>(fields: &'a HeaderFields<'a>) -> ResponseFacts<'a> {
        ResponseFacts {
            status: 200,
            fields,
            authorized: false,
            requested: 0,
            received: 0,
            effect: None,
        }
    }

    fn rules() -> CacheRules {
        CacheRules {
            scheme: CacheScheme::Rfc,
            ..CacheRules::for_tests()
        }
    }

    #[test]
    fn section_4_3_4_a_304_replaces_the_fields_it_names_and_never_the_bodys() {
        let old = page(
            &[
                ("ETag", "\"a\""),
                ("Content-Type", "text/html"),
                ("X-A", "1"),
                ("X-B", "1"),
            ],
            "body",
        );
        let update: Vec<(&[u8], &[u8])> = vec![
            (b"Cache-Control", b"max-age=90"),
            (b"x-a", b"2"),
            (b"Content-Type", b"text/plain"),
            (b"Content-Length", b"9"),
        ];
        let storable = decide_storable(&facts(&update), &rules()).unwrap();
        let new = old.revalidated(&storable, &update, 5);
        let value = |name: &str| new.field(name.as_bytes()).map(String::from_utf8_lossy);
        assert_eq!(value("X-A").unwrap(), "2");
        assert_eq!(value("X-B").unwrap(), "1");
        assert_eq!(value("Content-Type").unwrap(), "text/html");
        assert_eq!(value("Content-Length"), None);
        assert_eq!(
            new.fields()
                .filter(|(n, _)| n.eq_ignore_ascii_case(b"cache-control"))
                .count(),
            1
        );
        assert_eq!((new.freshness.lifetime, new.born), (90_000, 5));
        assert_eq!(new.body, old.body);
    }

    #[test]
    fn parts_of_a_page_count_towards_its_memory() {
        let body = |text: &str, times: usize| {
            let mark = ("Surrogate-Control", "content=\"ESI/1.0\"");
            let esi_rules = CacheRules {
                esi: Some(crate::esi::EsiRules::default()),
                ..rules()
            };
            let fields = [
                (&b"Cache-Control"[..], &b"max-age=60"[..]),
                (mark.0.as_bytes(), mark.1.as_bytes()),
            ];
            let storable = decide_storable(&facts(&fields), &esi_rules).unwrap();
            let draft = ObjectDraft {
                status: 200,
                reason: b"",
                fields: &fields,
                body: Bytes::from(format!("{text}{}", "<esi:include src='/n'/>".repeat(times))),
                url_key: b"key",
                born: 1,
            };
            Object::new(&storable, draft).unwrap()
        };
        let inline = format!("<esi:inline name='/n'>{}</esi:inline>", "x".repeat(10_000));
        let inserted = body(&inline, 50);
        assert!(inserted.memory_bytes() > 500_000, "{inserted:?}");
        let many = body("", 1000);
        assert!(many.memory_bytes() > 1000 * ESI_PART_OVERHEAD_BYTES as u64);
        // A text that lies in the body is not counted again.
        let long = "x".repeat(100_000);
        assert!(body(&long, 1).memory_bytes() < 160_000);
    }

    #[test]
    fn marked_page_keeps_its_mark_and_its_parts_are_found() {
        let esi_rules = CacheRules {
            esi: Some(crate::esi::EsiRules::default()),
            ..rules()
        };
        for (header, value) in [
            ("surrogate-control", "max-age=5, content=\"ESI/1.0\""),
            ("X-LiteSpeed-Cache-Control", "public,esi=on"),
        ] {
            let fields: Vec<(&[u8], &[u8])> = vec![
                (b"Cache-Control", b"max-age=60"),
                (header.as_bytes(), value.as_bytes()),
            ];
            let stored = |rules: &CacheRules, fields: &HeaderFields<'_>| {
                let storable = decide_storable(&facts(fields), rules)?;
                let draft = ObjectDraft {
                    status: 200,
                    reason: b"",
                    fields,
                    body: Bytes::from_static(b"a<esi:include src='/f'/>b"),
                    url_key: b"key",
                    born: 1,
                };
                Object::new(&storable, draft).map(|page| (storable, page))
            };
            let (storable, page) = stored(&esi_rules, &fields).unwrap();
            assert_eq!(page.field(b"Surrogate-Control"), Some(esi::MARK_VALUE));
            assert_eq!(page.esi_parts().map(<[EsiPart]>::len), Some(3));
            let again = page.revalidated(&storable, &fields, 2);
            let marks = again
                .fields()
                .filter(|(name, _)| name.eq_ignore_ascii_case(esi::MARK_NAME));
            assert_eq!(marks.count(), 1);
            assert_eq!(again.esi_parts().map(<[EsiPart]>::len), Some(3));
            // A page without tags has no mark, which would otherwise be sent.
            let plain = ObjectDraft {
                status: 200,
                reason: b"",
                fields: &fields,
                body: Bytes::from_static(b"<p>text</p>"),
                url_key: b"key",
                born: 1,
            };
            let plain = Object::new(&storable, plain).unwrap();
            assert_eq!(
                (plain.field(b"Surrogate-Control"), plain.esi_parts()),
                (None, None)
            );
            // Without the table, LiteSpeed's word forbids storing, and the other one has no meaning.
            match stored(&rules(), &fields) {
                Ok((_, page)) => assert_eq!(page.esi_parts(), None),
                Err(why) => assert_eq!(why, Pass::DoNotCachePage),
            }
        }
    }

    #[test]
    fn soft_purged_page_is_stale_and_hard_purged_page_is_unusable() {
        let generations = Generations::default();
        let page = page(&[("Cache-Control", "stale-while-revalidate=9")], "x");
        assert_eq!(page.state(&generations, 1), Some(PageState::Fresh));
        generations.purge(&Purge::All, Force::Soft { at: 1000 });
        assert_eq!(page.state(&generations, 9999), Some(PageState::Grace));
        assert_eq!(page.state(&generations, 10_000), Some(PageState::Stale));
        generations.purge(&Purge::Url(b"key".to_vec()), Force::Hard);
        assert_eq!(page.state(&generations, 1), None);
    }

    #[test]
    fn valid_page_is_still_purged_later() {
        let generations = Generations::default();
        let page = page(&[("Surrogate-Key", "mine")], "x");
        for other in 0..3 {
            generations.purge(&Purge::Tag(vec![other]), Force::Hard);
            assert_eq!(page.state(&generations, 1), Some(PageState::Fresh));
        }
        assert_eq!(
            page.compared_up_to.load(Ordering::Relaxed),
            generations.now()
        );
        generations.purge(&Purge::Tag(b"mine".to_vec()), Force::Hard);
        assert_eq!(page.state(&generations, 1), None);
    }

    #[test]
    fn encoded_form_is_made_once() {
        let page = page(&[], "x");
        let make = |text: &'static str| {
            move || ResponseForm {
                head: Bytes::new(),
                body: Bytes::from_static(text.as_bytes()),
                encodable: true,
            }
        };
        assert_eq!(page.form(1, make("a")).body, "a");
        assert_eq!(page.form(1, make("b")).body, "a");
        assert_eq!(page.form(2, make("b")).body, "b");
    }

    #[test]
    fn page_memory_includes_its_encoded_forms() {
        let text: &'static str = Box::leak("x".repeat(100_000).into_boxed_str());
        let page = page(&[], text);
        assert!((150_000..153_000).contains(&page.memory_bytes()));
        let form = |length: usize| {
            move || ResponseForm {
                head: Bytes::new(),
                body: Bytes::from(vec![0; length]),
                encodable: true,
            }
        };
        page.form(1, form(40_000));
        assert!(
            (150_000..153_000).contains(&page.memory_bytes()),
            "expected"
        );
        page.form(2, form(80_000));
        assert!((220_000..223_000).contains(&page.memory_bytes()));
        page.form(3, || ResponseForm {
            head: Bytes::new(),
            body: page.body.clone(),
            encodable: true,
        });
        assert!((220_000..223_000).contains(&page.memory_bytes()), "shared");
    }
}
