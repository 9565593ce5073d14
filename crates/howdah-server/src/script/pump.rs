//! Turns a run's events into a response. The response is held until its length is known or the script flushes, then
//! passed on, compressed on the way ([`Coder`]). Output that the client cannot read fast enough is moved to the
//! [`Backlog`], which frees the PHP process. This module does not depend on sockets or processes: both sides are
//! traits.
//!
//! ```text
//! run ─events─► held (≤ hold bytes) ─► begin ─► [encoder] ─► response queue ─► client
//!             └─► backlog's file ─┘   when the client is slow
//! ```
//! Output that is not flushed is sent only when [`PumpConfig::hold`] bytes have accumulated or the script is done: a
//! page that fits gets a `Content-Length`, and its header and body fit into one packet. A flush passes through
//! everything at once, including the compressor.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use howdah_executor::{Event, Head, Run};
use howdah_http::memory::allowance;
use howdah_http::message::{RequestHead, ResponseHead};
use howdah_http::turn;
use howdah_http::{ClientGone, Length};

use super::backlog::{self, Backlog, Room};
use super::coder::Coder;
use super::head;
use super::left_behind::LeftBehind;
use super::pump_config::PumpConfig;
use super::response_sink::ResponseSink;
use super::spill::SpillError;
use crate::encoding::stream::{self, Then};
use crate::encoding::{Coding, Encoder, policy};
use crate::failure::Failure;
use crate::gather::Gathered;

/// How many queued bytes are sent without a flush.
const SEND_AT: usize = 64 << 10;
/// How many bytes are moved before other tasks of the thread get their turn.
const TURN: usize = 1 << 20;

/// How a response ended.
#[derive(Debug)]
pub enum Ended {
    /// The response was sent, or is queued for sending.
    Complete,
    /// The script named a file to send in place of its body; nothing has been sent.
    SendFile(Head),
    /// The program names a path of this server whose response is to be sent instead (RFC 3875 §6.2.2); nothing has been
    /// sent.
    LocalRedirect(Vec<u8>),
    /// The response failed before anything was sent, so an error page can be sent.
    Failed(Failure),
    /// The response failed after its header had been sent. The connection is closed, which shows the client that the
    /// response is incomplete.
    CutOff(Failure),
}

/// Resolves once no fleet member can serve a page older than the script's writes. On error, the response must not be
/// sent.
pub type Confirmation = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// Returns the confirmation to wait for before an edited header is sent, if one is needed.
pub type Confirm<'a> = &'a (dyn Fn() -> Option<Confirmation> + Sync);

/// A header that is sent once the writes of its script have been confirmed.
struct Waiting {
    head: ResponseHead,
    confirmation: Confirmation,
    /// Whether the response is complete.
    whole: bool,
}

/// Sends one script's response to the client.
pub struct Pump<'a> {
    config: &'a PumpConfig,
    request: &'a RequestHead,
    /// Edits the header by the site's rules.
    edit: &'a (dyn Fn(&mut ResponseHead) + Sync),
    /// Returns the confirmation to wait for after the edit.
    pub confirmation: Option<Confirm<'a>>,
    waiting: Option<Box<Waiting>>,
    /// Whether this pump checks for the client's disconnection (not while its body is being read).
    watch_client: bool,
    /// Set if the request is run even if its client disconnects before a process has started on it.
    left_behind: Option<LeftBehind>,
    /// The client's header until the response begins.
    head: Option<ResponseHead>,
    /// The script's header, if it names what is sent in place of its body.
    replaced: Option<Head>,
    held: Gathered,
    began: bool,
    announced: Option<u64>,
    /// The status is 204 or 304.
    ends_with_header: bool,
    written: u64,
    unbuffered: bool,
    /// Boxed because every idle connection reserves the room for it.
    coder: Option<Box<Coder>>,
    /// Set while a complete response is compressed before it is sent.
    whole: Option<Box<Whole>>,
    want_flush: bool,
    through: bool,
    pub(super) backlog: Backlog<'a>,
    /// The script wrote more than it announced.
    cut: bool,
    /// The number of header lines of the script that cannot be sent.
    rejected: u32,
}

/// A response that is complete.
struct Whole {
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
            waiting: None,
            watch_client,
            left_behind: None,
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
            through: false,
            backlog: Backlog::new(config),
            cut: false,
            rejected: 0,
        }
    }

    /// Whether the script wrote more than its announced length, and the excess was cut off. The caller logs it.
    pub fn was_cut(&self) -> bool {
        self.cut
    }

    /// Returns how many header lines of the script were dropped because their name or value cannot be sent. The caller
    /// logs it.
    pub fn rejected(&self) -> u32 {
        self.rejected
    }

    /// Returns, once for each response, why the file for a slow client cannot be created or written, in which case the
    /// script waits for the client. The caller logs it at once, because it explains PHP processes that seem stuck.
    pub fn take_spill_error(&mut self) -> Option<SpillError> {
        self.backlog.take_error()
    }

    /// Has the request run even if its client disconnects before a process has started on it.
    pub fn run_without_client(&mut self, left_behind: LeftBehind) {
        self.left_behind = Some(left_behind);
    }

    /// Checks for the client's disconnection from now on, because its body has been read.
    pub fn watch_client(&mut self) {
        self.watch_client = true;
    }

    /// Advances the response until nothing more can be done at the moment. To be polled until it is ready.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        run: &mut dyn Run,
        out: &mut impl ResponseSink,
    ) -> Poll<Ended> {
        let mut moved = 0;
        loop {
            if moved > TURN || moved > 0 && turn::is_over() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if let Err(failure) = self.backlog.refill(out, &mut moved) {
                out.abort();
                return Poll::Ready(Ended::CutOff(failure));
            }
            if let Some(waiting) = &mut self.waiting {
                let confirmed = ready!(waiting.confirmation.as_mut().poll(cx));
                let sent = match confirmed {
                    Ok(()) => self.confirmed(out),
                    Err(failure) => Err(Ended::Failed(failure)),
                };
                if let Err(ended) = sent {
                    return Poll::Ready(ended);
                }
            }
            if let Err(ended) = ready!(self.code(cx, out)) {
                return Poll::Ready(ended);
            }
            let spilling = self.backlog.is_in_file();
            if self.through && !spilling {
                out.end();
                return Poll::Ready(Ended::Complete);
            }
            // This applies even before the header: responses to earlier pipelined requests may fill the queue.
            if self.want_flush
                || spilling
                || out.queued() >= allowance(SEND_AT.min(self.config.response_memory))
            {
                match out.poll_flush(cx) {
                    Poll::Ready(Ok(())) => {
                        self.want_flush = false;
                        self.backlog.queue_is_taken();
                        if spilling {
                            continue;
                        }
                    }
                    Poll::Ready(Err(ClientGone)) => {
                        return Poll::Ready(Ended::CutOff(Failure::ClientGone));
                    }
                    Poll::Pending if spilling && out.queued() < backlog::refill(out) => continue,
                    Poll::Pending => {}
                }
            }
            if self.through {
                return Poll::Pending;
            }
            match self.backlog.room(cx, out, self.unbuffered) {
                Room::Yes => {}
                Room::Perhaps => return Poll::Pending,
                Room::No => {
                    ready!(self.backlog.poll_too_slow(out, cx));
                    out.abort();
                    return Poll::Ready(Ended::CutOff(Failure::ClientTooSlow));
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
                        return Poll::Ready(Ended::Failed(failure));
                    }
                    out.abort();
                    return Poll::Ready(Ended::CutOff(failure));
                }
                Poll::Pending => {
                    if self.watch_client
                        && out.poll_client_gone(cx).is_ready()
                        && !self.stays_in_queue(cx, run)
                    {
                        return Poll::Ready(Ended::CutOff(Failure::ClientGone));
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Whether the request of a client that has disconnected continues to wait for a process.
    fn stays_in_queue(&mut self, cx: &mut Context<'_>, run: &dyn Run) -> bool {
        let left_behind = self.left_behind.as_mut();
        !run.is_claimed() && left_behind.is_some_and(|left_behind| left_behind.stays(cx))
    }

    fn event(
        &mut self,
        event: Event,
        has_own_status: bool,
        out: &mut impl ResponseSink,
        moved: &mut usize,
    ) -> Result<(), Ended> {
        match event {
            Event::Informational(head) => {
                out.informational(&head::informational(&head));
                Ok(())
            }
            Event::Head(head) => {
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
            Event::Body(bytes) => {
                *moved += bytes.len();
                self.body(bytes, out)
            }
            // The page cache handles this event.
            Event::Effect => Ok(()),
            Event::Flush => {
                if self.replaced.is_some() {
                    return Ok(());
                }
                self.begin(out)?;
                if let Some(coder) = &mut self.coder {
                    coder.then(Then::Flush);
                }
                self.want_flush = true;
                Ok(())
            }
            Event::End => self.end(out),
        }
    }

    fn body(&mut self, mut bytes: Bytes, out: &mut impl ResponseSink) -> Result<(), Ended> {
        if self.replaced.is_some() {
            return Ok(());
        }
        if let Some(announced) = self.announced {
            let room = announced - self.written;
            if bytes.len() as u64 > room {
                self.cut = true;
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
        self.plain(bytes, out);
        Ok(())
    }

    /// Sends the header, unless that has been done, with the length that the script announced or none.
    fn begin(&mut self, out: &mut impl ResponseSink) -> Result<(), Ended> {
        let Some(mut head) = self.head.take() else {
            return Ok(());
        };
        (self.edit)(&mut head);
        match self.wait(head, false) {
            Some(head) => self.send_head(head, out),
            None => Ok(()),
        }
    }

    /// Returns the header if it may be sent at once. Otherwise stores it until its confirmation.
    fn wait(&mut self, head: ResponseHead, whole: bool) -> Option<ResponseHead> {
        let Some(confirmation) = self.confirmation.and_then(|confirmation| confirmation()) else {
            return Some(head);
        };
        self.waiting = Some(Box::new(Waiting {
            head,
            confirmation,
            whole,
        }));
        None
    }

    /// Sends the header after the script's writes have been confirmed.
    fn confirmed(&mut self, out: &mut impl ResponseSink) -> Result<(), Ended> {
        let Some(waiting) = self.waiting.take() else {
            return Ok(());
        };
        if waiting.whole {
            return self.code_whole(waiting.head, out);
        }
        self.send_head(waiting.head, out)?;
        // The header may have been sent because of a flush.
        if let Some(coder) = &mut self.coder {
            coder.then(Then::Flush);
        }
        Ok(())
    }

    fn send_head(
        &mut self,
        mut head: ResponseHead,
        out: &mut impl ResponseSink,
    ) -> Result<(), Ended> {
        let coding = self.coding(&mut head, self.announced);
        let length = match (coding, self.announced) {
            _ if head.status == 304 => self.length_of_not_modified(),
            (None, Some(announced)) => Length::Known(announced),
            _ => Length::Unknown,
        };
        if let Some(coding) = coding.filter(|_| !self.has_no_content()) {
            // The length is not passed to the encoder, because the script has only announced it.
            match Encoder::new(coding, None) {
                Ok(encoder) => self.coder = Some(Box::new(Coder::new(encoder))),
                Err(error) => return Err(Ended::Failed(Failure::EncoderFailed(error.to_string()))),
            }
        }
        out.begin(&head, length);
        self.began = true;
        for bytes in std::mem::take(&mut self.held).into_pieces() {
            self.plain(bytes, out);
        }
        Ok(())
    }

    /// Returns the coding in which the body is sent, and names it in the header.
    fn coding(&self, head: &mut ResponseHead, length: Option<u64>) -> Option<Coding> {
        let choice = policy::choose(head, self.request, &self.config.encoding, length)?;
        let worth =
            |coding: &Coding| self.has_no_content() || stream::is_worth_waiting(*coding, length);
        let coding = choice.coding.filter(worth);
        choice.say(head, coding.is_some());
        coding
    }

    /// Takes uncompressed bytes of a response that has begun.
    fn plain(&mut self, bytes: Bytes, out: &mut impl ResponseSink) {
        match &mut self.coder {
            Some(coder) => coder.push(bytes),
            None => self.backlog.push(bytes, out),
        }
    }

    /// Compresses pending output. No other event is requested meanwhile.
    fn code(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut impl ResponseSink,
    ) -> Poll<Result<(), Ended>> {
        while let Some(coder) = &mut self.coder
            && let Some(coded) = ready!(coder.poll(cx))
        {
            let whole = self.whole.take();
            match (coded, whole) {
                (Ok((bytes, _)), Some(whole)) => self.send_whole(*whole, vec![bytes], out)?,
                (Ok((bytes, is_last)), None) => {
                    self.backlog.push(bytes, out);
                    self.through |= is_last;
                }
                (Err(error), whole) => {
                    let failure = Failure::EncoderFailed(error.to_string());
                    if whole.is_some() {
                        return Poll::Ready(Err(Ended::Failed(failure)));
                    }
                    out.abort();
                    return Poll::Ready(Err(Ended::CutOff(failure)));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn end(&mut self, out: &mut impl ResponseSink) -> Result<(), Ended> {
        if !self.began {
            return self.whole(out);
        }
        let missing = match self.announced {
            Some(announced) if !self.has_no_content() && self.written < announced => announced,
            _ => {
                match &mut self.coder {
                    Some(coder) => coder.then(Then::End),
                    None => self.through = true,
                }
                return Ok(());
            }
        };
        out.abort();
        Err(Ended::CutOff(Failure::LengthMismatch {
            announced: missing,
            written: self.written,
        }))
    }

    /// Whether the response ends with its header, whatever the script writes or announces, because the request's method
    /// is HEAD or the status is 204 or 304 (RFC 9112 §6.3).
    fn has_no_content(&self) -> bool {
        self.ends_with_header || self.request.method() == b"HEAD"
    }

    /// Handles a response that is complete and of which nothing has been sent.
    fn whole(&mut self, out: &mut impl ResponseSink) -> Result<(), Ended> {
        if let Some(script) = self.replaced.take() {
            return Err(match head::location(&script) {
                Some(target) if script.local_redirect => Ended::LocalRedirect(target.to_vec()),
                _ => Ended::SendFile(script),
            });
        }
        let Some(mut head) = self.head.take() else {
            let missing = howdah_executor::ExecError::ResponseMissing;
            return Err(Ended::Failed(Failure::Run(missing)));
        };
        (self.edit)(&mut head);
        match self.wait(head, true) {
            Some(head) => self.code_whole(head, out),
            None => Ok(()),
        }
    }

    /// Returns the length for a 304. It is that of the response which the client has stored, not of what came with the
    /// 304 (RFC 9110 §8.6): caches would take a zero for the length of their stored response.
    fn length_of_not_modified(&self) -> Length {
        self.announced.map_or(Length::NoBody, Length::Known)
    }

    fn code_whole(
        &mut self,
        mut head: ResponseHead,
        out: &mut impl ResponseSink,
    ) -> Result<(), Ended> {
        let no_content = self.has_no_content();
        // The body is not sent. Its length is that of the response to a GET, if the script announced it.
        let length = if no_content {
            self.announced
        } else {
            Some(self.written)
        };
        let coding = self.coding(&mut head, length);
        let whole = Whole {
            head,
            announced: self.announced,
            coded: coding.is_some(),
        };
        let held = std::mem::take(&mut self.held).into_pieces();
        match coding {
            Some(coding) if !no_content => {
                let encoder = Encoder::new(coding, length)
                    .map_err(|e| Ended::Failed(Failure::EncoderFailed(e.to_string())))?;
                let mut coder = Coder::new(encoder);
                held.into_iter().for_each(|piece| coder.push(piece));
                coder.then(Then::End);
                self.coder = Some(Box::new(coder));
                self.whole = Some(Box::new(whole));
                Ok(())
            }
            _ => self.send_whole(whole, held, out),
        }
    }

    fn send_whole(
        &mut self,
        whole: Whole,
        pieces: Vec<Bytes>,
        out: &mut impl ResponseSink,
    ) -> Result<(), Ended> {
        let no_content = self.has_no_content();
        let announced = whole
            .announced
            .filter(|_| !no_content)
            .unwrap_or(self.written);
        let length = match (no_content, whole.announced) {
            _ if whole.head.status == 304 => self.length_of_not_modified(),
            (true, Some(announced)) if !whole.coded => Length::Known(announced),
            (true, _) => Length::Unknown,
            (false, _) if announced > self.written => Length::Known(announced),
            (false, _) => Length::Known(pieces.iter().map(|piece| piece.len() as u64).sum()),
        };
        out.begin(&whole.head, length);
        self.began = true;
        for piece in pieces {
            self.backlog.push(piece, out);
        }
        if announced > self.written {
            out.abort();
            let written = self.written;
            return Err(Ended::CutOff(Failure::LengthMismatch {
                announced,
                written,
            }));
        }
        self.through = true;
        Ok(())
    }
}

#[cfg(test)]
#[path = "pump_tests.rs"]
mod tests;
