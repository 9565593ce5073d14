//! Carries out the plan of a file's answer: from memory, from the file, or piece by piece;
//! compressed on the way if it is text and small enough. Also reads configured error pages.

use std::fs::File;
use std::io;

use bytes::Bytes;
use howdah_http::message::ResponseHead;
use howdah_http::{Length, Responder, SendFileError};
use howdah_proto::response::is_field_value;

use super::context::RequestContext;
use crate::docroot::root::{Meta, read_all};
use crate::encoding::policy::{self, Choice, Facts};
use crate::encoding::whole::Plain;
use crate::encoding::{Coding, Encoder, stream};
use crate::failure::Failure;
use crate::refusal::Refusal;
use crate::respond;
use crate::site::RouteInfo;
use crate::site::htaccess::{Document, Live};
use crate::static_file::{BodyPiece, StaticAnswer, StaticBody, StaticPlan, coded};

/// Files up to this size are compressed while they are sent; larger ones should lie beside their
/// compressed form, where they cost nothing.
const COMPRESS_UP_TO: u64 = 1 << 20;
/// A configured error page longer than this is not one.
const MAX_ERROR_PAGE: u64 = 1 << 20;

/// Sends a file's answer with the site's rules applied.
pub(super) async fn answer(
    ctx: RequestContext<'_>,
    route: &RouteInfo,
    plan: StaticPlan,
    out: &mut Responder,
) -> Result<(), Failure> {
    let mut answer = plan
        .answer(ctx.request)
        .map_err(|refusal| Failure::Refused {
            status: refusal.status(),
            refusal,
            allow: None,
        })?;
    ctx.site.edit_headers(route, &mut answer.head);
    if let Some(missing) = compress(ctx, &mut answer)? {
        // Boxed: a connection's memory is that of its largest state.
        Box::pin(missing.make(&mut answer)).await;
    }
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
                    BodyPiece::Text(text) => out.push(text),
                    BodyPiece::Range { offset, len } => {
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

/// Brings the body into a coding if policy and client agree and the coded form is there; gives back what
/// is left to do if it is still to be made.
fn compress(
    ctx: RequestContext<'_>,
    answer: &mut StaticAnswer,
) -> Result<Option<Missing>, Failure> {
    let config = &ctx.config.settings.encoding;
    if let Some(unsent) = answer.unsent.take() {
        if unsent.size <= COMPRESS_UP_TO {
            let facts = Facts {
                content_type: Some(&unsent.content_type),
                content_encoding: unsent.coded,
                length: Some(unsent.size),
                ..Facts::default()
            };
            policy::apply_to_not_modified(&mut answer.head, ctx.request, config, facts);
        }
        return Ok(None);
    }
    let length = answer.body.len();
    if length > COMPRESS_UP_TO {
        return Ok(None);
    }
    let choice = policy::choose(&answer.head, ctx.request, config, Some(length));
    let Some(choice) = choice else {
        return Ok(None);
    };
    let is_head = ctx.request.method() == b"HEAD";
    let form = match (choice.coding, answer.whole()) {
        (Some(coding), Some(meta)) => match form_at_once(answer, &meta, coding, is_head)? {
            FileForm::Plain => None,
            FileForm::Coded(bytes) => Some(StaticBody::Bytes(bytes)),
            // Not made for a length that HEAD need not tell (RFC 9110 §9.3.2).
            FileForm::Missing if is_head => Some(StaticBody::Empty),
            FileForm::Missing => {
                return Ok(Some(Missing {
                    choice,
                    meta,
                    coding,
                }));
            }
        },
        _ => None,
    };
    settle(answer, choice, form);
    Ok(None)
}

fn settle(answer: &mut StaticAnswer, choice: Choice, form: Option<StaticBody>) {
    choice.say(&mut answer.head, form.is_some());
    if let Some(body) = form {
        answer.body = body;
    }
}

/// A coded form that takes longer to make than a front thread may be kept.
struct Missing {
    choice: Choice,
    meta: Meta,
    coding: Coding,
}

impl Missing {
    /// Waits for the form; if that takes too long, the body stays as it is.
    async fn make(self, answer: &mut StaticAnswer) {
        let (meta, coding) = (self.meta, self.coding);
        let made = coded::make(meta, coding, || plain(&answer.body)).await;
        // Out of memory or descriptors: as it is is right as well.
        let form = made.unwrap_or_default();
        if let (Some(entry), Some(form)) = (&answer.kept, &form) {
            entry.coded.put(coding, form.clone());
        }
        settle(answer, self.choice, form.map(StaticBody::Bytes));
    }
}

/// What there is of a file's coded form.
enum FileForm {
    /// The file is shorter as it is.
    Plain,
    /// The compressed bytes of the file.
    Coded(Bytes),
    /// It takes longer to make than a front thread may be kept.
    Missing,
}

/// The form of a whole file that is kept, or that takes no time to make.
fn form_at_once(
    answer: &StaticAnswer,
    meta: &Meta,
    coding: Coding,
    is_head: bool,
) -> Result<FileForm, Failure> {
    if let (Some(entry), StaticBody::Bytes(bytes)) = (&answer.kept, &answer.body) {
        if let Some(form) = entry.coded.ready(coding) {
            return Ok(FileForm::Coded(form));
        }
        if !is_head && bytes.len() <= stream::at_once(coding) {
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
    Ok(match coded::ready(meta, coding) {
        Some(Some(form)) => FileForm::Coded(form),
        Some(None) => FileForm::Plain,
        None => FileForm::Missing,
    })
}

/// The bytes of a whole file, for another thread.
fn plain(body: &StaticBody) -> io::Result<Plain> {
    Ok(match body {
        StaticBody::Bytes(bytes) => Plain::Bytes(bytes.clone()),
        StaticBody::File { file, len, .. } => Plain::File(file.try_clone()?, *len),
        StaticBody::Empty | StaticBody::Multipart { .. } => Plain::Bytes(Bytes::new()),
    })
}

/// The page the site has configured for a failure's status: an `.htaccess` file's first. A page that
/// cannot be read, or that is closed ([`Site::error_page`], [`Site::error_document`]), gives way to the
/// built-in one.
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
        // A script as well: what has just failed to run one is not asked for another.
        Some(Document::Local(path)) => std::str::from_utf8(&path).ok().and_then(|name| {
            let opened = ctx.site.error_document(name, ctx.asked());
            page(failure, name, opened)
        }),
        Some(Document::Remote(_)) | None => None,
    };
    named.or_else(|| {
        let mut pages = ctx.site.config().error_pages.iter();
        let (_, name) = pages.find(|(status, _)| *status == failure.status())?;
        page(failure, name, ctx.site.error_page(name, ctx.request))
    })
}

fn page(
    failure: &Failure,
    name: &str,
    opened: Option<(File, Meta)>,
) -> Option<(ResponseHead, Bytes)> {
    let (file, meta) = opened?;
    if meta.size > MAX_ERROR_PAGE {
        return None;
    }
    let page = read_all(&file, meta.size as usize).ok()?;
    Some((page_head(failure, content_type(name)), Bytes::from(page)))
}

fn page_head(failure: &Failure, content_type: &str) -> ResponseHead {
    let mut head = respond::head(failure);
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
