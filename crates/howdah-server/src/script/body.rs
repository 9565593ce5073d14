//! A request body on its way to a script: whole in memory, whole in a file, or as it arrives. This module reads from
//! the client; the executor passes the bytes to the process.
//!
//! By default the body is received completely before a PHP process is requested, so a slow client never occupies one.
//! Up to [`BodyPolicy::memory`] bytes are kept in memory; a longer body of any size goes to a file without a name. If
//! the body is passed on as it arrives (`request_buffering = "off"`), a PHP process waits for the client, which some
//! scripts want. Under `auto` that happens only for a multipart body that begins with PHP's upload progress field,
//! since progress that starts at 100 % is useless. Any client can send that field, so only a few processes of a pool
//! may be used in this way ([`super::stream_permits`]).

use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use howdah_executor::{BodyCutOff, ScriptBody};
use howdah_http::message::RequestHead;
use howdah_http::{BodyError, BodyKind, RequestBody};
use tokio::sync::mpsc;

use super::frame::BodyLength;
use super::spill::{SpillFile, SpillRoom, SpillShare};
use super::stream_permits::{StreamPermit, StreamPermits};
use crate::failure::Failure;
use crate::gather::Gathered;
use howdah_site::site::config::RequestBuffering;

/// How many bytes of a request body are kept in memory: forms fit, uploads go to a file.
pub const BODY_MEMORY_BYTES: usize = 64 << 10;

/// The maximum number of pieces of a body that are queued between the client and the script while the body is passed on
/// as it arrives.
const MAX_PIECES_IN_FLIGHT: usize = 4;

/// How much of a request body is kept in memory, and where the rest goes.
#[derive(Clone, Copy, Debug)]
pub struct BodyPolicy<'a> {
    /// The number of bytes kept in memory; a longer body goes to a file. A body takes at most twice its bytes, however
    /// small the pieces in which it arrives.
    pub memory: usize,
    /// The directory for the files of long bodies.
    pub directory: &'a Path,
    /// Limits the total size of all files.
    pub room: &'a Arc<SpillRoom>,
    /// The maximum length of a body in bytes; beyond it the request fails with `BodyTooLarge`.
    pub limit: u64,
    /// Whether the body is collected before the script starts, or passed on as it arrives.
    pub buffering: RequestBuffering,
    /// Limits how many bodies may be passed on as they arrive under `auto`.
    pub streams: &'a Arc<StreamPermits>,
    /// The value of `session.upload_progress.name` of the site.
    pub progress_name: &'a [u8],
    /// Whether the executor accepts a body whose length is not known yet. Otherwise such a body is received completely
    /// first.
    pub unknown_length: bool,
}

/// PHP's default of `session.upload_progress.name`.
pub const PROGRESS_NAME: &[u8] = b"PHP_SESSION_UPLOAD_PROGRESS";

/// The state of a body when the script can be started.
#[derive(Debug)]
pub enum ReceivedBody {
    /// The body is complete. The file's share is held during the run. Boxed because every connection reserves memory
    /// for the largest state of its future.
    Whole(ScriptBody, BodyLength, Option<Box<SpillShare>>),
    /// The body is still arriving; these are its first bytes. Under `auto` it holds a permit until all of it has
    /// arrived.
    Arriving(Bytes, BodyLength, Option<StreamPermit>),
}

/// A piece on its way to a run, or the notice that no more will come.
pub type BodyChunk = Result<Bytes, BodyCutOff>;

/// The source of a body: [`RequestBody`], or a list in tests.
pub trait IncomingBody {
    /// Returns how the request delimits the body.
    fn expected(&self) -> BodyKind;
    /// Sets the maximum length in bytes. A longer body is an error.
    fn set_limit(&mut self, max: u64);
    /// Sets the minimum rate in bytes per second. A slower body is an error.
    fn set_min_rate(&mut self, rate: u32);
    /// Returns the next bytes of the body, or `None` at its end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>>;
}

impl IncomingBody for RequestBody {
    fn expected(&self) -> BodyKind {
        RequestBody::delimiter(self)
    }

    fn set_limit(&mut self, max: u64) {
        RequestBody::set_limit(self, max);
    }

    fn set_min_rate(&mut self, rate: u32) {
        RequestBody::set_min_rate(self, rate);
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        RequestBody::poll_next(self, cx)
    }
}

async fn next_piece(body: &mut impl IncomingBody) -> Result<Option<Bytes>, Failure> {
    let next = poll_fn(|cx| body.poll_next(cx)).await.transpose();
    next.map_err(|error| match error {
        BodyError::ClientGone => Failure::ClientGone,
        error => Failure::Body(error),
    })
}

/// Receives a request's body as the policy requires. A body that is longer than the limit is refused before any of it
/// is read if its length was announced.
pub async fn receive(
    request: &RequestHead,
    body: &mut impl IncomingBody,
    policy: &BodyPolicy<'_>,
) -> Result<ReceivedBody, Failure> {
    let announced = match body.expected() {
        BodyKind::None => {
            // `Content-Length: 0` is a body of known length, so PHP gets `CONTENT_LENGTH`.
            let length = match request.header(b"content-length") {
                Some(_) => BodyLength::Known(0),
                None => BodyLength::None,
            };
            return Ok(ReceivedBody::Whole(ScriptBody::Empty, length, None));
        }
        BodyKind::Length(n) => BodyLength::Known(n),
        BodyKind::Chunked => BodyLength::Unknown,
    };
    body.set_limit(policy.limit);
    let announced_enough = policy.unknown_length || announced != BodyLength::Unknown;
    if policy.buffering == RequestBuffering::Off && announced_enough {
        // The first piece is awaited here, so a body that is too long or broken at its start is refused before the run
        // begins.
        let first = next_piece(body).await?;
        return Ok(ReceivedBody::Arriving(
            first.unwrap_or_default(),
            announced,
            None,
        ));
    }
    receive_in_memory(request, body, policy, announced).await
}

async fn receive_in_memory(
    request: &RequestHead,
    body: &mut impl IncomingBody,
    policy: &BodyPolicy<'_>,
    announced: BodyLength,
) -> Result<ReceivedBody, Failure> {
    let mut gathered = Gathered::default();
    while let Some(piece) = next_piece(body).await? {
        gathered.push(piece);
        if gathered.len() > policy.memory {
            let start = gathered.into_bytes();
            if policy.buffering == RequestBuffering::Auto
                && (policy.unknown_length || announced != BodyLength::Unknown)
                && asks_for_upload_progress(request, &start, policy.progress_name)
                && let Some(place) = policy.streams.try_acquire()
            {
                return Ok(ReceivedBody::Arriving(start, announced, Some(place)));
            }
            return receive_in_file(body, policy, start).await;
        }
    }
    let whole = gathered.into_bytes();
    let length = BodyLength::Known(whole.len() as u64);
    Ok(ReceivedBody::Whole(
        match whole.is_empty() {
            true => ScriptBody::Empty,
            false => ScriptBody::Memory(whole),
        },
        length,
        None,
    ))
}

async fn receive_in_file(
    body: &mut impl IncomingBody,
    policy: &BodyPolicy<'_>,
    start: Bytes,
) -> Result<ReceivedBody, Failure> {
    let mut spill = SpillFile::create(policy.directory, policy.room)?;
    spill.append(&start)?;
    drop(start);
    while let Some(piece) = next_piece(body).await? {
        spill.append(&piece)?;
        body.set_min_rate(policy.room.min_rate());
    }
    let (file, length, share) = spill.into_file();
    Ok(ReceivedBody::Whole(
        ScriptBody::File(file, length),
        BodyLength::Known(length),
        Some(Box::new(share)),
    ))
}

/// Returns whether the beginning of a multipart body contains PHP's upload progress field, which has to precede the
/// files to have an effect (PHP manual, "Session Upload Progress").
fn asks_for_upload_progress(request: &RequestHead, start: &[u8], name: &[u8]) -> bool {
    const MULTIPART: &[u8] = b"multipart/form-data";
    let multipart = request.header(b"content-type").is_some_and(|value| {
        value.len() >= MULTIPART.len() && value[..MULTIPART.len()].eq_ignore_ascii_case(MULTIPART)
    });
    if !multipart || name.is_empty() {
        return false;
    }
    let field = [b"name=\"", name, b"\""].concat();
    start.windows(field.len()).any(|w| w == field)
}

/// Forwards a body as it arrives, until it ends or the run stops reading. It runs concurrently with the run. An error
/// reaches both the script, as a truncated body, and the caller.
pub async fn forward(
    body: &mut impl IncomingBody,
    first: Bytes,
    to: mpsc::Sender<BodyChunk>,
) -> Result<(), Failure> {
    if !first.is_empty() && to.send(Ok(first)).await.is_err() {
        return Ok(());
    }
    loop {
        // A slot is reserved first, so bytes that the run cannot take yet stay in the kernel's socket buffers.
        let Ok(place) = to.reserve().await else {
            return Ok(());
        };
        match next_piece(body).await {
            Ok(Some(piece)) => place.send(Ok(piece)),
            Ok(None) => return Ok(()),
            Err(failure) => {
                place.send(Err(BodyCutOff));
                return Err(failure);
            }
        }
    }
}

/// Creates the channel between [`forward`] and a run.
pub fn channel() -> (mpsc::Sender<BodyChunk>, mpsc::Receiver<BodyChunk>) {
    mpsc::channel(MAX_PIECES_IN_FLIGHT)
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
