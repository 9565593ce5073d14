//! A front thread's part of a pool: its slots, the requests in them, and the private queue of requests that found no
//! free slot. It makes no decisions about processes.
//!
//! Requests are offered to the children ahead of time, so a child never waits for the front. While all of them are from
//! one client, many are offered. Once a second client has a request, at most `max_children` of them stay offered; the
//! others are taken back, and clients are served in turn ([`FairQueue`]).
//!
//! Usually only the lane's own thread uses the lane. The supervisor uses it when a child has died, a deadline has
//! passed or the pool goes down. A lock, which is rarely contended, protects the table. Lock order: the lane's table,
//! then a request.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use howdah_proto::shm::{ChildId, FrontPort, SlotState};
use tokio::sync::Notify;

use super::body::BodyFeed;
use super::in_flight::{DiscardProgress, InFlightRequest, InFlightState, RequestPosition};
use super::pool_state::PoolState;
use crate::ExecError;
use crate::common::fair_queue::{FairQueue, QueueClient};
use crate::common::sys;

/// Counters of a lane since the start of the pool.
#[derive(Debug, Default)]
pub(crate) struct LaneCounters {
    /// Requests that a child claimed.
    pub accepted: AtomicU64,
    pub futex_wakes: AtomicU64,
    pub front_sleeps: AtomicU64,
    /// Requests that arrived when all children that the pool may have were busy.
    pub max_children_reached: AtomicU64,
}

/// The requests of one front thread for one pool.
pub(crate) struct Lane {
    pub counters: LaneCounters,
    pub port: FrontPort,
    table: Mutex<LaneTable>,
    /// Whether the lane's thread listens to the pool's bell (see `front_thread`).
    registered: AtomicBool,
    /// Wakes the lane's timer task to check the queue.
    pub timer: Notify,
    /// How many requests may be offered ahead while several clients have requests. A request with a body always counts
    /// against this limit, even if only one client has requests.
    max_offered_ahead: u32,
}

/// The requests that were lost with a dead child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LostRequests {
    pub requests: u32,
    /// Whether a run waits for one of these requests. If so, the log reports the failure with that request.
    pub has_waiting_run: bool,
}

/// The requests of a lane: those in slots and those that wait for a slot.
pub(crate) struct LaneTable {
    in_slot: Vec<Option<Arc<InFlightRequest>>>,
    /// Free slots. The one released last is reused first, because its memory is warm.
    free: Vec<u32>,
    waiting: FairQueue<Arc<InFlightRequest>>,
    offered: Offered,
    /// Whether no requests are offered to the children, because the memory is damaged.
    suspended: bool,
    /// The number of requests in slots.
    pub requests_in_slots: u32,
    /// Woken after the table is unlocked, because a waker may drop a run, which would lock the table again.
    to_wake: Vec<Waker>,
    pub alarm: QueueAlarm,
}

/// The clients whose requests no child has claimed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offered {
    /// Only this client has such requests, if there are any.
    Of(QueueClient),
    /// Several clients have had such requests since the last moment without any.
    Mixed,
}

/// When the timer task will next check the queue without being woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueueAlarm {
    /// Never: no request waits.
    Off,
    /// At the oldest request's deadline, because all children are busy.
    Deadline,
    /// In a millisecond, because children sleep although requests wait.
    Soon,
}

impl Lane {
    /// Creates a lane of a pool that may have this many children.
    pub fn new(port: FrontPort, max_children: u32) -> Lane {
        let slots = port.slots();
        Lane {
            counters: LaneCounters::default(),
            port,
            table: Mutex::new(LaneTable {
                in_slot: (0..slots).map(|_| None).collect(),
                free: (0..slots).rev().collect(),
                waiting: FairQueue::default(),
                offered: Offered::Of(None),
                suspended: false,
                requests_in_slots: 0,
                to_wake: Vec::new(),
                alarm: QueueAlarm::Off,
            }),
            registered: AtomicBool::new(false),
            timer: Notify::new(),
            max_offered_ahead: max_children,
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, LaneTable> {
        self.table.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Unlocks the table and wakes the runs that must be woken.
    fn release(&self, mut table: MutexGuard<'_, LaneTable>) {
        let to_wake = std::mem::take(&mut table.to_wake);
        drop(table);
        for waker in to_wake {
            waker.wake();
        }
    }

    /// Returns the number of requests of this lane that no child has claimed.
    pub fn unclaimed(&self) -> u32 {
        let table = self.lock();
        (self.ready(&table).count() + table.waiting.len()) as u32
    }

    /// Returns whether this lane has requests that no child has claimed.
    pub fn has_unclaimed(&self) -> bool {
        !self.lock().waiting.is_empty() || self.port.has_unclaimed()
    }

    /// Offers a request to the children, or queues it.
    pub fn submit(&self, pool: &PoolState, in_flight: Arc<InFlightRequest>) {
        let now = in_flight.started_ns;
        {
            let mut table = self.lock();
            self.take_back_offers(&mut table, in_flight.client);
            if table.waiting.is_empty()
                && self.may_offer(&table, &in_flight)
                && let Some(slot) = table.free.pop()
            {
                self.publish(&mut table, slot, in_flight);
            } else {
                table.waiting.push(in_flight.client, in_flight);
            }
        }
        self.wake_child(pool, now);
    }

    fn publish(&self, table: &mut LaneTable, slot: u32, in_flight: Arc<InFlightRequest>) {
        let client = in_flight.client;
        if !self.port.has_unclaimed() {
            table.offered = Offered::Of(client);
        } else if table.offered != Offered::Of(client) {
            table.offered = Offered::Mixed;
        }
        in_flight.lock().position = RequestPosition::Slot(slot);
        self.port
            .publish(slot, &in_flight.frame, in_flight.body_complete);
        table.in_slot[slot as usize] = Some(in_flight);
        table.requests_in_slots += 1;
    }

    /// Returns whether the request may be offered to the children before one is free.
    fn may_offer(&self, table: &LaneTable, in_flight: &InFlightRequest) -> bool {
        let one_client = table.offered == Offered::Of(in_flight.client)
            && table.waiting.clients() <= 1
            && in_flight.body_complete;
        !table.suspended
            && self.port.has_room()
            && (one_client || self.ready(table).count() < self.max_offered_ahead as usize)
    }

    /// Returns the slots whose requests no child has claimed.
    fn ready<'a>(
        &'a self,
        table: &'a LaneTable,
    ) -> impl Iterator<Item = (u32, &'a Arc<InFlightRequest>)> {
        let slots = table.in_slot.iter().enumerate();
        slots.filter_map(|(slot, in_flight)| {
            let slot = slot as u32;
            let in_flight = in_flight.as_ref()?;
            (self.port.state(slot) == SlotState::Ready).then_some((slot, in_flight))
        })
    }

    /// Prepares for a request of a client. If many requests of another client have been offered ahead, takes back those
    /// that would make this client wait. Only requests without a body are taken back.
    fn take_back_offers(&self, table: &mut LaneTable, client: QueueClient) {
        let Offered::Of(other) = table.offered else {
            return;
        };
        if other == client || !self.port.has_unclaimed() {
            return;
        }
        let ready = self.ready(table);
        let mut ready: Vec<_> = ready
            .map(|(slot, in_flight)| (slot, in_flight.clone()))
            .collect();
        ready.sort_by_key(|(_, in_flight)| in_flight.started_ns);
        table.offered = Offered::Mixed;
        for (slot, in_flight) in ready.drain(..).skip(self.max_offered_ahead as usize).rev() {
            if in_flight.body_complete && self.port.cancel(slot) {
                in_flight.lock().position = RequestPosition::Waiting;
                self.free_slot(table, slot);
                table.waiting.put_back(other, in_flight);
            }
        }
    }

    fn free_slot(&self, table: &mut LaneTable, slot: u32) {
        table.in_slot[slot as usize] = None;
        self.port.free(slot);
        table.free.push(slot);
        table.requests_in_slots -= 1;
    }

    /// Returns whether the shared memory contains only possible states for this lane's requests. `lives` returns
    /// whether the pool has such a child.
    pub fn is_intact(&self, lives: impl Fn(ChildId) -> bool) -> bool {
        let table = self.lock();
        let mut slots = table.in_slot.iter().zip(0..);
        self.port.is_intact()
            && slots.all(
                |(in_flight, slot)| match (in_flight, self.port.state(slot)) {
                    (None, SlotState::Free) | (Some(_), SlotState::Ready) => true,
                    (Some(_), SlotState::Claimed(child) | SlotState::Done(child)) => lives(child),
                    _ => false,
                },
            )
    }

    /// Handles requests that are done as if their children had notified.
    pub fn handle_done_slots(&self, pool: &PoolState) {
        let mut table = self.lock();
        for slot in 0..self.port.slots() {
            if matches!(self.port.state(slot), SlotState::Done(_)) {
                self.on_notify(pool, &mut table, slot);
            }
        }
        self.release(table);
    }

    /// Stops offering requests to the children.
    pub fn suspend(&self) {
        self.lock().suspended = true;
    }

    /// Ends the requests that are in slots, resets the lane's memory to its initial state, and offers requests again.
    /// Call it only after all processes of the pool have exited.
    pub fn reset(&self, pool: &PoolState, verdict: &ExecError) {
        let mut table = self.lock();
        table.suspended = true;
        for slot in 0..table.in_slot.len() {
            if let Some(in_flight) = table.in_slot[slot].clone() {
                let state = in_flight.lock();
                self.finish(pool, &mut table, &in_flight, state, Some(verdict.clone()));
            }
        }
        self.port.reset();
        table.suspended = false;
        self.fill_slots(pool, &mut table);
        self.release(table);
    }

    /// Returns how many requests of this client wait, and the client with the most waiting requests, with their number.
    /// Called when the pool's queue is full.
    pub fn waiting_counts(&self, client: QueueClient) -> (usize, Option<(QueueClient, usize)>) {
        let mut table = self.lock();
        self.take_back_offers(&mut table, client);
        (table.waiting.len_of(client), table.waiting.longest())
    }

    /// Refuses the newest waiting request of a client. Returns whether there was one.
    pub fn refuse_newest(&self, pool: &PoolState, client: QueueClient) -> bool {
        let mut table = self.lock();
        let Some(in_flight) = table.waiting.newest(client).cloned() else {
            return false;
        };
        let state = in_flight.lock();
        self.finish(
            pool,
            &mut table,
            &in_flight,
            state,
            Some(ExecError::QueueFull),
        );
        self.release(table);
        true
    }

    /// Wakes a child if one must be woken, and returns whether it has. If all children are busy, asks for more
    /// children.
    pub fn wake_child(&self, pool: &PoolState, now_ns: u64) -> bool {
        if sys::wake(pool.port.choose_wake(now_ns, pool.budget)) {
            self.counters.futex_wakes.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        if pool.may_grow.load(Ordering::Relaxed) && pool.port.sleepers() == 0 {
            pool.want_children();
        }
        false
    }

    /// Moves requests from the private queue to free slots.
    fn fill_slots(&self, pool: &PoolState, table: &mut LaneTable) {
        let mut fed = false;
        while table
            .waiting
            .next()
            .is_some_and(|next| self.may_offer(table, next))
            && let Some(slot) = table.free.pop()
        {
            let Some(in_flight) = table.waiting.pop() else {
                table.free.push(slot);
                break;
            };
            // The request's run feeds the body when the run is polled.
            let waker = in_flight.lock().waker.take();
            table.to_wake.extend(waker);
            self.publish(table, slot, in_flight);
            fed = true;
        }
        if fed {
            self.wake_child(pool, sys::now_ns());
        }
    }

    /// Removes a request from the lane; every request leaves through this method. Wakes its run once the table is
    /// unlocked, and gives its slot to the next request. `verdict` is how it ends if not by the response already read;
    /// an earlier verdict is kept.
    fn finish(
        &self,
        pool: &PoolState,
        table: &mut LaneTable,
        in_flight: &Arc<InFlightRequest>,
        mut state: MutexGuard<'_, InFlightState>,
        verdict: Option<ExecError>,
    ) {
        let was = std::mem::replace(&mut state.position, RequestPosition::Left);
        state.drop_at_end = None;
        state.body = BodyFeed::Complete;
        if let Some(run) = state.abandoned.take() {
            pool.abandoning_clients.record_end(run, sys::now_ns());
        }
        state.verdict = state.verdict.take().or(verdict);
        table.to_wake.extend(state.waker.take());
        drop(state);
        match was {
            RequestPosition::Slot(slot) => self.free_slot(table, slot),
            RequestPosition::Waiting => {
                let is_it = |other: &Arc<InFlightRequest>| Arc::ptr_eq(other, in_flight);
                table.waiting.remove(in_flight.client, is_it);
            }
            RequestPosition::Left => return,
        }
        pool.record_finished();
        self.fill_slots(pool, table);
    }

    /// Like [`Lane::finish`], for a request whose child writes no more, because it has returned the slot or is dead.
    /// The bytes that the child had published are read first.
    fn finish_claimed(
        &self,
        pool: &PoolState,
        table: &mut LaneTable,
        slot: u32,
        in_flight: &Arc<InFlightRequest>,
        mut state: MutexGuard<'_, InFlightState>,
        verdict: Option<ExecError>,
    ) {
        if state.is_awaited {
            if let Err(error) = state.read_slot(&self.port, slot) {
                state.verdict.get_or_insert(error);
            }
        } else {
            // One call is enough, since the child writes no more.
            self.discard(pool, in_flight, &mut state, slot);
        }
        self.counters.accepted.fetch_add(1, Ordering::Relaxed);
        self.finish(pool, table, in_flight, state, verdict);
    }

    /// Reads the bytes of a child whose client has disconnected, for the error log.
    fn discard(
        &self,
        pool: &PoolState,
        in_flight: &InFlightRequest,
        state: &mut InFlightState,
        slot: u32,
    ) -> DiscardProgress {
        state.discard(&self.port, slot, |level, text| {
            let frame = &in_flight.frame;
            pool.log
                .script(&pool.config.name, in_flight.id, frame, level, text);
        })
    }

    /// Releases the slot of a request whose response its run has read to the end.
    pub fn release_slot(&self, pool: &PoolState, in_flight: &Arc<InFlightRequest>, slot: u32) {
        let mut table = self.lock();
        let mine = table.in_slot[slot as usize]
            .as_ref()
            .is_some_and(|e| Arc::ptr_eq(e, in_flight));
        if mine {
            let mut state = in_flight.lock();
            // The caller is the run itself.
            state.waker = None;
            self.counters.accepted.fetch_add(1, Ordering::Relaxed);
            self.finish(pool, &mut table, in_flight, state, None);
        }
        self.release(table);
    }

    /// Handles the notifications of the children: reads responses out of slots that are done, wakes runs, and discards
    /// responses whose client has disconnected. Returns whether there was any notification.
    pub fn handle_notifications(&self, pool: &PoolState) -> bool {
        let mut guard: Option<MutexGuard<'_, LaneTable>> = None;
        let any = self.port.take_notified(|slot| {
            let table = guard.get_or_insert_with(|| self.lock());
            self.on_notify(pool, table, slot);
        });
        if let Some(table) = guard {
            self.release(table);
        }
        any
    }

    fn on_notify(&self, pool: &PoolState, table: &mut LaneTable, slot: u32) {
        let Some(in_flight) = table.in_slot[slot as usize].clone() else {
            return;
        };
        let mut state = in_flight.lock();
        match self.port.state(slot) {
            SlotState::Done(child) => {
                // Not validated, because only the access log uses it.
                state.record_claim(child, || match self.port.begun_ns(slot) {
                    0 => sys::now_ns(),
                    begun => begun,
                });
                return self.finish_claimed(pool, table, slot, &in_flight, state, None);
            }
            // A streaming response is read when the server polls for it, so the backlog of a slow client stays in the
            // ring and slows the script down.
            SlotState::Claimed(child) => {
                state.record_claim(child, || self.claimed_ns(&in_flight, slot));
            }
            SlotState::Free | SlotState::Ready | SlotState::Corrupt => {}
        }
        if !state.is_awaited {
            state.feed(&self.port, slot);
            match self.discard(pool, &in_flight, &mut state, slot) {
                DiscardProgress::SoFar => {}
                // The child is still writing, or has just returned the slot.
                DiscardProgress::Some | DiscardProgress::All => self.port.notify_again(slot),
            }
        }
        table.to_wake.extend(state.waker.take());
    }

    /// Returns when the child began with a request. The child states this time itself, so it is limited to possible
    /// values.
    pub fn claimed_ns(&self, in_flight: &InFlightRequest, slot: u32) -> u64 {
        let now = sys::now_ns();
        match self.port.begun_ns(slot) {
            0 => now,
            begun => begun.max(in_flight.started_ns).min(now),
        }
    }

    /// Ends the requests of a dead child. The bytes that it had published are kept; then `verdict` follows, unless the
    /// child had returned the slot and so completed its response.
    pub fn end_child_requests(
        &self,
        pool: &PoolState,
        child: ChildId,
        verdict: &ExecError,
    ) -> LostRequests {
        let mut table = self.lock();
        // The front's own records count as much as the memory, because a dying process may have written nonsense there.
        let theirs = |slot: usize, in_flight: &InFlightRequest| {
            let says = self.port.state(slot as u32);
            says == SlotState::Claimed(child)
                || says == SlotState::Done(child)
                || in_flight.lock().child == Some(child)
        };
        let slots: Vec<(u32, Arc<InFlightRequest>)> = table
            .in_slot
            .iter()
            .enumerate()
            .filter_map(|(slot, e)| {
                let e = e.as_ref().filter(|e| theirs(slot, e))?;
                Some((slot as u32, e.clone()))
            })
            .collect();
        let mut lost = LostRequests::default();
        for (slot, in_flight) in &slots {
            let mut state = in_flight.lock();
            state.record_claim(child, || self.claimed_ns(in_flight, *slot));
            let done = self.port.state(*slot) == SlotState::Done(child);
            lost.requests += u32::from(!done);
            lost.has_waiting_run |= !done && state.is_awaited;
            let verdict = (!done).then(|| verdict.clone());
            self.finish_claimed(pool, &mut table, *slot, in_flight, state, verdict);
        }
        self.release(table);
        lost
    }

    /// Returns the requests that children are working on now, and when each was claimed (CLOCK_MONOTONIC nanoseconds).
    pub fn claimed(&self) -> Vec<(ChildId, Arc<InFlightRequest>, u64)> {
        let table = self.lock();
        let mut out = Vec::new();
        for (slot, in_flight) in table.in_slot.iter().enumerate() {
            if let Some(in_flight) = in_flight
                && let SlotState::Claimed(child) = self.port.state(slot as u32)
            {
                let since = self.claimed_ns(in_flight, slot as u32);
                out.push((child, in_flight.clone(), since));
            }
        }
        out
    }

    /// Takes back a request that no child has claimed, with this verdict. Returns `false` if a child has claimed it.
    pub fn take_back(
        &self,
        pool: &PoolState,
        in_flight: &Arc<InFlightRequest>,
        verdict: Option<ExecError>,
    ) -> bool {
        let mut table = self.lock();
        let state = in_flight.lock();
        match state.position {
            RequestPosition::Slot(slot) if !self.port.cancel(slot) => return false,
            RequestPosition::Slot(_) | RequestPosition::Waiting => {
                self.finish(pool, &mut table, in_flight, state, verdict);
            }
            RequestPosition::Left => {}
        }
        self.release(table);
        true
    }

    /// Ends every request that no child has claimed and for which `doomed` is true.
    pub fn refuse_unclaimed(
        &self,
        pool: &PoolState,
        verdict: &ExecError,
        doomed: impl Fn(&InFlightRequest) -> bool,
    ) {
        let unclaimed: Vec<Arc<InFlightRequest>> = {
            let table = self.lock();
            let ready = self.ready(&table).map(|(_, in_flight)| in_flight);
            // Waiting requests go first: a slot that becomes free would otherwise go to one that is about to be
            // refused.
            let all = table.waiting.iter().chain(ready);
            all.filter(|e| doomed(e)).cloned().collect()
        };
        for in_flight in unclaimed {
            self.take_back(pool, &in_flight, Some(verdict.clone()));
        }
    }

    /// Returns when the oldest request that no child has claimed was started.
    pub fn oldest_unclaimed(&self) -> Option<u64> {
        let table = self.lock();
        let ready = self.ready(&table).map(|(_, in_flight)| in_flight);
        let unclaimed = ready.chain(table.waiting.heads());
        unclaimed.map(|in_flight| in_flight.started_ns).min()
    }

    /// Announces that the thread will sleep. Returns `false` if something has happened meanwhile; the thread must check
    /// again then.
    pub fn go_to_sleep(&self) -> bool {
        self.counters.front_sleeps.fetch_add(1, Ordering::Relaxed);
        self.port.go_to_sleep()
    }

    /// Makes sure that the timer task checks the waiting requests soon enough.
    pub fn arm_timer(&self, pool: &PoolState) {
        let mut table = self.lock();
        let due = self.alarm_due(pool, &table);
        if due > table.alarm {
            table.alarm = due;
            self.timer.notify_one();
        }
    }

    fn alarm_due(&self, pool: &PoolState, table: &LaneTable) -> QueueAlarm {
        if table.waiting.is_empty() && !self.port.has_unclaimed() {
            QueueAlarm::Off
        } else if pool.port.sleepers() > 0 {
            QueueAlarm::Soon
        } else {
            QueueAlarm::Deadline
        }
    }

    /// Sets the alarm to what is due now. Called by the timer task.
    pub fn reset_alarm(&self, pool: &PoolState) -> QueueAlarm {
        let mut table = self.lock();
        table.alarm = self.alarm_due(pool, &table);
        table.alarm
    }

    /// Returns whether the lane's thread listens to the pool's bell.
    pub fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Relaxed)
    }

    /// Records that the lane's thread now listens to the pool's bell.
    pub fn set_registered(&self) {
        self.registered.store(true, Ordering::Relaxed);
    }

    /// Returns whether the lane has no requests.
    pub fn is_empty(&self) -> bool {
        let table = self.lock();
        table.requests_in_slots == 0 && table.waiting.is_empty()
    }
}
