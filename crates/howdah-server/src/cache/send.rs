//! Sends a stored page as a response: the suitable encoded form of it, a part, or a 304; with `Age`, `Cache-Status` and
//! `X-Cache`. The head of each form is made once; a hit adds three lines.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use howdah_cache::field::http_date;
use howdah_cache::object::{CODING_COUNT, ResponseForm};
use howdah_cache::serve::{PageReply, RequestConditions, reply};
use howdah_cache::status::{CacheVerdict, append_number};
use howdah_cache::{Millis, Object};
use howdah_http::message::{RequestHead, ResponseHead};
use howdah_http::{Responder, ResponseLength};

use howdah_site::encoding::negotiate;
use howdah_site::encoding::policy::{EncodingFacts, is_digest, weakened};
use howdah_site::encoding::whole::{CompressionsInProgress, PlainBody};
use howdah_site::encoding::{Coding, Encoder, EncodingConfig, stream};

/// The request that a page is sent for.
#[derive(Clone, Copy, Debug)]
pub struct PageRequest<'a> {
    /// The request.
    pub request: &'a RequestHead,
    /// Whether the request has conditions or asks for a part.
    pub conditional: bool,
    /// The time of the lookup.
    pub now: Millis,
}

/// Sends a page. If the form that the client needs takes too long to make on a front thread, returns the remaining
/// work.
pub fn send_page(
    page: &Arc<Object>,
    verdict: CacheVerdict,
    reader: PageRequest<'_>,
    encoding: &EncodingConfig,
    out: &mut Responder,
) -> Option<PendingPage> {
    let PageRequest {
        request,
        conditional,
        now,
    } = reader;
    if conditional {
        let mut conditions = RequestConditions::default();
        for (name, value) in request.headers() {
            conditions.add_header(name, value);
        }
        if request.method() == b"HEAD" {
            conditions.range = None;
        }
        let reply = reply(page, &conditions);
        if reply != PageReply::Full {
            let mut lines = Vec::new();
            push_response_lines(page, verdict, now, &mut lines);
            send_partial_or_status(page, reply, &lines, out);
            return None;
        }
    }
    let plain = plain_form(page, encoding);
    let accept = || request.header_all(b"accept-encoding");
    let coding = match plain.encodable {
        true => negotiate::choose_coding(accept(), &encoding.codings),
        false => None,
    };
    let Some(coding) = coding else {
        send(page, plain, verdict, now, out);
        return None;
    };
    match page.existing_form(form_index(coding)) {
        Some(form) => send(page, form, verdict, now, out),
        // The form is not made merely to state its length, which a HEAD response may omit (RFC 9110 §9.3.2).
        None if request.method() == b"HEAD" => {
            let head = form_head(page, Some(coding), true, None);
            out.begin_stored(
                page.status,
                &head,
                |out| push_response_lines(page, verdict, now, out),
                0,
            );
            out.end();
        }
        None if page.body.len() <= stream::max_inline_bytes(coding) => {
            // If there is not enough memory for a compressor, the plain form is correct as well.
            let coded = encode(page, coding).ok();
            send(page, store_form(page, coding, coded), verdict, now, out);
        }
        None => {
            return Some(PendingPage {
                page: page.clone(),
                verdict,
                coding,
                now,
            });
        }
    }
    None
}

/// A page whose encoded form is being made.
pub struct PendingPage {
    page: Arc<Object>,
    verdict: CacheVerdict,
    coding: Coding,
    now: Millis,
}

/// The pages that are being compressed, by their address: the task that compresses a page keeps it alive.
static PAGES_BEING_COMPRESSED: CompressionsInProgress<(usize, Coding)> =
    CompressionsInProgress::empty();

impl PendingPage {
    /// Sends the page when its encoded form is made, or the plain form if that takes too long.
    pub async fn send_form(self, encoding: &EncodingConfig, out: &mut Responder) {
        let (page, coding) = (self.page, self.coding);
        let (kept, plain) = (page.clone(), page.body.clone());
        let keep = move |_: &PlainBody, coded: &Option<Bytes>| {
            store_form(&kept, coding, coded.clone());
        };
        let key = (Arc::as_ptr(&page) as usize, coding);
        let plain = || Ok(PlainBody::Bytes(plain));
        // If there is not enough memory for a compressor, or compressing takes too long, the plain form is correct as
        // well.
        let _ = PAGES_BEING_COMPRESSED
            .wait_for_form(key, coding, plain, keep)
            .await;
        let made = page.existing_form(form_index(coding));
        let form = made.unwrap_or_else(|| self::plain_form(&page, encoding));
        send(&page, form, self.verdict, self.now, out);
    }
}

/// Returns the index of a coding among a page's forms; the plain form is the first.
fn form_index(coding: Coding) -> usize {
    coding as usize + 1
}

/// Appends the header lines that differ for every response, and thus are not in a form's head.
fn push_response_lines(page: &Object, verdict: CacheVerdict, now: Millis, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Age: ");
    append_number(out, (page.freshness.age(now) / 1000) as i64);
    out.extend_from_slice(b"\r\n");
    verdict.append_headers(out);
}

fn send(
    page: &Object,
    form: &ResponseForm,
    verdict: CacheVerdict,
    now: Millis,
    out: &mut Responder,
) {
    let extra = |out: &mut Vec<u8>| push_response_lines(page, verdict, now, out);
    out.begin_stored(page.status, &form.head, extra, form.body.len() as u64);
    out.push_shared(&form.body);
    out.end();
}

/// Sends a 304, 412, 206 or 416.
fn send_partial_or_status(page: &Object, reply: PageReply, extra: &[u8], out: &mut Responder) {
    let status = match reply {
        PageReply::NotModified => 304,
        PageReply::PreconditionFailed => 412,
        PageReply::NotSatisfiable => 416,
        PageReply::Part { .. } | PageReply::Full => 206,
    };
    let mut head = ResponseHead::new(status);
    let describes = |name: &[u8]| {
        // RFC 9110 §15.4.5: a 304 has the headers that a cache needs to update its copy; headers about the content are
        // sent only with content.
        let of_content = name.len() > 8 && name[..8].eq_ignore_ascii_case(b"content-");
        // A `Content-Range` of a whole page has no meaning; a part has its own.
        if name.eq_ignore_ascii_case(b"content-range") {
            return false;
        }
        status == 206 || !of_content || name.eq_ignore_ascii_case(b"content-location")
    };
    if matches!(status, 206 | 304) {
        for (name, value) in page.fields().filter(|(name, _)| describes(name)) {
            head.header(name, value);
        }
    }
    add_lines(&mut head, extra);
    let total = page.body.len();
    match reply {
        PageReply::Part { start, length } => {
            let end = start + length;
            let range = format!("bytes {start}-{}/{total}", end - 1);
            head.header(b"Content-Range", range.as_bytes());
            out.begin(&head, ResponseLength::Known(length));
            out.push(page.body.slice(start as usize..end as usize));
        }
        PageReply::NotSatisfiable => {
            head.header(b"Content-Range", format!("bytes */{total}").as_bytes());
            out.begin(&head, ResponseLength::Known(0));
        }
        _ => out.begin(&head, ResponseLength::NoBody),
    }
    out.end();
}

/// Returns the plain form, whose `encodable` says whether clients may get the page encoded.
fn plain_form<'a>(page: &'a Object, encoding: &EncodingConfig) -> &'a ResponseForm {
    page.form(0, || {
        let mut facts = EncodingFacts {
            status: page.status,
            length: Some(page.body.len() as u64),
            ..EncodingFacts::default()
        };
        for (name, value) in page.fields() {
            facts.add_header(name, value);
        }
        let encodable = encoding.allows(&facts).is_ok();
        ResponseForm {
            head: form_head(page, None, encodable, Some(page.body.len())),
            body: page.body.clone(),
            encodable,
        }
    })
}

fn encode(page: &Object, coding: Coding) -> io::Result<Bytes> {
    let mut encoder = Encoder::new(coding, Some(page.body.len() as u64))?;
    let mut body = encoder.write(&page.body)?;
    body.append(&mut encoder.finish()?);
    // The conversion keeps all of a vector's capacity.
    Ok(Bytes::from(body.into_boxed_slice()))
}

/// Stores a page's encoded form. All encoded forms together are not longer than the plain one, so the encodings that
/// clients ask for cannot multiply the memory of a page. Beyond that limit, and if there is no encoded form, clients
/// get the plain one.
fn store_form(page: &Object, coding: Coding, coded: Option<Bytes>) -> &ResponseForm {
    let others = (1..=CODING_COUNT).filter_map(|at| page.existing_form(at));
    let others = others.filter(|form| form.body.len() != page.body.len());
    let taken: usize = others.map(|form| form.body.len()).sum();
    let whole = page.body.len();
    let coded = coded.filter(|coded| coded.len() < whole && taken + coded.len() <= whole);
    page.form(form_index(coding), || {
        let body = coded.as_ref().unwrap_or(&page.body);
        ResponseForm {
            head: form_head(page, coded.as_ref().map(|_| coding), true, Some(body.len())),
            body: body.clone(),
            encodable: true,
        }
    })
}

/// Returns the status line and headers of a form, without the headers that differ for every response. The length may be
/// unknown for a HEAD response.
fn form_head(
    page: &Object,
    coding: Option<Coding>,
    encodable: bool,
    length: Option<usize>,
) -> Bytes {
    let mut out = Vec::with_capacity(page.lines.len() + 160);
    let reason = match &page.reason[..] {
        [] => howdah_http1::reason::reason_phrase(page.status).as_bytes(),
        reason => reason,
    };
    out.extend_from_slice(b"HTTP/1.1 ");
    append_number(&mut out, i64::from(page.status));
    out.push(b' ');
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
    let mut varies = false;
    let mut put = |name: &[u8], value: &[u8]| {
        for part in [name, b": ", value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    };
    for (name, value) in page.fields() {
        match (coding, &name.to_ascii_lowercase()[..]) {
            (Some(_), b"etag") => put(name, &weakened(value)),
            (Some(_), b"accept-ranges") => {}
            (Some(_), name) if is_digest(name) => {}
            (_, b"vary") => {
                varies |= value
                    .split(|b| *b == b',')
                    .any(|m| m.trim_ascii().eq_ignore_ascii_case(b"accept-encoding"));
                put(name, value);
            }
            _ => put(name, value),
        }
    }
    if let Some(coding) = coding {
        put(b"Content-Encoding", coding.token().as_bytes());
    }
    if encodable && !varies {
        put(b"Vary", b"Accept-Encoding");
    }
    put(b"Date", http_date(page.date).as_bytes());
    if let Some(length) = length.filter(|_| !matches!(page.status, 204 | 304)) {
        put(b"Content-Length", length.to_string().as_bytes());
    }
    // The conversion keeps all of a vector's capacity.
    Bytes::from(out.into_boxed_slice())
}

/// Adds the headers that describe the cache's decision to a script's head.
pub fn add_status_fields(head: &mut ResponseHead, verdict: CacheVerdict) {
    let mut lines = Vec::with_capacity(96);
    verdict.append_headers(&mut lines);
    add_lines(head, &lines);
}

/// Adds the headers of `lines`, one per line.
fn add_lines(head: &mut ResponseHead, lines: &[u8]) {
    for line in lines.split(|b| *b == b'\n') {
        if let Some(colon) = line.iter().position(|b| *b == b':') {
            head.header(&line[..colon], line[colon + 1..].trim_ascii());
        }
    }
}
