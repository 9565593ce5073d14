//! The event loop of one worker of a Swoole server: accepts, receives whole requests, hands them to
//! the script one after the other, sends what it answers. Calls no PHP: [`Worker::next`] returns
//! what is to be called next, and the shim comes back for more. Knows nothing of headers of
//! answers; those are the shim's.
//!
//! Edge-triggered: a connection is registered once, and a request over a kept connection costs one
//! `recv` and one `send`. Every wait has a limit: a head and a body must arrive in time, an answer
//! must be taken in time, an idle connection is closed in the end.

mod sharing;
mod silent;

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use howdah_http1::head::HeadLimits;
use howdah_http1::receiver::{Limits, Refused};
use howdah_http1::refusal::BadRequest;

use super::connection::{Connection, Phase, Progress, SCRATCH};
use super::files::{Found, Root};
use super::heads::{file_head, plain_head};
use super::log;
use super::score::{Counter, Score};
use super::spill::Store;
use super::sys;
use super::timers::Timers;
use silent::Silent;

/// How long a head may take from its first byte, a body or a reader from one byte to the next, and a
/// script wait for all of one reader's pauses (ms).
pub const PATIENCE: u64 = 30_000;
/// How long a refused client may take to hang up (ms).
const FAREWELL: u64 = 2_000;
/// How long a kept connection may still bring a request while the worker leaves (ms).
const LAST_REQUEST: u64 = 500;
/// How often connections are looked at for time-outs (ms).
const SWEEP: u64 = 250;

/// Bytes of a worker's files together, besides one upload: the front's `response_spill`.
const MAX_SPILLED: u64 = 1 << 30;

/// Swoole's limit of a whole head, the front's of fields.
const HEAD_LIMITS: HeadLimits = HeadLimits {
    request_line: 64 << 10,
    bytes: 64 << 10,
    fields: 128,
};

/// What holds for a server's workers.
#[derive(Debug)]
pub struct Config {
    /// Workers of the server.
    pub workers: u64,
    /// Bytes of a request's body.
    pub max_body: u64,
    /// Bytes of a form with files; 0: no more than of others.
    pub max_uploads: u64,
    /// Bytes of answers that wait for one client in memory, before the script does: when there is
    /// no room for them in a file.
    pub max_output: usize,
    /// Where long bodies and answers are kept.
    pub spill_directory: PathBuf,
    /// How long a connection may be idle (ms).
    pub idle: u64,
    /// How long a leaving worker may take (ms).
    pub max_wait: u64,
    /// Connections of the whole server.
    pub max_connections: u64,
    /// Requests before the worker is replaced; 0: never.
    pub max_requests: u64,
    /// The port of the address.
    pub port: u16,
    /// Whether `connect` and `close` have callbacks.
    pub tells_connections: bool,
    /// Static files.
    pub files: Option<Root>,
}

/// What the script is to be called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request of that connection.
    Request(u64),
    /// A timer, and whether it comes again.
    Timer(u64, bool),
    /// A connection came.
    Connected(u64),
    /// A connection is gone.
    Closed(u64),
    /// Leave: everything is through, or the time is over.
    Leave,
}

/// Marks of the listener and the bell among epoll's data.
const LISTENER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;

struct Slot {
    /// Counts the connections this slot has had, so that a late answer finds no stranger.
    turn: u64,
    connection: Option<Connection>,
}

/// Slots of connections a worker can have.
const SLOT_BITS: u32 = 24;

/// One worker.
pub struct Worker {
    config: Config,
    /// Its number, from 0.
    pub number: u64,
    score: Score,
    epoll: OwnedFd,
    _bell: OwnedFd,
    listener: OwnedFd,
    listening: bool,
    /// Until when (ms) new connections are left to the others.
    modest_until: Option<u64>,
    looks: u32,
    /// Connections taken before looking at the others again.
    turn: u32,
    slots: Vec<Slot>,
    free: Vec<u32>,
    open: u64,
    /// The connection whose request the script is called with, and whether it has been answered.
    called: Option<(u64, bool)>,
    /// That connection is over. Its request is still the script's to read: it goes with the call.
    doomed: bool,
    /// Connections to look at again without the kernel saying so.
    again: VecDeque<u64>,
    told: VecDeque<Event>,
    events: Vec<sys::Event>,
    at: usize,
    scratch: Box<[u8]>,
    store: Store,
    silent: Silent,
    now: u64,
    swept: u64,
    /// Since when it leaves (ms).
    leaving: Option<u64>,
    requests: u64,
    refusal_logged: u64,
}

impl Worker {
    /// Begins to accept from `listener`.
    pub fn new(
        config: Config,
        number: u64,
        score: Score,
        listener: OwnedFd,
        bell: OwnedFd,
    ) -> std::io::Result<Worker> {
        let epoll = sys::epoll()?;
        sys::watch(
            epoll.as_raw_fd(),
            bell.as_raw_fd(),
            libc::EPOLLIN | libc::EPOLLET,
            BELL,
        )?;
        let now = sys::now_ms();
        let most = MAX_SPILLED.saturating_add(config.max_uploads);
        let mut worker = Worker {
            store: Store::new(config.spill_directory.clone(), most),
            silent: Silent::default(),
            config,
            number,
            score,
            epoll,
            _bell: bell,
            listener,
            listening: false,
            modest_until: None,
            looks: 0,
            turn: 0,
            slots: Vec::new(),
            free: Vec::new(),
            open: 0,
            called: None,
            doomed: false,
            again: VecDeque::new(),
            told: VecDeque::new(),
            events: Vec::with_capacity(256),
            at: 0,
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
            // Not exclusive: the kernel would tell one worker of a connection, and not the others when
            // that one, leading, leaves it to them. Idle workers wake for nothing then; busy ones do not.
            let events = libc::EPOLLIN;
            sys::watch(
                self.epoll.as_raw_fd(),
                self.listener.as_raw_fd(),
                events,
                LISTENER,
            )?;
            self.listening = true;
        }
        Ok(())
    }

    fn stop_listening(&mut self) {
        if self.listening {
            sys::unwatch(self.epoll.as_raw_fd(), self.listener.as_raw_fd());
            self.listening = false;
        }
    }

    /// What the script is to be called for next; waits for it.
    pub fn next(&mut self, timers: &mut Timers) -> Event {
        self.score.set(Counter::Called, 0);
        let event = self.wait_for_event(timers);
        self.score.set(Counter::Called, self.now);
        event
    }

    fn wait_for_event(&mut self, timers: &mut Timers) -> Event {
        loop {
            if let Some(event) = self.told.pop_front() {
                return event;
            }
            if let Some(id) = self.again.pop_front() {
                if let Some(event) = self.go_on(id) {
                    return event;
                }
                continue;
            }
            if let Some(event) = self.events.get(self.at).copied() {
                self.at += 1;
                if let Some(event) = self.on_event(event.u64, event.events) {
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
            // Only when all that has come is read: after a long call of the script, clients that
            // have sent in time must not be taken for late ones.
            if self.now - self.swept >= SWEEP && self.events.len() < self.events.capacity() {
                self.sweep();
                if !self.told.is_empty() {
                    continue;
                }
            }
            if self.has_left() {
                return Event::Leave;
            }
            if self.modest_until.is_some_and(|until| self.now >= until) {
                self.look_again();
            }
            let timer = timers.wait(self.now).unwrap_or(u64::MAX);
            // With nobody connected there is nothing to sweep.
            let sweep = if self.open > 0 || self.leaving.is_some() || !self.listening {
                (self.swept + SWEEP).saturating_sub(self.now)
            } else {
                u64::MAX
            };
            let modesty = self.modest_until.map_or(u64::MAX, |until| until - self.now);
            let wait = timer.min(sweep).min(modesty);
            let wait = i32::try_from(wait).unwrap_or(if wait == u64::MAX { -1 } else { i32::MAX });
            sys::wait(self.epoll.as_raw_fd(), &mut self.events, wait);
            self.at = 0;
            self.now = sys::now_ms();
        }
    }

    fn on_event(&mut self, data: u64, events: u32) -> Option<Event> {
        match data {
            LISTENER => self.accept(),
            // Read by looking what is asked; edge-triggered, so it need not be emptied.
            BELL => None,
            id => {
                let connection = self.connection(id)?;
                let now_broken = events & libc::EPOLLERR as u32 != 0;
                if events & (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP) as u32 != 0 {
                    connection.on_readable();
                }
                if now_broken {
                    self.close(id);
                    return None;
                }
                if events & libc::EPOLLOUT as u32 != 0 && connection.has_output() {
                    self.flush(id);
                }
                self.go_on(id)
            }
        }
    }

    /// One connection a time: while this worker is busy, another one takes the next.
    fn accept(&mut self) -> Option<Event> {
        if !self.listening {
            return None;
        }
        let total = self.score.sum(Counter::Connections);
        if total >= self.config.max_connections && !self.close_a_silent_one() {
            // Looked at again by the sweep.
            self.stop_listening();
            return None;
        }
        let (socket, peer) = match sys::accept(self.listener.as_raw_fd()) {
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
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        if sys::watch(self.epoll.as_raw_fd(), socket.as_raw_fd(), events, id).is_err() {
            self.free.push(slot);
            return None;
        }
        self.slots[slot as usize].connection = Some(Connection::new(socket, peer, self.now));
        self.open += 1;
        self.score.set(Counter::Connections, self.open);
        self.score.add(Counter::Accepted, 1);
        self.leave_some_to_others();
        self.config
            .tells_connections
            .then_some(Event::Connected(id))
    }

    /// The number a script knows a connection by: unique in the server, never 0.
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

    /// The slot of a connection whose request waits for an answer.
    fn answering_slot(&mut self, id: u64) -> Option<usize> {
        let answering = |c: &Connection| c.phase == Phase::Answering;
        let slot = self.slot(id).filter(|_| self.lives(id))?;
        self.slots[slot]
            .connection
            .as_ref()
            .is_some_and(answering)
            .then_some(slot)
    }

    /// The connection if its request waits for an answer.
    fn answering(&mut self, id: u64) -> Option<&mut Connection> {
        let slot = self.answering_slot(id)?;
        self.slots[slot].connection.as_mut()
    }

    /// A connection that lives.
    pub fn connection(&mut self, id: u64) -> Option<&mut Connection> {
        let slot = self.slot(id)?;
        self.slots[slot].connection.as_mut()
    }

    /// Reads on, and says what came of it.
    fn go_on(&mut self, id: u64) -> Option<Event> {
        let slot = self.slot(id)?;
        let limits = Limits {
            head: HEAD_LIMITS,
            body: self.config.max_body,
            uploads: self.config.max_uploads,
        };
        let connection = self.slots[slot].connection.as_mut()?;
        if connection.has_output() && connection.phase == Phase::Receiving {
            // The answer before is not taken yet: no new request until it is.
            return None;
        }
        match connection.read(&mut self.scratch, &limits, &self.store, self.now) {
            Progress::Waits => None,
            Progress::Request => {
                self.requests += 1;
                self.score.add(Counter::Requests, 1);
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

    /// Answers a request that is none, and closes.
    fn refuse(&mut self, id: u64, why: Refused) {
        self.score.add(Counter::Refused, 1);
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
        // A line a second at most: what a client sends must not fill a disk.
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

    /// Closes a connection at once; the one whose request the script is called with, afterwards.
    pub fn close(&mut self, id: u64) {
        if let Some((called, answered)) = &mut self.called
            && *called == id
        {
            *answered = true;
            self.doomed = true;
            return;
        }
        let Some(slot) = self.slot(id) else { return };
        self.slots[slot].connection = None;
        self.slots[slot].turn += 1;
        self.free.push(slot as u32);
        self.open -= 1;
        if self.leaving.is_none() {
            // Afterwards the count is the successor's.
            self.score.set(Counter::Connections, self.open);
        }
        self.score.add(Counter::Closed, 1);
        if self.config.tells_connections {
            self.told.push_back(Event::Closed(id));
        }
    }

    /// Whether the connection lives on after the answer being made.
    pub fn keeps(&mut self, id: u64) -> bool {
        let leaving = self.leaving.is_some();
        self.connection(id)
            .is_some_and(|c| c.receiver.keep_alive() && !c.close_after && !leaving)
    }

    /// Sends a part of an answer. `false`: the client is gone.
    pub fn send(&mut self, id: u64, first: &[u8], second: &[u8]) -> bool {
        let now = self.now;
        let Some(slot) = self.answering_slot(id) else {
            return false;
        };
        let alive = self.slots[slot]
            .connection
            .as_mut()
            .is_some_and(|c| c.write(first, second, &self.store, now));
        if !alive {
            self.close(id);
        }
        alive
    }

    /// Waits until the client has taken enough of a streamed answer that found no room in a file;
    /// for this client alone, as the script cannot be interrupted, and so for [`PATIENCE`] in all.
    /// `false`: it does not, or is gone.
    pub fn make_room(&mut self, id: u64) -> bool {
        let limit = self.config.max_output;
        loop {
            let now = sys::now_ms();
            self.now = now;
            let Some(connection) = self.answering(id) else {
                return false;
            };
            if connection.pending_output() <= limit {
                return true;
            }
            let alive = connection.flush(now);
            if alive && connection.pending_output() <= limit {
                return true;
            }
            if !alive || connection.waited >= PATIENCE {
                if alive {
                    log::warn(
                        "ClientTooSlow: a script waited 30 s for the client of its answer, which is cut off",
                    );
                }
                self.close(id);
                return false;
            }
            sys::wait_writable(connection.fd(), 1000);
            connection.waited += sys::now_ms() - now;
        }
    }

    /// Sends a part of a file. `false`: the client is gone.
    pub fn send_file(&mut self, id: u64, file: OwnedFd, offset: u64, length: u64) -> bool {
        let now = self.now;
        let Some(connection) = self.answering(id) else {
            return false;
        };
        if connection.write_file(file, offset, length, now) {
            return true;
        }
        self.close(id);
        false
    }

    /// The answer is complete. While the script's callback runs, its request is still read.
    pub fn answered(&mut self, id: u64, keep: bool) {
        if let Some(connection) = self.answering(id)
            && !keep
        {
            connection.close_after = true;
        }
        match &mut self.called {
            Some((called, answered)) if *called == id => *answered = true,
            _ => self.finish(id),
        }
    }

    /// The script's callback has returned: nothing of its request is read any more.
    pub fn returned(&mut self) {
        let doomed = std::mem::take(&mut self.doomed);
        match self.called.take() {
            Some((id, _)) if doomed => self.close(id),
            Some((id, true)) => self.finish(id),
            _ => {}
        }
    }

    /// Whether the connection is there for more than its request to be read.
    pub fn lives(&mut self, id: u64) -> bool {
        let doomed = self.doomed && self.called.is_some_and(|(called, _)| called == id);
        !doomed && self.connection(id).is_some()
    }

    /// After an answer: the next request, or the end.
    fn finish(&mut self, id: u64) {
        let now = self.now;
        let Some(connection) = self.connection(id) else {
            return;
        };
        if connection.phase != Phase::Answering {
            return;
        }
        if connection.close_after {
            connection.forget_request();
            connection.close_softly(now);
            // The end of a client that hangs up at once need not be waited for.
            connection.on_readable();
            self.again.push_back(id);
            return;
        }
        connection.next(now);
        if connection.may_go_on() {
            self.again.push_back(id);
        }
    }

    /// The socket takes bytes again.
    fn flush(&mut self, id: u64) {
        let now = self.now;
        let Some(connection) = self.connection(id) else {
            return;
        };
        if !connection.flush(now) {
            self.close(id);
        } else if !connection.has_output() && connection.phase == Phase::Closing {
            sys::shut_sending(connection.fd());
        }
    }

    fn send_static(&mut self, id: u64) -> bool {
        let Some(root) = &self.config.files else {
            return false;
        };
        let Some(slot) = self.slot(id) else {
            return false;
        };
        let Some(head) = self.slots[slot]
            .connection
            .as_ref()
            .and_then(|c| c.receiver.head())
        else {
            return false;
        };
        let Some(found) = root.find(head) else {
            return false;
        };
        let wants_body = head.method() == b"GET" && !found.not_modified;
        let keep = self.keeps(id);
        let head = file_head(&found, keep);
        let Found { file, size, .. } = found;
        if self.send(id, head.as_bytes(), b"")
            && (!wants_body || self.send_file(id, file.into(), 0, size))
        {
            self.answered(id, keep);
        }
        true
    }

    /// Accepts no more, and leaves when what runs is through.
    pub fn leave(&mut self) {
        if self.leaving.is_none() {
            self.stop_listening();
            self.modest_until = None;
            self.score.set(Counter::Ready, 0);
            self.leaving = Some(self.now);
        }
    }

    fn has_left(&mut self) -> bool {
        let Some(since) = self.leaving else {
            return false;
        };
        self.open == 0 || self.now - since >= self.config.max_wait
    }

    /// Looks at every connection's time, and whether connections may be accepted again.
    fn sweep(&mut self) {
        self.swept = self.now;
        if !self.listening && self.leaving.is_none() && self.modest_until.is_none() {
            let total = self.score.sum(Counter::Connections);
            if (total < self.config.max_connections || self.has_a_silent_one())
                && let Err(e) = self.listen()
            {
                log::warn(&format!("CannotListen: {e}"));
            }
        }
        let (now, idle, leaving) = (self.now, self.config.idle, self.leaving.is_some());
        // A script that closes silent connections early means those within a request, too.
        let patience = PATIENCE.min(idle);
        for slot in 0..self.slots.len() {
            let Some(connection) = &self.slots[slot].connection else {
                continue;
            };
            let quiet = now.saturating_sub(connection.active);
            let id = self.id(slot as u32);
            match connection.phase {
                Phase::Closing if quiet > FAREWELL && !connection.has_output() => self.close(id),
                _ if connection.has_output() => {
                    if quiet > PATIENCE || connection.reads_too_slowly(now) {
                        self.close(id);
                    }
                }
                Phase::Receiving if connection.is_idle() => {
                    if quiet > idle || (leaving && quiet > LAST_REQUEST) {
                        self.close(id);
                    }
                }
                Phase::Receiving => {
                    let late = if !connection.receiver.in_body() {
                        let late = now.saturating_sub(connection.began) > patience;
                        late.then_some(Refused::Bad(BadRequest::HeaderTimeout))
                    } else if quiet > patience {
                        Some(Refused::BodyTimeout)
                    } else {
                        let slow = connection.body_is_too_slow(now);
                        slow.then_some(Refused::BodyTooSlow)
                    };
                    if let Some(why) = late {
                        self.refuse(id, why);
                    }
                }
                Phase::Answering | Phase::Closing => {}
            }
        }
    }

    /// The worker dies of what the script did: the request it was called with is answered, unless
    /// that has begun.
    pub fn die(&mut self, name: &str) {
        if let Some((id, false)) = self.called.take()
            && let Some(slot) = self.slot(id)
            && let Some(connection) = &mut self.slots[slot].connection
            && connection.phase == Phase::Answering
        {
            let now = sys::now_ms();
            connection.write(plain_head(500, name).as_bytes(), b"", &self.store, now);
            connection.close_softly(now);
        }
    }

    /// The server's counters.
    pub fn score(&self) -> &Score {
        &self.score
    }

    /// The server's settings.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
