//! A stored page becomes an answer: the right encoded form of it, a part, or a 304; with `Age`,
//! `Cache-Status` and `X-Cache`. The form's head is made once; what a hit adds is three lines.

use std::io;

use bytes::Bytes;
use howdah_cache::field::http_date;
use howdah_cache::object::Form;
use howdah_cache::serve::{Conditions, Reply, reply};
use howdah_cache::status::{Verdict, number};
use howdah_cache::{Millis, Object};

use crate::encoding::negotiate;
use crate::encoding::policy::{Facts, weakened};
use crate::encoding::{Coding, Encoder, EncodingConfig};
use crate::http::message::{RequestHead, ResponseHead};
use crate::http::{Length, Responder};

/// Sends a page. `conditional`: the request has conditions or asks for a part.
pub fn page(
    page: &Object,
    verdict: Verdict,
    request: &RequestHead,
    conditional: bool,
    encoding: &EncodingConfig,
    now: Millis,
    out: &mut Responder,
) {
    let extra = |out: &mut Vec<u8>| {
        out.extend_from_slice(b"Age: ");
        number(out, (page.freshness.age(now) / 1000) as i64);
        out.extend_from_slice(b"\r\n");
        verdict.fields(out);
    };
    if conditional {
        let mut conditions = Conditions::default();
        for (name, value) in request.headers() {
            conditions.field(name, value);
        }
        if request.method() == b"HEAD" {
            conditions.range = None;
        }
        let reply = reply(page, &conditions);
        if reply != Reply::Full {
            let mut lines = Vec::new();
            extra(&mut lines);
            return short(page, reply, &lines, out);
        }
    }
    let plain = page.form(0, || plain(page, encoding));
    let form = if plain.encodable {
        match negotiate::choose(request.header_all(b"accept-encoding"), &encoding.codings) {
            Some(coding) => page.form(coding as usize + 1, || {
                // Out of memory for a compressor: the plain form is right as well.
                coded(page, coding, encoding).unwrap_or_else(|_| Form {
                    head: plain.head.clone(),
                    body: plain.body.clone(),
                    encodable: false,
                })
            }),
            None => plain,
        }
    } else {
        plain
    };
    out.begin_stored(page.status, &form.head, extra, form.body.len() as u64);
    out.push_shared(&form.body);
    out.end();
}

/// 304, 412, 206 and 416.
fn short(page: &Object, reply: Reply, extra: &[u8], out: &mut Responder) {
    let status = match reply {
        Reply::NotModified => 304,
        Reply::PreconditionFailed => 412,
        Reply::NotSatisfiable => 416,
        Reply::Part { .. } | Reply::Full => 206,
    };
    let mut head = ResponseHead::new(status);
    let describes = |name: &[u8]| {
        // RFC 9110 §15.4.5: what a cache needs to freshen its copy; content fields with content.
        let of_content = name.len() > 8 && name[..8].eq_ignore_ascii_case(b"content-");
        // One that came with a whole page says nothing; a part has its own.
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
    for line in extra.split(|b| *b == b'\n') {
        if let Some(colon) = line.iter().position(|b| *b == b':') {
            head.header(&line[..colon], line[colon + 1..].trim_ascii());
        }
    }
    let total = page.body.len();
    match reply {
        Reply::Part { start, length } => {
            let end = start + length;
            let range = format!("bytes {start}-{}/{total}", end - 1);
            head.header(b"Content-Range", range.as_bytes());
            out.begin(&head, Length::Known(length));
            out.push(page.body.slice(start as usize..end as usize));
        }
        Reply::NotSatisfiable => {
            head.header(b"Content-Range", format!("bytes */{total}").as_bytes());
            out.begin(&head, Length::Known(0));
        }
        _ => out.begin(&head, Length::NoBody),
    }
    out.end();
}

/// The plain form, and whether others may get it encoded.
fn plain(page: &Object, encoding: &EncodingConfig) -> Form {
    let mut facts = Facts {
        status: page.status,
        length: Some(page.body.len() as u64),
        ..Facts::default()
    };
    for (name, value) in page.fields() {
        facts.field(name, value);
    }
    let encodable = encoding.allows(&facts).is_ok();
    Form {
        head: head(page, None, encodable, page.body.len()),
        body: page.body.clone(),
        encodable,
    }
}

fn coded(page: &Object, coding: Coding, config: &EncodingConfig) -> io::Result<Form> {
    let mut encoder = Encoder::new(coding, config, Some(page.body.len() as u64))?;
    let mut body = encoder.write(&page.body)?;
    body.append(&mut encoder.finish()?);
    Ok(Form {
        head: head(page, Some(coding), true, body.len()),
        body: Bytes::from(body),
        encodable: true,
    })
}

/// Status line and fields of a form, up to what changes with every answer.
fn head(page: &Object, coding: Option<Coding>, encodable: bool, length: usize) -> Bytes {
    let mut out = Vec::with_capacity(page.lines.len() + 160);
    let reason = match &page.reason[..] {
        [] => crate::http::reason_phrase(page.status).as_bytes(),
        reason => reason,
    };
    out.extend_from_slice(b"HTTP/1.1 ");
    number(&mut out, i64::from(page.status));
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
    if !matches!(page.status, 204 | 304) {
        put(b"Content-Length", length.to_string().as_bytes());
    }
    Bytes::from(out)
}

/// Adds what the cache did to a script's head.
pub fn tell(head: &mut ResponseHead, verdict: Verdict) {
    let mut lines = Vec::with_capacity(96);
    verdict.fields(&mut lines);
    for line in lines.split(|b| *b == b'\n') {
        if let Some(colon) = line.iter().position(|b| *b == b':') {
            head.header(&line[..colon], line[colon + 1..].trim_ascii());
        }
    }
}
