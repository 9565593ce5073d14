//! Carries out the plan of a file's answer: from memory, from the file, or piece by piece;
//! compressed on the way if it is text and small enough. Also reads configured error pages.

use bytes::Bytes;

use super::Exchange;
use crate::encoding::Encoder;
use crate::encoding::policy::{self, Facts};
use crate::http::message::ResponseHead;
use crate::http::{Length, Responder, SendFileError};
use crate::respond::{self, Failure};
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
    site.edit_headers(route, &mut answer.head);
    compress(exchange, &mut answer)?;
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
    if let Some(unsent) = answer.unsent.take() {
        if unsent.size <= COMPRESS_UP_TO {
            let facts = Facts {
                content_type: Some(&unsent.content_type),
                content_encoding: unsent.coded,
                length: Some(unsent.size),
                ..Facts::default()
            };
            policy::apply_to_not_modified(&mut answer.head, exchange.request, config, facts);
        }
        return Ok(());
    }
    let length = answer.body.len();
    if length > COMPRESS_UP_TO {
        return Ok(());
    }
    let coding = policy::apply(&mut answer.head, exchange.request, config, Some(length));
    let Some(coding) = coding else {
        return Ok(());
    };
    let plain = match &answer.body {
        StaticBody::Bytes(bytes) => bytes.clone(),
        // A whole file: parts have a `Content-Range`, which the policy leaves alone.
        StaticBody::File { file, len, .. } => {
            Bytes::from(read_all(file, *len as usize).map_err(|e| failure(SendFileError::File(e)))?)
        }
        StaticBody::Empty | StaticBody::Multipart { .. } => return Ok(()),
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
    answer.body = StaticBody::Bytes(coded);
    Ok(())
}

/// The page the site has configured for a failure's status. A page that cannot be read, or that is
/// closed ([`Site::error_page`]), gives way to the built-in one.
pub(super) fn configured_page(site: &Site, failure: &Failure) -> Option<(ResponseHead, Bytes)> {
    let pages = &site.config().error_pages;
    let (_, name) = pages
        .iter()
        .find(|(status, _)| *status == failure.status())?;
    let (file, meta) = site.error_page(name)?;
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
