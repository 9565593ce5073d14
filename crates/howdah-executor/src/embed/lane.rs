//! A front thread's part of a pool: its slots, the requests in them, and the private queue of
//! those that found no free slot. Decides nothing about processes.
//!
//! Almost always only its own thread enters; the supervisor does when a child has died, a
//! deadline has passed or the pool goes down, hence the (uncontended) lock. Lock order: the
//! lane's table, then a request.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use howdah_proto::shm::{ChildId, FrontPort, SlotState};
use tokio::sync::Notify;

use super::in_flight::{Discarded, InFlight, Position, RequestState};
use super::pool_state::PoolState;
use crate::ExecError;
use crate::common::sys;

/// What a lane has done since the pool's start.
#[derive(Debug, Default)]
pub(crate) struct LaneCounters {
    /// Requests that a child took.
    pub accepted: AtomicU64,
    pub futex_wakes: AtomicU64,
    pub front_sleeps: AtomicU64,
    /// Requests that came when all children the pool may have were busy.
    pub max_children_reached: AtomicU64,
}

/// The requests of one front thread for one pool.
pub(crate) struct Lane {
    pub counters: LaneCounters,
    pub port: FrontPort,
    table: Mutex<LaneTable>,
    /// The lane is known to its thread (see `front_thread`).
    registered: AtomicBool,
    /// Tells the lane's timer task to look at the queue.
    pub timer: Notify,
}

/// The requests that a dead child took with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    pub requests: u32,
    /// A run waits for one of them, so the log will name the failure with that request.
    pub awaited: bool,
}

/// The requests of a lane: those in slots and those that wait for one.
pub(crate) struct LaneTable {
    in_slot: Vec<Option<Arc<InFlight>>>,
    /// Free slots; the last given back is the first used again: its memory is warm.
    free: Vec<u32>,
    waiting: VecDeque<Arc<InFlight>>,
    /// Number of requests in slots.
    pub held: u32,
    /// Woken when the table is let go: a waker may drop a run, and that would come back here.
    to_wake: Vec<Waker>,
    pub alarm: Alarm,
}

/// When the timer task will look at the queue by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    /// Never: no request waits.
    Off,
    /// At the oldest request's deadline: all children are busy.
    Deadline,
    /// In a millisecond: children sleep although requests wait.
    Soon,
}

impl Lane {
    pub fn new(port: FrontPort) -> Lane {
        let slots = port.slots();
        Lane {
            counters: LaneCounters::default(),
            port,
            table: Mutex::new(LaneTable {
                in_slot: (0..slots).map(|_| None).collect(),
                free: (0..slots).rev().collect(),
                waiting: VecDeque::new(),
                held: 0,
                to_wake: Vec::new(),
                alarm: Alarm::Off,
            }),
            registered: AtomicBool::new(false),
            timer: Notify::new(),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, LaneTable> {
        self.table.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Unlocks the table and wakes the runs that are to be woken.
    fn release(&self, mut table: MutexGuard<'_, LaneTable>) {
        let to_wake = std::mem::take(&mut table.to_wake);
        drop(table);
        for waker in to_wake {
            waker.wake();
        }
    }

    /// Requests of this lane that no child has claimed.
    pub fn unclaimed(&self) -> u32 {
        let table = self.lock();
        self.port.unclaimed() + table.waiting.len() as u32
    }

    /// Whether this lane has requests that no child has claimed.
    pub fn has_unclaimed(&self) -> bool {
        !self.lock().waiting.is_empty() || self.port.has_unclaimed()
    }

    /// Offers a request to the children, or queues it.
    pub fn submit(&self, pool: &PoolState, in_flight: Arc<InFlight>) {
        let now = in_flight.started_ns;
        {
            let mut table = self.lock();
            if table.waiting.is_empty()
                && self.port.has_room()
                && let Some(slot) = table.free.pop()
            {
                self.publish(&mut table, slot, in_flight);
            } else {
                table.waiting.push_back(in_flight);
            }
        }
        self.wake_a_child(pool, now);
    }

    fn publish(&self, table: &mut LaneTable, slot: u32, in_flight: Arc<InFlight>) {
        in_flight.lock().place = Position::Slot(slot);
        self.port
            .publish(slot, &in_flight.frame, in_flight.body_complete);
        table.in_slot[slot as usize] = Some(in_flight);
        table.held += 1;
    }

    /// Wakes a child if one is to be woken; otherwise, when all are busy, asks for more.
    pub fn wake_a_child(&self, pool: &PoolState, now_ns: u64) -> bool {
        if sys::wake(pool.port.choose_wake(now_ns, pool.budget)) {
            self.counters.futex_wakes.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        if pool.may_grow.load(Ordering::Relaxed) && pool.port.sleepers() == 0 {
            pool.want_children();
        }
        false
    }

    /// Fills free slots from the private queue.
    fn feed(&self, pool: &PoolState, table: &mut LaneTable) {
        let mut fed = false;
        while !table.waiting.is_empty()
            && self.port.has_room()
            && let Some(slot) = table.free.pop()
        {
            let Some(in_flight) = table.waiting.pop_front() else {
                break;
            };
            // Its run will feed the body when it is polled.
            let waker = in_flight.lock().waker.take();
            table.to_wake.extend(waker);
            self.publish(table, slot, in_flight);
            fed = true;
        }
        if fed {
            self.wake_a_child(pool, sys::now_ns());
        }
    }

    /// The one way out of a lane: removes the request, wakes its run once the table is unlocked, and
    /// gives its slot to the next request. `verdict` is how it ends if not by the answer already read;
    /// one given before is kept.
    fn finish(
        &self,
        pool: &PoolState,
        table: &mut LaneTable,
        in_flight: &Arc<InFlight>,
        mut state: MutexGuard<'_, RequestState>,
        verdict: Option<ExecError>,
    ) {
        let was = std::mem::replace(&mut state.place, Position::Left);
        state.held = None;
        if let Some(run) = state.abandoned.take() {
            pool.leavers.ended(run, sys::now_ns());
        }
        state.verdict = state.verdict.take().or(verdict);
        table.to_wake.extend(state.waker.take());
        drop(state);
        match was {
            Position::Slot(slot) => {
                table.in_slot[slot as usize] = None;
                self.port.free(slot);
                table.free.push(slot);
                table.held -= 1;
            }
            Position::Waiting => table.waiting.retain(|e| !Arc::ptr_eq(e, in_flight)),
            Position::Left => return,
        }
        pool.leave();
        self.feed(pool, table);
    }

    /// [`Lane::finish`] for a request whose child writes no more: it has handed the slot back, or is
    /// dead. What it had published by then is read first.
    fn finish_taken(
        &self,
        pool: &PoolState,
        table: &mut LaneTable,
        slot: u32,
        in_flight: &Arc<InFlight>,
        mut state: MutexGuard<'_, RequestState>,
        verdict: Option<ExecError>,
    ) {
        if state.wanted {
            if let Err(error) = state.read_slot(&self.port, slot) {
                state.verdict.get_or_insert(error);
            }
        } else {
            // One call is enough: nobody writes any more.
            self.discard(pool, in_flight, &mut state, slot);
        }
        self.counters.accepted.fetch_add(1, Ordering::Relaxed);
        self.finish(pool, table, in_flight, state, verdict);
    }

    /// Takes what a child sends for a request that nobody waits for any more, for the error log.
    fn discard(
        &self,
        pool: &PoolState,
        in_flight: &InFlight,
        state: &mut RequestState,
        slot: u32,
    ) -> Discarded {
        state.discard(&self.port, slot, |level, text| {
            let frame = &in_flight.frame;
            pool.log
                .script(&pool.config.name, in_flight.id, frame, level, text);
        })
    }

    /// Gives back the slot of a request whose response has been read to its end by its run.
    pub fn give_back(&self, pool: &PoolState, in_flight: &Arc<InFlight>, slot: u32) {
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

    /// Handles what the children have signalled: responses are read out of slots that are done,
    /// runs are woken, answers nobody wants are thrown away. Returns whether there was anything.
    pub fn take_notified(&self, pool: &PoolState) -> bool {
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
                // Not validated: used only for the access log.
                state.claimed_by(child, || match self.port.begun_ns(slot) {
                    0 => sys::now_ns(),
                    begun => begun,
                });
                return self.finish_taken(pool, table, slot, &in_flight, state, None);
            }
            // A streaming answer is read when the server polls for it, so that a slow client's
            // backlog stays in the ring and holds the script back.
            SlotState::Claimed(child) => {
                state.claimed_by(child, || self.claimed_ns(&in_flight, slot));
            }
            SlotState::Free | SlotState::Ready | SlotState::Corrupt => {}
        }
        if !state.wanted {
            match self.discard(pool, &in_flight, &mut state, slot) {
                Discarded::SoFar => {}
                // It goes on writing, or has just been handed back.
                Discarded::Some | Discarded::All => self.port.notify_again(slot),
            }
        }
        table.to_wake.extend(state.waker.take());
    }

    /// When the child began with a request: its own word, as far as it can be true.
    pub fn claimed_ns(&self, in_flight: &InFlight, slot: u32) -> u64 {
        let now = sys::now_ns();
        match self.port.begun_ns(slot) {
            0 => now,
            begun => begun.max(in_flight.started_ns).min(now),
        }
    }

    /// Ends what a dead child had in hand: what it had published is kept, then `verdict` unless it
    /// had handed its slot back, and so given its whole answer.
    pub fn child_gone(&self, pool: &PoolState, child: ChildId, verdict: &ExecError) -> Lost {
        let mut table = self.lock();
        // What we saw counts as much as what the memory says: a process that dies may have
        // written nonsense there.
        let theirs = |slot: usize, in_flight: &InFlight| {
            let says = self.port.state(slot as u32);
            says == SlotState::Claimed(child)
                || says == SlotState::Done(child)
                || in_flight.lock().child == Some(child)
        };
        let slots: Vec<(u32, Arc<InFlight>)> = table
            .in_slot
            .iter()
            .enumerate()
            .filter_map(|(slot, e)| {
                let e = e.as_ref().filter(|e| theirs(slot, e))?;
                Some((slot as u32, e.clone()))
            })
            .collect();
        let mut lost = Lost::default();
        for (slot, in_flight) in &slots {
            let mut state = in_flight.lock();
            state.claimed_by(child, || self.claimed_ns(in_flight, *slot));
            let done = self.port.state(*slot) == SlotState::Done(child);
            lost.requests += u32::from(!done);
            lost.awaited |= !done && state.wanted;
            let verdict = (!done).then(|| verdict.clone());
            self.finish_taken(pool, &mut table, *slot, in_flight, state, verdict);
        }
        self.release(table);
        lost
    }

    /// The requests that children work on now, and since when (CLOCK_MONOTONIC nanoseconds).
    pub fn claimed(&self) -> Vec<(ChildId, Arc<InFlight>, u64)> {
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

    /// Takes a request back that no child has claimed, giving it this verdict; `false` when one
    /// has claimed it.
    pub fn take_back(
        &self,
        pool: &PoolState,
        in_flight: &Arc<InFlight>,
        verdict: Option<ExecError>,
    ) -> bool {
        let mut table = self.lock();
        let state = in_flight.lock();
        match state.place {
            Position::Slot(slot) if !self.port.cancel(slot) => return false,
            Position::Slot(_) | Position::Waiting => {
                self.finish(pool, &mut table, in_flight, state, verdict);
            }
            Position::Left => {}
        }
        self.release(table);
        true
    }

    /// Ends every request that no child has claimed and that `doomed` names.
    pub fn refuse_unclaimed(
        &self,
        pool: &PoolState,
        verdict: &ExecError,
        doomed: impl Fn(&InFlight) -> bool,
    ) {
        let unclaimed: Vec<Arc<InFlight>> = {
            let table = self.lock();
            let ready = table.in_slot.iter().enumerate().filter_map(|(slot, e)| {
                let e = e.as_ref()?;
                (self.port.state(slot as u32) == SlotState::Ready).then(|| e.clone())
            });
            // The newest first: taking an older one back would only move a doomed one up.
            let waiting: Vec<_> = table.waiting.iter().rev().cloned().collect();
            waiting
                .into_iter()
                .chain(ready)
                .filter(|e| doomed(e))
                .collect()
        };
        for in_flight in unclaimed {
            self.take_back(pool, &in_flight, Some(verdict.clone()));
        }
    }

    /// When the oldest request that no child has claimed was started.
    pub fn oldest_unclaimed(&self) -> Option<u64> {
        let table = self.lock();
        let ready = table.in_slot.iter().enumerate().filter_map(|(slot, e)| {
            let e = e.as_ref()?;
            (self.port.state(slot as u32) == SlotState::Ready).then_some(e.started_ns)
        });
        ready
            .chain(table.waiting.front().map(|e| e.started_ns))
            .min()
    }

    /// Announces that the thread sleeps. On `false` something has happened: look again.
    pub fn go_to_sleep(&self) -> bool {
        self.counters.front_sleeps.fetch_add(1, Ordering::Relaxed);
        self.port.go_to_sleep()
    }

    /// Makes sure that the timer task looks at what waits, and soon enough.
    pub fn arm_timer(&self, pool: &PoolState) {
        let mut table = self.lock();
        let due = self.alarm_due(pool, &table);
        if due > table.alarm {
            table.alarm = due;
            self.timer.notify_one();
        }
    }

    fn alarm_due(&self, pool: &PoolState, table: &LaneTable) -> Alarm {
        if table.waiting.is_empty() && !self.port.has_unclaimed() {
            Alarm::Off
        } else if pool.port.sleepers() > 0 {
            Alarm::Soon
        } else {
            Alarm::Deadline
        }
    }

    /// The timer task's: sets the alarm to what is due now.
    pub fn reset_alarm(&self, pool: &PoolState) -> Alarm {
        let mut table = self.lock();
        table.alarm = self.alarm_due(pool, &table);
        table.alarm
    }

    /// Whether the lane's thread listens to the pool's bell.
    pub fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Relaxed)
    }

    /// Notes that the lane's thread now listens to the pool's bell.
    pub fn set_registered(&self) {
        self.registered.store(true, Ordering::Relaxed);
    }

    /// Whether the lane has no request.
    pub fn is_empty(&self) -> bool {
        let table = self.lock();
        table.held == 0 && table.waiting.is_empty()
    }
}
