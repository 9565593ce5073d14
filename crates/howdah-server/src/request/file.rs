//! Sends the response that a file's plan describes: from memory, from the file, or piece by piece, and compressed if it
//! is text and small enough. Also reads configured error pages.

use std::fs::File;
use std::io;

use bytes::Bytes;
use howdah_http::message::ResponseHead;
use howdah_http::{Responder, ResponseLength, SendFileError};
use howdah_proto::response::is_field_value;

use super::context::RequestContext;
use crate::failure::Failure;
use crate::respond;
use howdah_site::docroot::root::{FileMeta, read_exact};
use howdah_site::encoding::policy::{self, CodingChoice, EncodingFacts};
use howdah_site::encoding::whole::PlainBody;
use howdah_site::encoding::{Coding, Encoder, stream};
use howdah_site::refusal::Refusal;
use howdah_site::site::RouteInfo;
use howdah_site::site::htaccess::{Document, Live};
use howdah_site::static_file::{BodyPiece, StaticBody, StaticPlan, StaticResponse, coded_cache};

/// Files up to this size are compressed while they are sent. Larger files should be stored next to their compressed
/// form, which costs nothing to send.
const MAX_COMPRESSED_FILE_BYTES: u64 = 1 << 20;
/// A file that is longer than this is not used as an error page.
const MAX_ERROR_PAGE_BYTES: u64 = 1 << 20;

/// Sends a file's response with the site's rules applied.
pub(super) async fn answer(
    ctx: RequestContext<'_>,
    route: &RouteInfo,
    plan: StaticPlan,
    out: &mut Responder,
) -> Result<(), Failure> {
    let mut answer = plan
        .respond(ctx.request)
        .map_err(|refusal| Failure::Refused {
            status: refusal.status(),
            refusal,
            allow: None,
        })?;
    ctx.site.edit_headers(route, &mut answer.head);
    if let Some(missing) = compress(ctx, &mut answer)? {
        // Boxed because every connection reserves memory for the largest state of this future.
        Box::pin(missing.make(&mut answer)).await;
    }
    send_body(answer, out).await
}

/// Sends a file's response without further changes.
pub(super) async fn send_body(answer: StaticResponse, out: &mut Responder) -> Result<(), Failure> {
    let length = answer.body.len();
    match answer.body {
        StaticBody::Empty => out.begin(&answer.head, ResponseLength::NoBody),
        StaticBody::Bytes(bytes) => {
            out.begin(&answer.head, ResponseLength::Known(length));
            out.push(bytes);
        }
        StaticBody::File { file, offset, len } => {
            out.begin(&answer.head, ResponseLength::Known(length));
            Box::pin(out.send_file(&file, offset, len))
                .await
                .map_err(send_file_failure)?;
        }
        StaticBody::Multipart { file, pieces } => {
            out.begin(&answer.head, ResponseLength::Known(length));
            for piece in pieces {
                match piece {
                    BodyPiece::Text(text) => out.push(text),
                    BodyPiece::Range { offset, len } => {
                        Box::pin(out.send_file(&file, offset, len))
                            .await
                            .map_err(send_file_failure)?;
                    }
                }
            }
        }
    }
    out.end();
    Ok(())
}

fn send_file_failure(error: SendFileError) -> Failure {
    match error {
        SendFileError::ClientGone => Failure::ClientGone,
        SendFileError::FileTooShort | SendFileError::File(_) => Failure::Refused {
            refusal: Refusal::ReadFailed,
            status: Refusal::ReadFailed.status(),
            allow: None,
        },
    }
}

/// Replaces the body by its coded form if policy and client agree and that form is available. Returns the remaining
/// work if the form has yet to be made.
fn compress(
    ctx: RequestContext<'_>,
    answer: &mut StaticResponse,
) -> Result<Option<PendingEncoding>, Failure> {
    let config = &ctx.config.settings.encoding;
    if let Some(unsent) = answer.unsent.take() {
        if unsent.size <= MAX_COMPRESSED_FILE_BYTES {
            let facts = EncodingFacts {
                content_type: Some(&unsent.content_type),
                content_encoding: unsent.coded,
                length: Some(unsent.size),
                ..EncodingFacts::default()
            };
            policy::apply_to_not_modified(&mut answer.head, ctx.request, config, facts);
        }
        return Ok(None);
    }
    let length = answer.body.len();
    if length > MAX_COMPRESSED_FILE_BYTES {
        return Ok(None);
    }
    let choice = policy::choose(&answer.head, ctx.request, config, Some(length));
    let Some(choice) = choice else {
        return Ok(None);
    };
    let is_head = ctx.request.method() == b"HEAD";
    let form = match (choice.coding, answer.whole_file_meta()) {
        (Some(coding), Some(meta)) => match ready_form(answer, &meta, coding, is_head)? {
            FileForm::Plain => None,
            FileForm::Coded(bytes) => Some(StaticBody::Bytes(bytes)),
            // The form is not made merely to state its length, which a HEAD response may omit (RFC 9110 §9.3.2).
            FileForm::NotReady if is_head => Some(StaticBody::Empty),
            FileForm::NotReady => {
                return Ok(Some(PendingEncoding {
                    choice,
                    meta,
                    coding,
                }));
            }
        },
        _ => None,
    };
    set_encoded_body(answer, choice, form);
    Ok(None)
}

fn set_encoded_body(answer: &mut StaticResponse, choice: CodingChoice, form: Option<StaticBody>) {
    choice.apply_to(&mut answer.head, form.is_some());
    if let Some(body) = form {
        answer.body = body;
    }
}

/// A coded form that takes too long to make on a front thread.
struct PendingEncoding {
    choice: CodingChoice,
    meta: FileMeta,
    coding: Coding,
}

impl PendingEncoding {
    /// Waits for the form. If that takes too long, the body is sent uncompressed.
    async fn make(self, answer: &mut StaticResponse) {
        let (meta, coding) = (self.meta, self.coding);
        let made = coded_cache::make_form(meta, coding, || uncompressed_body(&answer.body)).await;
        // Memory or descriptors may have run out. The uncompressed body is a correct response as well.
        let form = made.unwrap_or_default();
        if let (Some(entry), Some(form)) = (&answer.cached, &form) {
            entry.coded.put(coding, form.clone());
        }
        set_encoded_body(answer, self.choice, form.map(StaticBody::Bytes));
    }
}

/// The state of a file's coded form.
enum FileForm {
    /// The uncompressed file is shorter.
    Plain,
    /// The compressed bytes of the file.
    Coded(Bytes),
    /// The form takes too long to make on a front thread.
    NotReady,
}

/// Returns the form of a whole file if it is in memory or takes no time to make.
fn ready_form(
    answer: &StaticResponse,
    meta: &FileMeta,
    coding: Coding,
    is_head: bool,
) -> Result<FileForm, Failure> {
    if let (Some(entry), StaticBody::Bytes(bytes)) = (&answer.cached, &answer.body) {
        if let Some(form) = entry.coded.ready(coding) {
            return Ok(FileForm::Coded(form));
        }
        if !is_head && bytes.len() <= stream::max_inline_bytes(coding) {
            let encode = || {
                let mut encoder = Encoder::new(coding, Some(bytes.len() as u64))?;
                let mut coded = encoder.write(bytes)?;
                coded.append(&mut encoder.finish()?);
                Ok(coded)
            };
            let form = entry.coded.get(coding, encode);
            return form
                .map(FileForm::Coded)
                .map_err(|e| Failure::EncoderFailed(e.to_string()));
        }
    }
    Ok(match coded_cache::cached_form(meta, coding) {
        Some(Some(form)) => FileForm::Coded(form),
        Some(None) => FileForm::Plain,
        None => FileForm::NotReady,
    })
}

/// Returns the bytes of a whole file in a form that another thread can use.
fn uncompressed_body(body: &StaticBody) -> io::Result<PlainBody> {
    Ok(match body {
        StaticBody::Bytes(bytes) => PlainBody::Bytes(bytes.clone()),
        StaticBody::File { file, len, .. } => PlainBody::File(file.try_clone()?, *len),
        StaticBody::Empty | StaticBody::Multipart { .. } => PlainBody::Bytes(Bytes::new()),
    })
}

/// Returns the page that the site has configured for a failure's status. An `.htaccess` file's page takes precedence.
/// If the page cannot be read or is not accessible ([`Site::error_page`], [`Site::error_document`]), the built-in page
/// is used.
pub(super) fn configured_page(
    ctx: RequestContext<'_>,
    failure: &Failure,
    live: Option<&Live>,
) -> Option<(ResponseHead, Bytes)> {
    let by_file = live.and_then(|live| live.document(failure.status()));
    let named = match by_file {
        Some(Document::Text(text)) => {
            return Some((
                page_head(failure, "text/html; charset=iso-8859-1"),
                text.into(),
            ));
        }
        Some(Document::Remote(to)) if is_field_value(&to) => {
            let mut head = ResponseHead::new(302);
            head.header(b"Location", &to);
            head.header(b"Howdah-Error", failure.public_name().as_bytes());
            return Some((head, Bytes::new()));
        }
        // If the path names a script, there is no page: a script is not run for an error page, since running one may
        // just have failed.
        Some(Document::Local(path)) => std::str::from_utf8(&path).ok().and_then(|name| {
            let opened = ctx.site.error_document(name, ctx.requested());
            open_error_page(failure, name, opened)
        }),
        Some(Document::Remote(_)) | None => None,
    };
    named.or_else(|| {
        let mut pages = ctx.site.config().error_pages.iter();
        let (_, name) = pages.find(|(status, _)| *status == failure.status())?;
        open_error_page(failure, name, ctx.site.error_page(name, ctx.request))
    })
}

fn open_error_page(
    failure: &Failure,
    name: &str,
    opened: Option<(File, FileMeta)>,
) -> Option<(ResponseHead, Bytes)> {
    let (file, meta) = opened?;
    if meta.size > MAX_ERROR_PAGE_BYTES {
        return None;
    }
    let page = read_exact(&file, meta.size as usize).ok()?;
    Some((page_head(failure, content_type(name)), Bytes::from(page)))
}

fn page_head(failure: &Failure, content_type: &str) -> ResponseHead {
    let mut head = respond::failure_head(failure);
    head.header(b"Content-Type", content_type.as_bytes());
    head
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("json") => "application/json",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "text/html; charset=utf-8",
    }
}
