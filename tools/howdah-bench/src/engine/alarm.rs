//! Wakes an event loop on time. The timeout of epoll has a resolution of a millisecond, and a request that is sent late
//! is answered late.

use std::os::fd::OwnedFd;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::clock::SECOND;
use crate::error::BenchError;

/// The alarm's token. It cannot be the token of a socket, which has a client's number in its lower half.
pub const ALARM_TOKEN: u64 = u64::MAX;

/// A timer that an epoll instance watches.
#[derive(Debug)]
pub struct LoopAlarm {
    timer: OwnedFd,
    /// When the alarm goes off, in nanoseconds of the run; 0 until it is set.
    set_for: u64,
}

impl LoopAlarm {
    /// Creates an alarm that is not set.
    pub fn new(epoll: &OwnedFd) -> Result<LoopAlarm, BenchError> {
        let system = |what: &str, why: Errno| BenchError::System {
            what: what.to_owned(),
            why: why.to_string(),
        };
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|e| system("creating a timer", e))?;
        // The timer is edge-triggered, so it never needs to be read.
        let events = EventFlags::IN | EventFlags::ET;
        epoll::add(epoll, &timer, EventData::new_u64(ALARM_TOKEN), events)
            .map_err(|e| system("watching a timer", e))?;
        Ok(LoopAlarm { timer, set_for: 0 })
    }

    /// Makes the loop wake at `until`, which is `wait` nanoseconds from now. This takes a system call unless the alarm
    /// is already set to that time.
    pub fn set(&mut self, until: u64, wait: u64) {
        if wait == 0 || self.set_for == until {
            return;
        }
        let once = Itimerspec {
            it_interval: timespec(0),
            it_value: timespec(wait),
        };
        let done = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
        // If the alarm cannot be set, the timeout of epoll wakes the loop up to a millisecond late, which shows in the
        // send lag.
        if done.is_ok() {
            self.set_for = until;
        }
    }
}

/// Converts nanoseconds to a `Timespec`.
pub fn timespec(nanoseconds: u64) -> Timespec {
    Timespec {
        tv_sec: (nanoseconds / SECOND) as i64,
        tv_nsec: (nanoseconds % SECOND) as i64,
    }
}
