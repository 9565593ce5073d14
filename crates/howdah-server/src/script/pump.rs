//! Turns a run's events into a response. The response is held until its length is known or the script flushes, then
//! passed on, compressed on the way ([`ResponseCoder`]). Output that the client cannot read fast enough is moved to the
//! [`Backlog`], which frees the PHP process. This module does not depend on sockets or processes: both sides are
//! traits.
//!
//! ```text
//! run ─events─► held (≤ hold bytes) ─► begin ─► [encoder] ─► response queue ─► client
//!             └─► backlog's file ─┘   when the client is slow
//! ```
//! Output that is not flushed is sent only when [`PumpConfig::hold`] bytes have accumulated or the script is done: a
//! page that fits gets a `Content-Length`, and its headers and body fit into one packet. A flush immediately passes
//! through all stages, including the compressor.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use howdah_cache::esi::DeflatedTexts;
use howdah_executor::{RunEvent, ScriptHead, ScriptRun};
use howdah_http::memory::allowance;
use howdah_http::message::{RequestHead, ResponseHead};
use howdah_http::turn;
use howdah_http::{ClientGone, ResponseLength};

use super::abandoned_request::AbandonedRequest;
use super::backlog::{self, Backlog, Room};
use super::coder::ResponseCoder;
use super::head;
use super::pump_config::PumpConfig;
use super::response_sink::ResponseSink;
use super::spill::SpillError;
use crate::failure::Failure;
use crate::gather::Gathered;
use howdah_site::encoding::policy::{self, CodingChoice};
use howdah_site::encoding::stream::{self, FlushMode};
use howdah_site::encoding::{Coding, Encoder};

/// How many queued bytes are sent without a flush.
const SEND_THRESHOLD_BYTES: usize = 64 << 10;
/// How many bytes are moved before other tasks of the thread get their turn.
const MAX_TURN_BYTES: usize = 1 << 20;

/// How a response ended.
#[derive(Debug)]
pub enum ResponseOutcome {
    /// The response was sent, or is queued for sending.
    Complete,
    /// The script named a file to send in place of its body; nothing has been sent.
    SendFile(ScriptHead),
    /// The program names a path of this server whose response is to be sent instead (RFC 3875 §6.2.2); nothing has been
    /// sent.
    LocalRedirect(Vec<u8>),
    /// The response failed before anything was sent, so an error page can be sent.
    Failed(Failure),
    /// The response failed after its headers had been sent. The connection is closed, which shows the client that the
    /// response is incomplete.
    CutOff(Failure),
}

/// Resolves once no fleet member can serve a page older than the script's writes. On error, the response must not be
/// sent.
pub type Confirmation = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// Returns the confirmation to wait for before an edited header is sent, if one is needed.
pub type ConfirmationSource<'a> = &'a (dyn Fn() -> Option<Confirmation> + Sync);

/// A header that is sent once the writes of its script have been confirmed.
struct UnconfirmedHead {
    head: ResponseHead,
    confirmation: Confirmation,
    /// Whether the response is complete.
    whole: bool,
}

/// Sends one script's response to the client.
pub struct Pump<'a> {
    config: &'a PumpConfig,
    request: &'a RequestHead,
    /// Edits the headers by the site's rules.
    edit: &'a (dyn Fn(&mut ResponseHead) + Sync),
    /// Returns the confirmation to wait for after the edit.
    pub confirmation: Option<ConfirmationSource<'a>>,
    /// Parts of the body that have been compressed with gzip before.
    pub texts: Option<Arc<DeflatedTexts>>,
    waiting: Option<Box<UnconfirmedHead>>,
    /// Whether this pump checks for the client's disconnection, which it does not do while the request's body is being
    /// read.
    watch_client: bool,
    /// Set if the request is run even if its client disconnects before a process has started on it.
    abandoned: Option<AbandonedRequest>,
    /// The client's header until the response begins.
    head: Option<ResponseHead>,
    /// The head of the script's response, if it names what is sent in place of its body.
    replaced: Option<ScriptHead>,
    held: Gathered,
    began: bool,
    announced: Option<u64>,
    /// Whether the status is 204 or 304.
    ends_with_header: bool,
    written: u64,
    unbuffered: bool,
    /// Boxed because every idle connection reserves the room for it.
    coder: Option<Box<ResponseCoder>>,
    /// Set while a complete response is compressed before it is sent.
    whole: Option<Box<CompleteResponse>>,
    want_flush: bool,
    is_done: bool,
    pub(super) backlog: Backlog<'a>,
    /// Whether the script wrote more than it announced.
    was_truncated: bool,
    /// The number of header lines of the script that cannot be sent.
    rejected: u32,
}

struct CompleteResponse {
    head: ResponseHead,
    announced: Option<u64>,
    coded: bool,
}

impl<'a> Pump<'a> {
    /// Prepares for one response.
    pub fn new(
        config: &'a PumpConfig,
        request: &'a RequestHead,
        edit: &'a (dyn Fn(&mut ResponseHead) + Sync),
        watch_client: bool,
    ) -> Pump<'a> {
        Pump {
            config,
            request,
            edit,
            confirmation: None,
            texts: None,
            waiting: None,
            watch_client,
            abandoned: None,
            head: None,
            replaced: None,
            held: Gathered::default(),
            began: false,
            announced: None,
            ends_with_header: false,
            written: 0,
            unbuffered: false,
            coder: None,
            whole: None,
            want_flush: false,
            is_done: false,
            backlog: Backlog::new(config),
            was_truncated: false,
            rejected: 0,
        }
    }

    /// Returns whether the script wrote more than its announced length, and the excess was cut off. The caller logs it.
    pub fn was_truncated(&self) -> bool {
        self.was_truncated
    }

    /// Returns how many header lines of the script were dropped because their name or value cannot be sent. The caller
    /// logs it.
    pub fn rejected(&self) -> u32 {
        self.rejected
    }

    /// If the file for a slow client cannot be created or written, returns the reason, once for each response. The
    /// script then waits for the client. The caller logs the reason at once, because it explains PHP processes that
    /// seem stuck.
    pub fn take_spill_error(&mut self) -> Option<SpillError> {
        self.backlog.take_error()
    }

    /// Has the request run even if its client disconnects before a process has started on it.
    pub fn run_without_client(&mut self, left_behind: AbandonedRequest) {
        self.abandoned = Some(left_behind);
    }

    /// Checks for the client's disconnection from now on, because the request's body has been read.
    pub fn watch_client(&mut self) {
        self.watch_client = true;
    }

    /// Advances the response until nothing more can be done at the moment. To be polled until it is ready.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        run: &mut dyn ScriptRun,
        out: &mut impl ResponseSink,
    ) -> Poll<ResponseOutcome> {
        let mut moved = 0;
        loop {
            if moved > MAX_TURN_BYTES || moved > 0 && turn::is_over() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if let Err(failure) = self.backlog.refill(out, &mut moved) {
                out.abort();
                return Poll::Ready(ResponseOutcome::CutOff(failure));
            }
            if let Some(waiting) = &mut self.waiting {
                let confirmed = ready!(waiting.confirmation.as_mut().poll(cx));
                let sent = match confirmed {
                    Ok(()) => self.send_confirmed(out),
                    Err(failure) => Err(ResponseOutcome::Failed(failure)),
                };
                if let Err(ended) = sent {
                    return Poll::Ready(ended);
                }
            }
            if let Err(ended) = ready!(self.poll_coder(cx, out)) {
                return Poll::Ready(ended);
            }
            let spilling = self.backlog.is_spilling();
            if self.is_done && !spilling {
                out.end();
                return Poll::Ready(ResponseOutcome::Complete);
            }
            // This applies even before the headers are sent: responses to earlier pipelined requests may fill the
            // queue.
            if self.want_flush
                || spilling
                || out.queued() >= allowance(SEND_THRESHOLD_BYTES.min(self.config.response_memory))
            {
                match out.poll_flush(cx) {
                    Poll::Ready(Ok(())) => {
                        self.want_flush = false;
                        self.backlog.queue_drained();
                        if spilling {
                            continue;
                        }
                    }
                    Poll::Ready(Err(ClientGone)) => {
                        return Poll::Ready(ResponseOutcome::CutOff(Failure::ClientGone));
                    }
                    Poll::Pending if spilling && out.queued() < backlog::refill_bytes(out) => {
                        continue;
                    }
                    Poll::Pending => {}
                }
            }
            if self.is_done {
                return Poll::Pending;
            }
            match self.backlog.room(cx, out, self.unbuffered) {
                Room::Yes => {}
                Room::Perhaps => return Poll::Pending,
                Room::No => {
                    ready!(self.backlog.poll_too_slow(out, cx));
                    out.abort();
                    return Poll::Ready(ResponseOutcome::CutOff(Failure::ClientTooSlow));
                }
            }
            match run.poll_event(cx) {
                Poll::Ready(Ok(event)) => {
                    if let Err(ended) = self.event(event, run.decides_status(), out, &mut moved) {
                        return Poll::Ready(ended);
                    }
                }
                Poll::Ready(Err(error)) => {
                    let failure = Failure::Run(error);
                    if !self.began {
                        return Poll::Ready(ResponseOutcome::Failed(failure));
                    }
                    out.abort();
                    return Poll::Ready(ResponseOutcome::CutOff(failure));
                }
                Poll::Pending => {
                    if self.watch_client
                        && out.poll_client_gone(cx).is_ready()
                        && !self.stays_in_queue(cx, run)
                    {
                        return Poll::Ready(ResponseOutcome::CutOff(Failure::ClientGone));
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Returns whether the request of a client that has disconnected continues to wait for a process.
    fn stays_in_queue(&mut self, cx: &mut Context<'_>, run: &dyn ScriptRun) -> bool {
        let left_behind = self.abandoned.as_mut();
        !run.is_claimed() && left_behind.is_some_and(|left_behind| left_behind.stays_queued(cx))
    }

    fn event(
        &mut self,
        event: RunEvent,
        has_own_status: bool,
        out: &mut impl ResponseSink,
        moved: &mut usize,
    ) -> Result<(), ResponseOutcome> {
        match event {
            RunEvent::Informational(head) => {
                out.informational(&head::informational_for_client(&head));
                Ok(())
            }
            RunEvent::Head(head) => {
                let instructions = head::instructions(&head);
                self.announced = instructions.announced;
                self.ends_with_header = matches!(instructions.status, 204 | 304);
                self.rejected = head.rejected;
                self.unbuffered = instructions.unbuffered;
                if head.local_redirect || instructions.send_file.is_some() {
                    self.replaced = Some(head);
                } else {
                    let mut head = head::for_client(&head, &instructions);
                    head.has_own_status = has_own_status;
                    self.head = Some(head);
                }
                Ok(())
            }
            RunEvent::Body(bytes) => {
                *moved += bytes.len();
                self.body(bytes, out)
            }
            // The page cache handles this event.
            RunEvent::Effect => Ok(()),
            RunEvent::Flush => {
                if self.replaced.is_some() {
                    return Ok(());
                }
                self.begin(out)?;
                if let Some(coder) = &mut self.coder {
                    coder.set_flush_mode(FlushMode::Flush);
                }
                self.want_flush = true;
                Ok(())
            }
            RunEvent::End => self.end(out),
        }
    }

    fn body(
        &mut self,
        mut bytes: Bytes,
        out: &mut impl ResponseSink,
    ) -> Result<(), ResponseOutcome> {
        if self.replaced.is_some() {
            return Ok(());
        }
        if let Some(announced) = self.announced {
            let room = announced - self.written;
            if bytes.len() as u64 > room {
                self.was_truncated = true;
                bytes.truncate(room as usize);
            }
        }
        self.written += bytes.len() as u64;
        if bytes.is_empty() {
            return Ok(());
        }
        if !self.began {
            self.held.push(bytes);
            if self.held.len() >= self.config.hold || self.unbuffered {
                self.begin(out)?;
                self.want_flush = true;
            }
            return Ok(());
        }
        self.want_flush |= self.unbuffered;
        self.push_plain(bytes, out);
        Ok(())
    }

    /// Sends the headers if they have not been sent yet, with the length that the script announced, if it announced
    /// one.
    fn begin(&mut self, out: &mut impl ResponseSink) -> Result<(), ResponseOutcome> {
        let Some(mut head) = self.head.take() else {
            return Ok(());
        };
        (self.edit)(&mut head);
        match self.hold_until_confirmed(head, false) {
            Some(head) => self.send_head(head, out),
            None => Ok(()),
        }
    }

    /// Returns the head if it may be sent immediately. Otherwise stores it until its confirmation.
    fn hold_until_confirmed(&mut self, head: ResponseHead, whole: bool) -> Option<ResponseHead> {
        let Some(confirmation) = self.confirmation.and_then(|confirmation| confirmation()) else {
            return Some(head);
        };
        self.waiting = Some(Box::new(UnconfirmedHead {
            head,
            confirmation,
            whole,
        }));
        None
    }

    /// Sends the headers after the script's writes have been confirmed.
    fn send_confirmed(&mut self, out: &mut impl ResponseSink) -> Result<(), ResponseOutcome> {
        let Some(waiting) = self.waiting.take() else {
            return Ok(());
        };
        if waiting.whole {
            return self.encode_complete(waiting.head, out);
        }
        self.send_head(waiting.head, out)?;
        // The header may have been sent because of a flush.
        if let Some(coder) = &mut self.coder {
            coder.set_flush_mode(FlushMode::Flush);
        }
        Ok(())
    }

    fn send_head(
        &mut self,
        mut head: ResponseHead,
        out: &mut impl ResponseSink,
    ) -> Result<(), ResponseOutcome> {
        let coding = self.coding(&mut head, self.announced);
        let length = match (coding, self.announced) {
            _ if head.status == 304 => self.length_of_not_modified(),
            (None, Some(announced)) => ResponseLength::Known(announced),
            _ => ResponseLength::Unknown,
        };
        if let Some(coding) = coding.filter(|_| !self.has_no_content()) {
            // The length is not passed to the encoder, because the script has only announced it.
            match self.encoder(coding, None) {
                Ok(encoder) => self.coder = Some(Box::new(ResponseCoder::new(encoder))),
                Err(error) => {
                    return Err(ResponseOutcome::Failed(Failure::EncoderFailed(
                        error.to_string(),
                    )));
                }
            }
        }
        out.begin(&head, length);
        self.began = true;
        for bytes in std::mem::take(&mut self.held).into_pieces() {
            self.push_plain(bytes, out);
        }
        Ok(())
    }

    /// Returns the coding in which the body is sent, and names it in the headers.
    fn coding(&self, head: &mut ResponseHead, length: Option<u64>) -> Option<Coding> {
        if let Some(choice) = self.gzip_with_texts(head, length) {
            choice.apply_to(head, true);
            return Some(Coding::Gzip);
        }
        let choice = policy::choose(head, self.request, &self.config.encoding, length)?;
        let worth =
            |coding: &Coding| self.has_no_content() || stream::is_worth_encoding(*coding, length);
        let coding = choice.coding.filter(worth);
        choice.apply_to(head, coding.is_some());
        coding
    }

    /// Chooses gzip, whatever the client prefers, if parts of the body have been compressed with it before.
    fn gzip_with_texts(&self, head: &ResponseHead, length: Option<u64>) -> Option<CodingChoice> {
        self.texts.as_ref()?;
        let encoding = self.config.encoding.only(Coding::Gzip)?;
        let choice = policy::choose(head, self.request, &encoding, length)?;
        choice.coding.is_some().then_some(choice)
    }

    fn encoder(&self, coding: Coding, length: Option<u64>) -> io::Result<Encoder> {
        match &self.texts {
            Some(texts) if coding == Coding::Gzip => Ok(Encoder::with_texts(texts.clone())),
            _ => Encoder::new(coding, length),
        }
    }

    /// Takes uncompressed bytes of a response that has begun.
    fn push_plain(&mut self, bytes: Bytes, out: &mut impl ResponseSink) {
        match &mut self.coder {
            Some(coder) => coder.push(bytes),
            None => self.backlog.push(bytes, out),
        }
    }

    /// Compresses pending output. No other event is requested meanwhile.
    fn poll_coder(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut impl ResponseSink,
    ) -> Poll<Result<(), ResponseOutcome>> {
        while let Some(coder) = &mut self.coder
            && let Some(coded) = ready!(coder.poll(cx))
        {
            let whole = self.whole.take();
            match (coded, whole) {
                (Ok((bytes, _)), Some(whole)) => self.send_complete(*whole, vec![bytes], out)?,
                (Ok((bytes, is_last)), None) => {
                    self.backlog.push(bytes, out);
                    self.is_done |= is_last;
                }
                (Err(error), whole) => {
                    let failure = Failure::EncoderFailed(error.to_string());
                    if whole.is_some() {
                        return Poll::Ready(Err(ResponseOutcome::Failed(failure)));
                    }
                    out.abort();
                    return Poll::Ready(Err(ResponseOutcome::CutOff(failure)));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn end(&mut self, out: &mut impl ResponseSink) -> Result<(), ResponseOutcome> {
        if !self.began {
            return self.finish_complete(out);
        }
        let missing = match self.announced {
            Some(announced) if !self.has_no_content() && self.written < announced => announced,
            _ => {
                match &mut self.coder {
                    Some(coder) => coder.set_flush_mode(FlushMode::End),
                    None => self.is_done = true,
                }
                return Ok(());
            }
        };
        out.abort();
        Err(ResponseOutcome::CutOff(Failure::LengthMismatch {
            announced: missing,
            written: self.written,
        }))
    }

    /// Returns whether the response ends with its headers, whatever the script writes or announces, because the
    /// request's method is HEAD or the status is 204 or 304 (RFC 9112 §6.3).
    fn has_no_content(&self) -> bool {
        self.ends_with_header || self.request.method() == b"HEAD"
    }

    /// Handles a response that is complete and of which nothing has been sent.
    fn finish_complete(&mut self, out: &mut impl ResponseSink) -> Result<(), ResponseOutcome> {
        if let Some(script) = self.replaced.take() {
            return Err(match head::location(&script) {
                Some(target) if script.local_redirect => {
                    ResponseOutcome::LocalRedirect(target.to_vec())
                }
                _ => ResponseOutcome::SendFile(script),
            });
        }
        let Some(mut head) = self.head.take() else {
            let missing = howdah_executor::ExecError::ResponseMissing;
            return Err(ResponseOutcome::Failed(Failure::Run(missing)));
        };
        (self.edit)(&mut head);
        match self.hold_until_confirmed(head, true) {
            Some(head) => self.encode_complete(head, out),
            None => Ok(()),
        }
    }

    /// Returns the length to announce in a 304: the length of the response that the client has stored, not that of the
    /// body which the script sent with the 304 (RFC 9110 §8.6). Caches would interpret a zero as the length of their
    /// stored response.
    fn length_of_not_modified(&self) -> ResponseLength {
        self.announced
            .map_or(ResponseLength::NoBody, ResponseLength::Known)
    }

    fn encode_complete(
        &mut self,
        mut head: ResponseHead,
        out: &mut impl ResponseSink,
    ) -> Result<(), ResponseOutcome> {
        let no_content = self.has_no_content();
        // The body is not sent. Its length is that of the response to a GET, if the script announced it.
        let length = if no_content {
            self.announced
        } else {
            Some(self.written)
        };
        let coding = self.coding(&mut head, length);
        let whole = CompleteResponse {
            head,
            announced: self.announced,
            coded: coding.is_some(),
        };
        let held = std::mem::take(&mut self.held).into_pieces();
        match coding {
            Some(coding) if !no_content => {
                let encoder = self
                    .encoder(coding, length)
                    .map_err(|e| ResponseOutcome::Failed(Failure::EncoderFailed(e.to_string())))?;
                let mut coder = ResponseCoder::new(encoder);
                held.into_iter().for_each(|piece| coder.push(piece));
                coder.set_flush_mode(FlushMode::End);
                self.coder = Some(Box::new(coder));
                self.whole = Some(Box::new(whole));
                Ok(())
            }
            _ => self.send_complete(whole, held, out),
        }
    }

    fn send_complete(
        &mut self,
        whole: CompleteResponse,
        pieces: Vec<Bytes>,
        out: &mut impl ResponseSink,
    ) -> Result<(), ResponseOutcome> {
        let no_content = self.has_no_content();
        let announced = whole
            .announced
            .filter(|_| !no_content)
            .unwrap_or(self.written);
        let length = match (no_content, whole.announced) {
            _ if whole.head.status == 304 => self.length_of_not_modified(),
            (true, Some(announced)) if !whole.coded => ResponseLength::Known(announced),
            (true, _) => ResponseLength::Unknown,
            (false, _) if announced > self.written => ResponseLength::Known(announced),
            (false, _) => {
                ResponseLength::Known(pieces.iter().map(|piece| piece.len() as u64).sum())
            }
        };
        out.begin(&whole.head, length);
        self.began = true;
        for piece in pieces {
            self.backlog.push(piece, out);
        }
        if announced > self.written {
            out.abort();
            let written = self.written;
            return Err(ResponseOutcome::CutOff(Failure::LengthMismatch {
                announced,
                written,
            }));
        }
        self.is_done = true;
        Ok(())
    }
}

#[cfg(test)]
#[path = "pump_tests.rs"]
mod tests;
