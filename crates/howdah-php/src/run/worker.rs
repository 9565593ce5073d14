//! The event loop of one worker of a Swoole server: it accepts connections, receives whole requests, passes them to the
//! script one after another, and sends the script's responses. It calls no PHP: [`SwooleWorker::next`] returns the next
//! event, and the shim calls the script and asks again. It knows nothing about response headers, which the shim writes.
//!
//! The loop is edge-triggered: a connection is registered once, and a request over a persistent connection costs one
//! `recv` and one `send`. Every wait has a limit: the header and the body must arrive in time, the response must be
//! read in time, and an idle connection is closed eventually.

mod answers;
mod eviction;
mod sharing;
mod timeouts;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use howdah_http1::head::HeadLimits;
use howdah_http1::receiver::{Limits, Refused};

use super::connection::{Connection, Phase, Progress, SCRATCH};
use super::counters::{Counter, Counters};
use super::files::Root;
use super::heads::plain_head;
use super::log;
use super::spill::Store;
use super::sys::{self, EventFlags};
use super::timers::Timers;
use eviction::Eviction;

/// The time limits of a client (ms): for a header block from its first byte, for the time between two bytes of a body
/// or of a response being read, and for the total time that a script waits for one reader.
pub const TIMEOUT: u64 = 30_000;
/// How often connections are checked for time-outs (ms).
const SWEEP: u64 = 250;

/// Maximum total size of a worker's files in bytes, in addition to one upload; equals the default of the front's
/// `response_spill`.
const MAX_SPILLED: u64 = 1 << 30;

/// The size of a header block is limited as in Swoole, and the number of headers as in the front.
const HEAD_LIMITS: HeadLimits = HeadLimits {
    request_line: 64 << 10,
    bytes: 64 << 10,
    fields: 128,
};

/// The settings of a server's workers.
#[derive(Debug)]
pub struct Config {
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
    pub files: Option<Root>,
}

/// An event for which the script is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request has arrived on this connection.
    Request(u64),
    /// This timer is due; the flag says whether it repeats.
    Timer(u64, bool),
    /// This connection was accepted. Reported only if the script has callbacks for `connect` and `close`.
    Connected(u64),
    /// This connection has been closed. Reported only if the script has callbacks for `connect` and `close`.
    Closed(u64),
    /// The worker exits: its requests are finished, or its time for that is over.
    Leave,
}

/// The marks of the listener and the bell in epoll's data.
const LISTENER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;

struct Slot {
    /// Counts the connections that this slot has had, so a late response cannot reach a different client.
    turn: u64,
    connection: Option<Connection>,
}

/// The number of bits for a slot's index, which limits a worker's connections.
const SLOT_BITS: u32 = 24;

/// One worker process of a server: its connections and its event loop.
pub struct SwooleWorker {
    config: Config,
    /// The worker's number, from 0.
    pub number: u64,
    counters: Counters,
    epoll: OwnedFd,
    listener: OwnedFd,
    listening: bool,
    /// Until when (ms) this worker leaves new connections to the others.
    accept_paused_until: Option<u64>,
    looks: u32,
    /// How many connections this worker accepts before it compares itself with the others again.
    turn: u32,
    slots: Vec<Slot>,
    free: Vec<u32>,
    open: u64,
    /// The connection whose request the script is handling, and whether the response is complete.
    called: Option<(u64, bool)>,
    /// That connection must be closed. The script may still read its request, so it is closed after the callback
    /// returns.
    close_pending: bool,
    /// Connections to check again without an event from the kernel.
    again: VecDeque<u64>,
    events: VecDeque<Event>,
    ready: Vec<sys::Event>,
    ready_at: usize,
    scratch: Box<[u8]>,
    store: Store,
    eviction: Eviction,
    now: u64,
    swept: u64,
    /// When the worker began to leave (ms); `None` while it serves.
    leaving: Option<u64>,
    requests: u64,
    refusal_logged: u64,
}

impl SwooleWorker {
    /// Creates a worker that accepts connections from `listener`.
    pub fn new(
        config: Config,
        number: u64,
        counters: Counters,
        listener: OwnedFd,
        bell: &OwnedFd,
    ) -> std::io::Result<SwooleWorker> {
        let epoll = sys::epoll()?;
        sys::epoll_add(&epoll, bell.as_fd(), EventFlags::IN | EventFlags::ET, BELL)?;
        let now = sys::now_ms();
        let most = MAX_SPILLED.saturating_add(config.max_uploads);
        let mut worker = SwooleWorker {
            store: Store::new(config.spill_directory.clone(), most),
            eviction: Eviction::default(),
            config,
            number,
            counters,
            epoll,
            listener,
            listening: false,
            accept_paused_until: None,
            looks: 0,
            turn: 0,
            slots: Vec::new(),
            free: Vec::new(),
            open: 0,
            called: None,
            close_pending: false,
            again: VecDeque::new(),
            events: VecDeque::new(),
            ready: Vec::with_capacity(256),
            ready_at: 0,
            scratch: vec![0; SCRATCH].into_boxed_slice(),
            now,
            swept: now,
            leaving: None,
            requests: 0,
            refusal_logged: 0,
        };
        worker.listen()?;
        Ok(worker)
    }

    fn listen(&mut self) -> std::io::Result<()> {
        if !self.listening && self.leaving.is_none() {
            // Without EPOLLEXCLUSIVE: the kernel would notify one worker of a connection, and would not notify the
            // others when that worker is ahead and leaves the connection to them. Idle workers now wake up in vain at
            // times; busy workers do not.
            sys::epoll_add(&self.epoll, self.listener.as_fd(), EventFlags::IN, LISTENER)?;
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
    pub fn next(&mut self, timers: &mut Timers) -> Event {
        self.counters.set(Counter::Called, 0);
        let event = self.wait_for_event(timers);
        self.counters.set(Counter::Called, self.now);
        event
    }

    fn wait_for_event(&mut self, timers: &mut Timers) -> Event {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            if let Some(id) = self.again.pop_front() {
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
            if let Some((id, repeats)) = timers.due(self.now) {
                return Event::Timer(id, repeats);
            }
            if sys::asked() & (sys::STOP | sys::RELOAD) != 0 {
                self.leave();
            }
            // Only when everything that has arrived was read: after a long call of the script, clients that sent in
            // time must not be treated as late.
            if self.now - self.swept >= SWEEP && self.ready.len() < self.ready.capacity() {
                self.sweep();
                if !self.events.is_empty() {
                    continue;
                }
            }
            if self.has_left() {
                return Event::Leave;
            }
            if self
                .accept_paused_until
                .is_some_and(|until| self.now >= until)
            {
                self.look_again();
            }
            let timer = timers.wait(self.now).unwrap_or(u64::MAX);
            // Without connections there is nothing to sweep.
            let sweep = if self.open > 0 || self.leaving.is_some() || !self.listening {
                (self.swept + SWEEP).saturating_sub(self.now)
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

    fn on_event(&mut self, data: u64, events: EventFlags) -> Option<Event> {
        match data {
            LISTENER => self.accept(),
            // The loop reads the requests of signals with `asked`. The bell is edge-triggered, so it need not be
            // emptied.
            BELL => None,
            id => {
                let connection = self.connection(id)?;
                let now_broken = events.contains(EventFlags::ERR);
                if events.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP) {
                    connection.on_readable();
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
    fn accept(&mut self) -> Option<Event> {
        if !self.listening {
            return None;
        }
        let total = self.counters.sum(Counter::Connections);
        if total >= self.config.max_connections && !self.close_a_silent_one() {
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
                ) && !self.close_a_silent_one()
                {
                    log::warn(&format!("CannotAccept: {e}; new connections wait"));
                    self.stop_listening();
                }
                return None;
            }
        };
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() >= 1 << SLOT_BITS => return None,
            None => {
                self.slots.push(Slot {
                    turn: 0,
                    connection: None,
                });
                (self.slots.len() - 1) as u32
            }
        };
        let id = self.id(slot);
        let events = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        if sys::epoll_add(&self.epoll, socket.as_fd(), events, id).is_err() {
            self.free.push(slot);
            return None;
        }
        self.slots[slot as usize].connection = Some(Connection::new(socket, peer, self.now));
        self.open += 1;
        self.counters.set(Counter::Connections, self.open);
        self.counters.add(Counter::Accepted, 1);
        self.pause_accepting_when_ahead();
        self.config
            .reports_connections
            .then_some(Event::Connected(id))
    }

    /// Returns the number by which a script knows a connection: unique in the server, never 0.
    fn id(&self, slot: u32) -> u64 {
        let turn = self.slots[slot as usize].turn;
        (turn << SLOT_BITS | u64::from(slot)) * self.config.workers + self.number + 1
    }

    fn slot(&self, id: u64) -> Option<usize> {
        let n = id.checked_sub(1)?;
        if n % self.config.workers != self.number {
            return None;
        }
        let n = n / self.config.workers;
        let slot = (n & ((1 << SLOT_BITS) - 1)) as usize;
        let known = self.slots.get(slot)?;
        (known.turn == n >> SLOT_BITS && known.connection.is_some()).then_some(slot)
    }

    /// Returns the open connection with this id, or `None` if it has been closed.
    pub fn connection(&mut self, id: u64) -> Option<&mut Connection> {
        let slot = self.slot(id)?;
        self.slots[slot].connection.as_mut()
    }

    /// Reads from a connection and returns the event that results, if any.
    fn resume(&mut self, id: u64) -> Option<Event> {
        let slot = self.slot(id)?;
        let limits = Limits {
            head: HEAD_LIMITS,
            body: self.config.max_body,
            uploads: self.config.max_uploads,
        };
        let connection = self.slots[slot].connection.as_mut()?;
        if connection.has_output() && connection.phase == Phase::Receiving {
            // No new request is read until the client has received the previous response.
            return None;
        }
        match connection.read(&mut self.scratch, &limits, &self.store, self.now) {
            Progress::Waits => None,
            Progress::Request => {
                self.requests += 1;
                self.counters.add(Counter::Requests, 1);
                if self.config.max_requests > 0 && self.requests >= self.config.max_requests {
                    self.leave();
                }
                if self.send_static(id) {
                    return None;
                }
                self.called = Some((id, false));
                Some(Event::Request(id))
            }
            Progress::Refused(why) => {
                self.refuse(id, why);
                None
            }
            Progress::Over => {
                self.close(id);
                None
            }
        }
    }

    /// Sends an error response to a malformed request and closes the connection.
    fn refuse(&mut self, id: u64, why: Refused) {
        self.counters.add(Counter::Refused, 1);
        let now = self.now;
        let mut client = "unix socket".to_owned();
        if let Some(slot) = self.slot(id)
            && let Some(connection) = &mut self.slots[slot].connection
        {
            if let Some(peer) = connection.peer {
                client = peer.ip().to_string();
            }
            let head = plain_head(why.status(), why.name());
            let alive = connection.write(head.as_bytes(), b"", &self.store, now);
            connection.forget_request();
            connection.close_softly(now);
            if !alive {
                self.close(id);
            }
        }
        // At most one line per second: a client must not be able to fill the disk.
        if now - self.refusal_logged >= 1000 || self.refusal_logged == 0 {
            self.refusal_logged = now;
            log::info(&format!(
                "{}: answered {} to {client}",
                why.name(),
                why.status()
            ));
        }
        self.again.push_back(id);
    }

    /// Closes a connection at once, unless the script is handling its request; then it is closed after the callback.
    pub fn close(&mut self, id: u64) {
        if let Some((called, answered)) = &mut self.called
            && *called == id
        {
            *answered = true;
            self.close_pending = true;
            return;
        }
        let Some(slot) = self.slot(id) else { return };
        self.slots[slot].connection = None;
        self.slots[slot].turn += 1;
        self.free.push(slot as u32);
        self.open -= 1;
        if self.leaving.is_none() {
            // Once this worker is leaving, the counter belongs to its successor.
            self.counters.set(Counter::Connections, self.open);
        }
        self.counters.add(Counter::Closed, 1);
        if self.config.reports_connections {
            self.events.push_back(Event::Closed(id));
        }
    }

    /// Stops accepting. The worker exits when its running requests are finished.
    pub fn leave(&mut self) {
        if self.leaving.is_none() {
            self.stop_listening();
            self.accept_paused_until = None;
            self.counters.set(Counter::Ready, 0);
            self.leaving = Some(self.now);
        }
    }

    fn has_left(&mut self) -> bool {
        let Some(since) = self.leaving else {
            return false;
        };
        self.open == 0 || self.now - since >= self.config.max_wait
    }

    /// Returns the server's counters, with this worker as the owner.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the server's settings.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
