//! A request body on its way to a script: whole in memory, whole in a file, or as it arrives.
//! Reads the client's side; the executor hands the bytes to the process.
//!
//! By default the body is received whole before a child is asked for, so that a slow client never
//! holds one: up to [`BodyPolicy::memory`] bytes in memory, more in a file without a name, whatever
//! its size. As it arrives (`request_buffering = "off"`) a child waits for the client, which some
//! scripts want. Under `auto` that happens for one kind of request only: a multipart body that
//! begins with PHP's upload progress field, since progress that starts at 100 % is none; and since
//! any client can send that field, for a few children of a pool only ([`super::streams`]).

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
use super::streams::{StreamPlace, Streams};
use crate::failure::Failure;
use crate::gather::Gathered;
use crate::site::config::RequestBuffering;

/// Bytes of a request body that are kept in memory: forms fit, uploads go to a file.
pub const BODY_MEMORY: usize = 64 << 10;

/// Pieces under way between client and run when a body goes through as it arrives.
const PIECES_UNDER_WAY: usize = 4;

/// How much of request bodies is kept in memory, and where the rest goes.
#[derive(Clone, Copy, Debug)]
pub struct BodyPolicy<'a> {
    /// Bytes kept in memory; a longer body goes to a file. A body takes at
    /// most twice its bytes, however small the pieces it comes in.
    pub memory: usize,
    /// The directory that files for long bodies are made in.
    pub directory: &'a Path,
    /// Counts all files against what they may take together.
    pub room: &'a Arc<SpillRoom>,
    /// Longest body in bytes → `BodyTooLarge`.
    pub limit: u64,
    /// Whether the body is collected before the script starts, or passed on as it arrives.
    pub buffering: RequestBuffering,
    /// How many bodies may arrive under `auto`.
    pub streams: &'a Arc<Streams>,
    /// `session.upload_progress.name` of the site.
    pub progress_name: &'a [u8],
    /// Whether the script's side takes a body whose length is not known yet; otherwise such a
    /// body is received whole first.
    pub unknown_length: bool,
}

/// PHP's default of `session.upload_progress.name`.
pub const PROGRESS_NAME: &[u8] = b"PHP_SESSION_UPLOAD_PROGRESS";

/// What has become of a body when the script can be started.
#[derive(Debug)]
pub enum Received {
    /// All of it is here. A file's share is kept for as long as the run; boxed, because a
    /// connection's memory is that of its largest state.
    Whole(ScriptBody, BodyLength, Option<Box<SpillShare>>),
    /// It is arriving; these bytes came first. Under `auto` it has a place, until all of it has come.
    Arriving(Bytes, BodyLength, Option<StreamPlace>),
}

/// A piece on its way to a run, or the news that no more will come.
pub type Arrived = Result<Bytes, BodyCutOff>;

/// Where a body comes from: [`RequestBody`], and in tests a list.
pub trait Incoming {
    /// How the request delimits the body.
    fn expected(&self) -> BodyKind;
    /// More bytes than this are an error.
    fn set_limit(&mut self, max: u64);
    /// Fewer bytes than this a second are an error.
    fn set_min_rate(&mut self, rate: u32);
    /// The next bytes of the body; none at its end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>>;
}

impl Incoming for RequestBody {
    fn expected(&self) -> BodyKind {
        RequestBody::expected(self)
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

async fn next(body: &mut impl Incoming) -> Result<Option<Bytes>, Failure> {
    let next = poll_fn(|cx| body.poll_next(cx)).await.transpose();
    next.map_err(|error| match error {
        BodyError::ClientGone => Failure::ClientGone,
        error => Failure::Body(error),
    })
}

/// Receives a request's body as the policy says. A body longer than the limit is refused before
/// anything of it is read if its length was announced.
pub async fn receive(
    request: &RequestHead,
    body: &mut impl Incoming,
    policy: &BodyPolicy<'_>,
) -> Result<Received, Failure> {
    let announced = match body.expected() {
        BodyKind::None => {
            // `Content-Length: 0` is a body of known length: PHP sees the variable.
            let length = match request.header(b"content-length") {
                Some(_) => BodyLength::Known(0),
                None => BodyLength::None,
            };
            return Ok(Received::Whole(ScriptBody::Empty, length, None));
        }
        BodyKind::Length(n) => BodyLength::Known(n),
        BodyKind::Chunked => BodyLength::Unknown,
    };
    body.set_limit(policy.limit);
    let announced_enough = policy.unknown_length || announced != BodyLength::Unknown;
    if policy.buffering == RequestBuffering::Off && announced_enough {
        // The first piece is asked for here, so that 413 and a broken start come before the run.
        let first = next(body).await?;
        return Ok(Received::Arriving(
            first.unwrap_or_default(),
            announced,
            None,
        ));
    }
    in_memory(request, body, policy, announced).await
}

async fn in_memory(
    request: &RequestHead,
    body: &mut impl Incoming,
    policy: &BodyPolicy<'_>,
    announced: BodyLength,
) -> Result<Received, Failure> {
    let mut gathered = Gathered::default();
    while let Some(piece) = next(body).await? {
        gathered.push(piece);
        if gathered.len() > policy.memory {
            let start = gathered.into_bytes();
            if policy.buffering == RequestBuffering::Auto
                && (policy.unknown_length || announced != BodyLength::Unknown)
                && wants_progress(request, &start, policy.progress_name)
                && let Some(place) = policy.streams.take()
            {
                return Ok(Received::Arriving(start, announced, Some(place)));
            }
            return in_file(body, policy, start).await;
        }
    }
    let whole = gathered.into_bytes();
    let length = BodyLength::Known(whole.len() as u64);
    Ok(Received::Whole(
        match whole.is_empty() {
            true => ScriptBody::Empty,
            false => ScriptBody::Memory(whole),
        },
        length,
        None,
    ))
}

async fn in_file(
    body: &mut impl Incoming,
    policy: &BodyPolicy<'_>,
    start: Bytes,
) -> Result<Received, Failure> {
    let mut spill = SpillFile::create(policy.directory, policy.room)?;
    spill.append(&start)?;
    drop(start);
    while let Some(piece) = next(body).await? {
        spill.append(&piece)?;
        body.set_min_rate(policy.room.min_rate());
    }
    let (file, length, share) = spill.into_file();
    Ok(Received::Whole(
        ScriptBody::File(file, length),
        BodyLength::Known(length),
        Some(Box::new(share)),
    ))
}

/// Whether a multipart body's beginning carries PHP's upload progress field, which has to come
/// before the files to have an effect (PHP manual, "Session Upload Progress").
fn wants_progress(request: &RequestHead, start: &[u8], name: &[u8]) -> bool {
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

/// Hands a body on as it arrives, until it ends or nobody takes it any more. Runs beside the run.
/// An error reaches the script as a body cut off, and the caller.
pub async fn hand_on(
    body: &mut impl Incoming,
    first: Bytes,
    to: mpsc::Sender<Arrived>,
) -> Result<(), Failure> {
    if !first.is_empty() && to.send(Ok(first)).await.is_err() {
        return Ok(());
    }
    loop {
        // A place first: what nobody can take stays in the client's kernel.
        let Ok(place) = to.reserve().await else {
            return Ok(());
        };
        match next(body).await {
            Ok(Some(piece)) => place.send(Ok(piece)),
            Ok(None) => return Ok(()),
            Err(failure) => {
                place.send(Err(BodyCutOff));
                return Err(failure);
            }
        }
    }
}

/// The channel between [`hand_on`] and a run.
pub fn channel() -> (mpsc::Sender<Arrived>, mpsc::Receiver<Arrived>) {
    mpsc::channel(PIECES_UNDER_WAY)
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
