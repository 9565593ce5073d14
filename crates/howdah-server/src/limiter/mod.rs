//! Limits on what one client may ask for: requests in a time, requests in progress, PHP processes.
//! Decides and counts; answers nothing and knows no route.
//!
//! - [`rate`]: the arithmetic of a rate, with the time handed in.
//! - `table`: what is known of clients' rates, in a bounded room.
//! - [`places`]: requests in progress, and those that wait for a process.
//! - [`meter`]: what is counted of one limit, over reloads.
//!
//! The algorithm is that of nginx' `limit_req` with `nodelay`: a bucket that leaks at the rate and holds
//! `burst` requests beyond the one in hand. A request that is refused fills no bucket, so a client that
//! goes on asking gets the rate, as with nginx.

pub mod meter;
pub mod places;
pub mod rate;
mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use howdah_http::network;
use meter::{Meter, MeterName, Patience};
use places::{Entry, Line, Place};
use rate::Rate;
use table::Table;

/// A limit of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// `limit`: the word for the requests that it is about, if it knows them by itself.
    pub preset: Option<&'static str>,
    /// `rate`, `burst`: how many requests a client may send in a time.
    pub rate: Option<Rate>,
    /// `connections`: how many requests of a client may be in progress.
    pub connections: Option<u32>,
    /// `processes`: how many of them may have a PHP process.
    pub processes: Option<u32>,
    /// `limit_by`: what counts as one client.
    pub by: LimitBy,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [Over::Rate, Over::Connections, Over::Processes];
        let parts: Vec<_> = parts.iter().filter_map(|over| self.part(*over)).collect();
        if let Some(preset) = self.preset {
            write!(f, "limit {preset}, ")?;
        }
        f.write_str(&parts.join(", "))
    }
}

impl Limit {
    /// One part of it, if it has that.
    pub fn part(&self, over: Over) -> Option<String> {
        match over {
            Over::Rate => Some(format!("rate {}", self.rate?)),
            Over::Connections => Some(format!("connections {}", self.connections?)),
            Over::Processes => Some(format!("processes {}", self.processes?)),
        }
    }
}

/// What counts as one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LimitBy {
    /// `address`: an address of IPv4, or 64 bits of IPv6, from which everybody has all to choose.
    Address,
    /// `network /24 /56`: what shares so many bits of IPv4, and of IPv6.
    Network(u8, u8),
    /// `header NAME`: what sends the same value; without one, by address.
    Header(String),
    /// `cookie NAME`: the same of a cookie.
    Cookie(String),
    /// `all`: everybody whom the rule is for, together.
    All,
}

/// What shows who a client is, by the limit's [`LimitBy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shown<'a> {
    /// The client's address; none: it came by a unix socket.
    Address(Option<IpAddr>),
    /// The value of a header field or cookie.
    Value(&'a [u8]),
    /// Nothing is asked.
    Anybody,
}

impl LimitBy {
    /// The client at this address.
    pub fn at(&self, address: Option<IpAddr>) -> Shown<'static> {
        match self {
            LimitBy::All => Shown::Anybody,
            LimitBy::Network(v4, v6) => {
                Shown::Address(address.map(|address| network::beginning(address, *v4, *v6)))
            }
            _ => Shown::Address(address.map(network::of_one_client)),
        }
    }
}

/// Which client, under which limit: a keyed hash, so that nobody chooses whom they meet in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientKey(u64);

/// What is counted of all limits: one value for all threads, and all configurations of the process.
#[derive(Debug)]
pub struct Limiter {
    table: Table,
    keys: RandomState,
    started: Instant,
    meters: Mutex<BTreeMap<MeterName, Weak<Meter>>>,
}

impl Default for Limiter {
    fn default() -> Limiter {
        Limiter {
            table: Table::new(table::CAPACITY),
            keys: RandomState::new(),
            started: Instant::now(),
            meters: Mutex::default(),
        }
    }
}

/// The part of a limit that a client is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Too many requests in a time.
    Rate,
    /// Too many at once.
    Connections,
    /// Too many that want a PHP process, and wait.
    Processes,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// What it is too many for.
    pub over: Over,
    /// When the next request would pass, from now; at once, a guess.
    pub wait: Duration,
    /// The log has not heard of this client for a while.
    pub is_news: bool,
}

/// A place among a client's PHP processes.
#[derive(Debug)]
pub enum Process {
    /// It can be had.
    Free(Place),
    /// Others of the same client have all of them.
    Waits(Line),
}

impl Limiter {
    /// The meter of this name: the one that the configuration before this had, if its limit is the same.
    pub fn meter(&self, name: MeterName, limit: &Arc<Limit>) -> Arc<Meter> {
        self.patient_meter(name, limit, Patience::OF_A_CLIENT)
    }

    fn patient_meter(&self, name: MeterName, limit: &Arc<Limit>, patience: Patience) -> Arc<Meter> {
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        meters.retain(|_, meter| meter.strong_count() > 0);
        if let Some(meter) = meters.get(&name).and_then(Weak::upgrade) {
            return meter;
        }
        let meter = Arc::new(Meter::new(limit.clone(), patience));
        meters.insert(name, Arc::downgrade(&meter));
        meter
    }

    /// The meter of clients who ask for scripts of this pool and leave while they run: together they have
    /// three quarters of its processes, so that there is always one for others. None: there is but one.
    pub fn leavers(&self, pool: &str, processes: u32) -> Option<Arc<Meter>> {
        if processes < 2 {
            return None;
        }
        let limit = Arc::new(Limit {
            preset: None,
            rate: None,
            connections: None,
            processes: Some(processes - (processes / 4).max(1)),
            by: LimitBy::All,
        });
        let name = MeterName {
            site: String::new(),
            text: format!("leavers {pool} {limit}"),
            number: 0,
        };
        Some(self.patient_meter(name, &limit, Patience::OF_LEAVERS))
    }

    /// The key of a client under a limit.
    pub fn key(&self, meter: &Meter, client: Shown<'_>) -> ClientKey {
        ClientKey(self.keys.hash_one((meter.id, client)))
    }

    /// Counts a request, unless its client is over the limit's rate.
    pub fn count(&self, meter: &Meter, key: ClientKey, now: Instant) -> Result<(), Limited> {
        let Some(rate) = &meter.limit.rate else {
            return Ok(());
        };
        let counted = self.table.count(key.0, rate, self.nanoseconds(now));
        counted.inspect_err(|_| meter.refused.add())
    }

    /// Takes back what [`Limiter::count`] has counted: the request was refused for another reason.
    pub fn uncount(&self, meter: &Meter, key: ClientKey) {
        if let Some(rate) = &meter.limit.rate {
            self.table.uncount(key.0, rate);
        }
    }

    /// Takes a place among the client's requests in progress, if the limit has that; an error: there is none.
    pub fn connect(
        &self,
        meter: &Meter,
        key: ClientKey,
        now: Instant,
    ) -> Result<Option<Place>, Limited> {
        let Some(places) = &meter.connections else {
            return Ok(None);
        };
        match places.enter(key.0) {
            Entry::Place(place) => Ok(Some(place)),
            Entry::Waits(_) | Entry::Full => Err(self.full(meter, key, Over::Connections, now)),
        }
    }

    /// Takes a place among the client's PHP processes, if the limit has that, or gets in line for one; an
    /// error: the line is full.
    pub fn process(
        &self,
        meter: &Meter,
        key: ClientKey,
        now: Instant,
    ) -> Result<Option<Process>, Limited> {
        let Some(places) = &meter.processes else {
            return Ok(None);
        };
        match places.enter(key.0) {
            Entry::Place(place) => Ok(Some(Process::Free(place))),
            Entry::Waits(line) => Ok(Some(Process::Waits(line))),
            Entry::Full => Err(self.full(meter, key, Over::Processes, now)),
        }
    }

    /// Refuses a request for which there is no place.
    pub fn full(&self, meter: &Meter, key: ClientKey, over: Over, now: Instant) -> Limited {
        meter.refused.add();
        Limited {
            over,
            wait: Duration::from_secs(1),
            is_news: self.table.hear(key.0, self.nanoseconds(now)),
        }
    }

    /// How many clients were forgotten, for want of room, while something counted against them.
    pub fn forgotten(&self) -> u64 {
        self.table.forgotten()
    }

    fn nanoseconds(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.started);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
