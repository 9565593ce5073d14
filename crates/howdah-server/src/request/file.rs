//! Carries out the plan of a file's answer: from memory, from the file, or piece by piece;
//! compressed on the way if it is text and small enough. Also reads configured error pages.

use bytes::Bytes;

use super::Exchange;
use crate::encoding::Encoder;
use crate::encoding::negotiate::choose;
use crate::encoding::policy::{Facts, weakened};
use crate::http::message::ResponseHead;
use crate::http::{Length, Responder, SendFileError};
use crate::respond::{self, Failure};
use crate::site::path::UrlPath;
use crate::site::refusal::Refusal;
use crate::site::root::read_all;
use crate::site::{Route, Site};
use crate::static_file::{Piece, StaticAnswer, StaticBody};

/// Files up to this size are compressed while they are sent; larger ones should lie beside their
/// compressed form, where they cost nothing.
const COMPRESS_UP_TO: u64 = 1 << 20;
/// A configured error page longer than this is not one.
const MAX_ERROR_PAGE: u64 = 1 << 20;

/// Sends a file's answer with the site's rules applied.
pub(super) async fn send(
    exchange: Exchange<'_>,
    site: &Site,
    route: &Route,
    mut answer: StaticAnswer,
    out: &mut Responder,
) -> Result<(), Failure> {
    compress(exchange, &mut answer)?;
    site.edit_headers(route, &mut answer.head);
    send_body(answer, out).await
}

/// Sends a file's answer as it is.
pub(super) async fn send_body(answer: StaticAnswer, out: &mut Responder) -> Result<(), Failure> {
    let length = answer.body.len();
    match answer.body {
        StaticBody::Empty => out.begin(&answer.head, Length::NoBody),
        StaticBody::Bytes(bytes) => {
            out.begin(&answer.head, Length::Known(length));
            out.push(bytes);
        }
        StaticBody::File { file, offset, len } => {
            out.begin(&answer.head, Length::Known(length));
            Box::pin(out.send_file(&file, offset, len))
                .await
                .map_err(failure)?;
        }
        StaticBody::Multipart { file, pieces } => {
            out.begin(&answer.head, Length::Known(length));
            for piece in pieces {
                match piece {
                    Piece::Text(text) => out.push(text),
                    Piece::Range { offset, len } => {
                        Box::pin(out.send_file(&file, offset, len))
                            .await
                            .map_err(failure)?;
                    }
                }
            }
        }
    }
    out.end();
    Ok(())
}

fn failure(error: SendFileError) -> Failure {
    match error {
        SendFileError::ClientGone => Failure::ClientGone,
        SendFileError::FileTooShort | SendFileError::File(_) => Failure::Refused {
            refusal: Refusal::ReadFailed,
            status: Refusal::ReadFailed.status(),
            allow: None,
        },
    }
}

/// Compresses the body in memory if policy and client agree.
fn compress(exchange: Exchange<'_>, answer: &mut StaticAnswer) -> Result<(), Failure> {
    let config = &exchange.config.settings.encoding;
    let length = answer.body.len();
    if length > COMPRESS_UP_TO || length < config.min_size || exchange.request.method() == b"HEAD" {
        return Ok(());
    }
    let mut facts = Facts {
        status: answer.head.status,
        length: Some(length),
        ..Facts::default()
    };
    let (mut etag, mut varies) = (None, false);
    for (name, value) in answer.head.fields() {
        facts.field(name, value);
        if name.eq_ignore_ascii_case(b"etag") {
            etag = Some(weakened(value));
        }
        varies |= name.eq_ignore_ascii_case(b"vary");
    }
    if config.allows(&facts).is_err() {
        return Ok(());
    }
    let chosen = choose(
        exchange.request.header_all(b"accept-encoding"),
        &config.codings,
    );
    if !varies {
        answer.head.header(b"Vary", b"Accept-Encoding");
    }
    let Some(coding) = chosen else {
        return Ok(());
    };
    let plain = match &answer.body {
        StaticBody::Bytes(bytes) => bytes.clone(),
        StaticBody::File {
            file,
            offset: 0,
            len,
        } => match read_all(file, *len as usize) {
            Ok(bytes) => Bytes::from(bytes),
            // It changes under our hands; sending it finds out what is wrong.
            Err(_) => return Ok(()),
        },
        _ => return Ok(()),
    };
    let encode = || {
        let mut encoder = Encoder::new(coding, config, Some(plain.len() as u64))?;
        let mut coded = encoder.write(&plain)?;
        coded.append(&mut encoder.finish()?);
        Ok(coded)
    };
    let coded = answer
        .coded(coding, encode)
        .map_err(|e| Failure::EncoderFailed(e.to_string()))?;
    if let Some(etag) = etag {
        answer.head.remove(b"ETag").header(b"ETag", &etag);
    }
    answer.head.remove(b"Accept-Ranges");
    answer
        .head
        .header(b"Content-Encoding", coding.token().as_bytes());
    answer.body = StaticBody::Bytes(coded);
    Ok(())
}

/// The page the site has configured for a failure's status. A page that cannot be read gives way
/// to the built-in one.
pub(super) fn configured_page(site: &Site, failure: &Failure) -> Option<(ResponseHead, Bytes)> {
    let pages = &site.config().error_pages;
    let (_, name) = pages
        .iter()
        .find(|(status, _)| *status == failure.status())?;
    let path = [b"/", name.trim_start_matches('/').as_bytes()].concat();
    let path = UrlPath::from_decoded(&path).ok()?;
    let (file, meta) = site.root().open_file(path.relative()).ok()?;
    if meta.size > MAX_ERROR_PAGE {
        return None;
    }
    let page = read_all(&file, meta.size as usize).ok()?;
    let mut head = respond::head(failure);
    head.header(b"Content-Type", content_type(name).as_bytes());
    head.header(b"Cache-Control", b"no-store");
    Some((head, Bytes::from(page)))
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("json") => "application/json",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "text/html; charset=utf-8",
    }
}
