//! The event loop of one worker of a Swoole server: it accepts connections, receives whole requests, passes them to the
//! script one after another, and sends the script's responses. It calls no PHP: [`SwooleWorker::next_event`] returns
//! the next event, and the shim calls the script and asks again. It knows nothing about response headers, which the
//! shim writes.
//!
//! The loop is edge-triggered: a connection is registered once, and a request over a persistent connection costs one
//! `recv` and one `send`. Every wait has a limit: the header and the body must arrive in time, the response must be
//! read in time, and an idle connection is closed eventually.

mod eviction;
mod responses;
mod sharing;
mod timeouts;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use howdah_http1::head::HeadLimits;
use howdah_http1::receiver::{ReceiveRefusal, RequestLimits};

use super::connection::{Phase, READ_CHUNK_BYTES, ReadProgress, SwooleConnection};
use super::counters::{Counter, WorkerCounters};
use super::files::StaticRoot;
use super::log;
use super::response_heads::closing_response;
use super::spill::SpillStore;
use super::sys::{self, EventFlags};
use super::timers::Timers;
use eviction::Eviction;

/// The time limits of a client (ms): for a header block from its first byte, for the time between two bytes of a body
/// or of a response being read, and for the total time that a script waits for one reader.
pub const CLIENT_TIMEOUT_MS: u64 = 30_000;
/// How often connections are checked for timeouts (ms).
const SWEEP_INTERVAL_MS: u64 = 250;

/// Maximum total size of a worker's files in bytes, in addition to one upload; equals the default of the front's
/// `response_spill`.
const MAX_SPILL_BYTES: u64 = 1 << 30;

/// The size of a header block is limited as in Swoole, and the number of headers as in the front.
const HEAD_LIMITS: HeadLimits = HeadLimits {
    request_line: 64 << 10,
    bytes: 64 << 10,
    fields: 128,
};

/// The settings of a server's workers.
#[derive(Debug)]
pub struct SwooleWorkerConfig {
    /// Number of workers.
    pub workers: u64,
    /// Maximum size of a request's body in bytes.
    pub max_body: u64,
    /// Maximum size of a form with files in bytes; 0 applies the limit for other bodies.
    pub max_uploads: u64,
    /// How many bytes of responses may wait for one client in memory before the script has to wait. This matters only
    /// when there is no room for them in a file.
    pub max_output: usize,
    /// Directory of the files that hold long bodies and responses.
    pub spill_directory: PathBuf,
    /// How long a connection may be idle (ms).
    pub idle: u64,
    /// How long a leaving worker may take to exit (ms).
    pub max_wait: u64,
    /// Maximum number of connections of the whole server.
    pub max_connections: u64,
    /// Number of requests after which the worker is replaced; 0: never.
    pub max_requests: u64,
    /// The port that the server listens on; 0 for a unix socket.
    pub port: u16,
    /// Whether the script has callbacks for `connect` and `close`.
    pub reports_connections: bool,
    /// The directory of static files. If `None`, every request goes to the script.
    pub files: Option<StaticRoot>,
}

/// An event for which the script is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerEvent {
    /// A request has arrived on this connection.
    Request(u64),
    /// This timer is due; the flag says whether it repeats.
    Timer(u64, bool),
    /// This connection was accepted. Reported only if the script has callbacks for `connect` and `close`.
    Connected(u64),
    /// This connection has been closed. Reported only if the script has callbacks for `connect` and `close`.
    Closed(u64),
    /// The worker exits, because all its connections are closed or because its time for that is over.
    Leave,
}

/// The marks of the listener and the bell in epoll's data.
const LISTENER_MARK: u64 = u64::MAX;
const BELL_MARK: u64 = u64::MAX - 1;

struct SwooleSlot {
    /// Counts the connections that this slot has had, so a late response cannot reach a different client.
    reuse_count: u64,
    connection: Option<SwooleConnection>,
}

/// The number of bits for a slot's index, which limits a worker's connections.
const SLOT_BITS: u32 = 24;

/// One worker process of a server: its connections and its event loop.
pub struct SwooleWorker {
    config: SwooleWorkerConfig,
    /// The worker's number, from 0.
    pub number: u64,
    counters: WorkerCounters,
    epoll: OwnedFd,
    listener: OwnedFd,
    listening: bool,
    /// The time (ms) until which this worker leaves new connections to the others.
    accept_paused_until: Option<u64>,
    accept_checks: u32,
    /// How many connections this worker accepts before it compares itself with the others again.
    accepts_before_check: u32,
    slots: Vec<SwooleSlot>,
    free_slots: Vec<u32>,
    open_connections: u64,
    /// The connection whose request the script is handling, and whether the response is complete.
    current_call: Option<(u64, bool)>,
    /// Whether the connection of `current_call` must be closed. This happens after the callback returns, because the
    /// script may still read its request.
    close_pending: bool,
    /// Connections to check again without an event from the kernel.
    resumable: VecDeque<u64>,
    events: VecDeque<WorkerEvent>,
    ready: Vec<sys::Event>,
    ready_at: usize,
    scratch: Box<[u8]>,
    spill_store: SpillStore,
    eviction: Eviction,
    now: u64,
    swept_at: u64,
    /// When the worker began to leave (ms); `None` while it serves.
    leaving_since: Option<u64>,
    requests: u64,
    refusal_logged: u64,
}

impl SwooleWorker {
    /// Creates a worker that accepts connections from `listener`.
    pub fn new(
        config: SwooleWorkerConfig,
        number: u64,
        counters: WorkerCounters,
        listener: OwnedFd,
        bell: &OwnedFd,
    ) -> std::io::Result<SwooleWorker> {
        let epoll = sys::create_epoll()?;
        sys::epoll_add(
            &epoll,
            bell.as_fd(),
            EventFlags::IN | EventFlags::ET,
            BELL_MARK,
        )?;
        let now = sys::now_ms();
        let most = MAX_SPILL_BYTES.saturating_add(config.max_uploads);
        let mut worker = SwooleWorker {
            spill_store: SpillStore::new(config.spill_directory.clone(), most),
            eviction: Eviction::default(),
            config,
            number,
            counters,
            epoll,
            listener,
            listening: false,
            accept_paused_until: None,
            accept_checks: 0,
            accepts_before_check: 0,
            slots: Vec::new(),
            free_slots: Vec::new(),
            open_connections: 0,
            current_call: None,
            close_pending: false,
            resumable: VecDeque::new(),
            events: VecDeque::new(),
            ready: Vec::with_capacity(256),
            ready_at: 0,
            scratch: vec![0; READ_CHUNK_BYTES].into_boxed_slice(),
            now,
            swept_at: now,
            leaving_since: None,
            requests: 0,
            refusal_logged: 0,
        };
        worker.listen()?;
        Ok(worker)
    }

    fn listen(&mut self) -> std::io::Result<()> {
        if !self.listening && self.leaving_since.is_none() {
            // EPOLLEXCLUSIVE is not set. With it, the kernel would notify only one worker of a connection, and would
            // not notify the others if that worker is ahead and leaves the connection to them. Without it, idle workers
            // sometimes wake up in vain, but busy workers do not.
            sys::epoll_add(
                &self.epoll,
                self.listener.as_fd(),
                EventFlags::IN,
                LISTENER_MARK,
            )?;
            self.listening = true;
        }
        Ok(())
    }

    fn stop_listening(&mut self) {
        if self.listening {
            sys::epoll_delete(&self.epoll, self.listener.as_fd());
            self.listening = false;
        }
    }

    /// Waits for the next event for which the script is called, and returns it.
    pub fn next_event(&mut self, timers: &mut Timers) -> WorkerEvent {
        self.counters.set(Counter::ScriptCalledAt, 0);
        let event = self.wait_for_event(timers);
        self.counters.set(Counter::ScriptCalledAt, self.now);
        event
    }

    fn wait_for_event(&mut self, timers: &mut Timers) -> WorkerEvent {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            if let Some(id) = self.resumable.pop_front() {
                if let Some(event) = self.resume(id) {
                    return event;
                }
                continue;
            }
            if let Some(event) = self.ready.get(self.ready_at).copied() {
                self.ready_at += 1;
                if let Some(event) = self.on_event(event.data.u64(), event.flags) {
                    return event;
                }
                continue;
            }
            if let Some((id, repeats)) = timers.take_due(self.now) {
                return WorkerEvent::Timer(id, repeats);
            }
            if sys::take_signal_requests() & (sys::STOP | sys::RELOAD) != 0 {
                self.begin_leaving();
            }
            // The sweep waits until all input that has arrived was read. Otherwise, clients that sent their bytes in
            // time during a long call of the script would be treated as late.
            if self.now - self.swept_at >= SWEEP_INTERVAL_MS
                && self.ready.len() < self.ready.capacity()
            {
                self.sweep();
                if !self.events.is_empty() {
                    continue;
                }
            }
            if self.may_exit() {
                return WorkerEvent::Leave;
            }
            if self
                .accept_paused_until
                .is_some_and(|until| self.now >= until)
            {
                self.recheck_accepting();
            }
            let timer = timers.until_next(self.now).unwrap_or(u64::MAX);
            // Without connections there is nothing to sweep.
            let sweep =
                if self.open_connections > 0 || self.leaving_since.is_some() || !self.listening {
                    (self.swept_at + SWEEP_INTERVAL_MS).saturating_sub(self.now)
                } else {
                    u64::MAX
                };
            let accept_pause = self
                .accept_paused_until
                .map_or(u64::MAX, |until| until - self.now);
            let wait = timer.min(sweep).min(accept_pause);
            let wait = (wait < u64::MAX).then_some(wait);
            sys::wait(&self.epoll, &mut self.ready, wait);
            self.ready_at = 0;
            self.now = sys::now_ms();
        }
    }

    fn on_event(&mut self, data: u64, events: EventFlags) -> Option<WorkerEvent> {
        match data {
            LISTENER_MARK => self.accept(),
            // The loop takes the requests of signals (`take_signal_requests`). The bell is edge-triggered, so it need
            // not be emptied.
            BELL_MARK => None,
            id => {
                let connection = self.connection(id)?;
                let now_broken = events.contains(EventFlags::ERR);
                if events.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP) {
                    connection.mark_readable();
                }
                if now_broken {
                    self.close(id);
                    return None;
                }
                if events.contains(EventFlags::OUT) && connection.has_output() {
                    self.flush(id);
                }
                self.resume(id)
            }
        }
    }

    /// Accepts one connection at a time: while this worker is busy, another worker accepts the next one.
    fn accept(&mut self) -> Option<WorkerEvent> {
        if !self.listening {
            return None;
        }
        let total = self.counters.sum(Counter::Connections);
        if total >= self.config.max_connections && !self.close_silent_connection() {
            // The sweep decides when to listen again.
            self.stop_listening();
            return None;
        }
        let (socket, peer) = match sys::accept(self.listener.as_fd()) {
            Ok(accepted) => accepted,
            Err(e) => {
                if matches!(
                    e.raw_os_error(),
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)
                ) && !self.close_silent_connection()
                {
                    log::warn(&format!(
                        "CannotAccept: cannot accept a connection: {e}; new connections wait"
                    ));
                    self.stop_listening();
                }
                return None;
            }
        };
        let slot = match self.free_slots.pop() {
            Some(slot) => slot,
            None if self.slots.len() >= 1 << SLOT_BITS => return None,
            None => {
                self.slots.push(SwooleSlot {
                    reuse_count: 0,
                    connection: None,
                });
                (self.slots.len() - 1) as u32
            }
        };
        let id = self.connection_id(slot);
        let events = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        if sys::epoll_add(&self.epoll, socket.as_fd(), events, id).is_err() {
            self.free_slots.push(slot);
            return None;
        }
        self.slots[slot as usize].connection = Some(SwooleConnection::new(socket, peer, self.now));
        self.open_connections += 1;
        self.counters
            .set(Counter::Connections, self.open_connections);
        self.counters.add(Counter::Accepted, 1);
        self.pause_accepting_when_ahead();
        self.config
            .reports_connections
            .then_some(WorkerEvent::Connected(id))
    }

    /// Returns the number by which a script knows a connection: unique in the server, never 0.
    fn connection_id(&self, slot: u32) -> u64 {
        let turn = self.slots[slot as usize].reuse_count;
        (turn << SLOT_BITS | u64::from(slot)) * self.config.workers + self.number + 1
    }

    fn slot_of(&self, id: u64) -> Option<usize> {
        let n = id.checked_sub(1)?;
        if n % self.config.workers != self.number {
            return None;
        }
        let n = n / self.config.workers;
        let slot = (n & ((1 << SLOT_BITS) - 1)) as usize;
        let known = self.slots.get(slot)?;
        (known.reuse_count == n >> SLOT_BITS && known.connection.is_some()).then_some(slot)
    }

    /// Returns the open connection with this id, or `None` if it has been closed.
    pub fn connection(&mut self, id: u64) -> Option<&mut SwooleConnection> {
        let slot = self.slot_of(id)?;
        self.slots[slot].connection.as_mut()
    }

    /// Reads from a connection and returns the event that results, if any.
    fn resume(&mut self, id: u64) -> Option<WorkerEvent> {
        let slot = self.slot_of(id)?;
        let limits = RequestLimits {
            head: HEAD_LIMITS,
            body: self.config.max_body,
            uploads: self.config.max_uploads,
        };
        let connection = self.slots[slot].connection.as_mut()?;
        if connection.has_output() && connection.phase == Phase::Receiving {
            // No new request is read until the client has received the previous response.
            return None;
        }
        match connection.read(&mut self.scratch, &limits, &self.spill_store, self.now) {
            ReadProgress::Incomplete => None,
            ReadProgress::Request => {
                self.requests += 1;
                self.counters.add(Counter::Requests, 1);
                if self.config.max_requests > 0 && self.requests >= self.config.max_requests {
                    self.begin_leaving();
                }
                if self.send_static(id) {
                    return None;
                }
                self.current_call = Some((id, false));
                Some(WorkerEvent::Request(id))
            }
            ReadProgress::Refused(why) => {
                self.refuse(id, why);
                None
            }
            ReadProgress::Ended => {
                self.close(id);
                None
            }
        }
    }

    /// Sends an error response to a request that is malformed, too large or too slow, and closes the connection.
    fn refuse(&mut self, id: u64, why: ReceiveRefusal) {
        self.counters.add(Counter::Refused, 1);
        let now = self.now;
        let mut client = "unix socket".to_owned();
        if let Some(slot) = self.slot_of(id)
            && let Some(connection) = &mut self.slots[slot].connection
        {
            if let Some(peer) = connection.peer {
                client = peer.ip().to_string();
            }
            let head = closing_response(why.status(), why.name());
            let alive = connection.write(head.as_bytes(), b"", &self.spill_store, now);
            connection.drop_request();
            connection.close_after_output(now);
            if !alive {
                self.close(id);
            }
        }
        // At most one line per second is logged, so a client cannot fill the disk.
        if now - self.refusal_logged >= 1000 || self.refusal_logged == 0 {
            self.refusal_logged = now;
            log::info(&format!(
                "{}: answered {} to {client}",
                why.name(),
                why.status()
            ));
        }
        self.resumable.push_back(id);
    }

    /// Closes a connection at once, unless the script is handling its request; then it is closed after the callback.
    pub fn close(&mut self, id: u64) {
        if let Some((called, answered)) = &mut self.current_call
            && *called == id
        {
            *answered = true;
            self.close_pending = true;
            return;
        }
        let Some(slot) = self.slot_of(id) else { return };
        self.slots[slot].connection = None;
        self.slots[slot].reuse_count += 1;
        self.free_slots.push(slot as u32);
        self.open_connections -= 1;
        if self.leaving_since.is_none() {
            // Once this worker is leaving, the counter belongs to its successor.
            self.counters
                .set(Counter::Connections, self.open_connections);
        }
        self.counters.add(Counter::Closed, 1);
        if self.config.reports_connections {
            self.events.push_back(WorkerEvent::Closed(id));
        }
    }

    /// Stops accepting. The worker exits when its connections are closed, or after `max_wait`.
    pub fn begin_leaving(&mut self) {
        if self.leaving_since.is_none() {
            self.stop_listening();
            self.accept_paused_until = None;
            self.counters.set(Counter::Ready, 0);
            self.leaving_since = Some(self.now);
        }
    }

    fn may_exit(&mut self) -> bool {
        let Some(since) = self.leaving_since else {
            return false;
        };
        self.open_connections == 0 || self.now - since >= self.config.max_wait
    }

    /// Returns the server's counters, with this worker as the owner.
    pub fn counters(&self) -> &WorkerCounters {
        &self.counters
    }

    /// Returns the server's settings.
    pub fn config(&self) -> &SwooleWorkerConfig {
        &self.config
    }
}
