//! Limits of what one client may request: requests in a time, requests in progress, PHP processes. This module decides
//! and counts; it sends no response and knows no routes.
//!
//! - [`rate`]: the arithmetic of a rate; the caller passes the time.
//! - `table`: the state of clients' rates, in bounded memory.
//! - [`places`]: permits for requests in progress, and the requests that wait for a process.
//! - [`meter`]: the counters of one limit, which outlive a reload.
//!
//! The algorithm is that of nginx' `limit_req` with `nodelay`: a leaky bucket that holds `burst` requests beyond the
//! current one. A refused request does not fill the bucket, so a client that continues to send requests gets the rate,
//! as with nginx.

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

/// The limit of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// `limit`: the preset's name, if the limit selects its requests by a preset.
    pub preset: Option<&'static str>,
    /// `rate`, `burst`: how many requests a client may send in a time.
    pub rate: Option<Rate>,
    /// `connections`: how many requests of a client may be in progress.
    pub connections: Option<u32>,
    /// `processes`: how many of a client's requests may have a PHP process.
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
    /// Returns one part of the limit as text, if the limit has that part.
    pub fn part(&self, over: Over) -> Option<String> {
        match over {
            Over::Rate => Some(format!("rate {}", self.rate?)),
            Over::Connections => Some(format!("connections {}", self.connections?)),
            Over::Processes => Some(format!("processes {}", self.processes?)),
        }
    }
}

/// What identifies a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LimitBy {
    /// `address`: an address of IPv4, or the first 64 bits of IPv6, since every IPv6 client can choose the rest.
    Address,
    /// `network /24 /56`: the first bits of the address, their number for IPv4 and for IPv6.
    Network(u8, u8),
    /// `header NAME`: the value of a header; the address if there is none.
    Header(String),
    /// `cookie NAME`: the value of a cookie; the address if there is none.
    Cookie(String),
    /// `all`: all clients that the rule applies to count as one.
    All,
}

/// The value that identifies a client, according to the limit's [`LimitBy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shown<'a> {
    /// The client's address; `None` for a client on a unix socket.
    Address(Option<IpAddr>),
    /// The value of a header or cookie.
    Value(&'a [u8]),
    /// All clients are one.
    Anybody,
}

impl LimitBy {
    /// Returns the identity of the client at this address.
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

/// The key of a client under a limit: a keyed hash, so a client cannot choose its neighbours in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientKey(u64);

/// The state of all limits. All threads and all configurations of the process share one value.
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

/// The part of a limit that a client exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Too many requests in a time.
    Rate,
    /// Too many requests at once.
    Connections,
    /// Too many requests that wait for a PHP process.
    Processes,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// The part of the limit that the request exceeds.
    pub over: Over,
    /// How long to wait until the next request would pass; an estimate for all parts but the rate.
    pub wait: Duration,
    /// Whether the log has had no entry about this client for a while.
    pub is_news: bool,
}

/// The result of asking for one of a client's PHP processes.
#[derive(Debug)]
pub enum Process {
    /// The request has a permit.
    Free(Place),
    /// Other requests of the same client have all permits, and the request waits.
    Waits(Line),
}

impl Limiter {
    /// Returns the meter of this name: that of the previous configuration, if its limit is the same.
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

    /// Returns the meter of clients that disconnect while their scripts run in this pool. Together they get three
    /// quarters of its processes, so there is always one for other clients. `None` if the pool has only one process.
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

    /// Returns the key of a client under a limit.
    pub fn key(&self, meter: &Meter, client: Shown<'_>) -> ClientKey {
        ClientKey(self.keys.hash_one((meter.id, client)))
    }

    /// Counts a request, unless its client exceeds the limit's rate.
    pub fn count(&self, meter: &Meter, key: ClientKey, now: Instant) -> Result<(), Limited> {
        let Some(rate) = &meter.limit.rate else {
            return Ok(());
        };
        let counted = self.table.count(key.0, rate, self.nanoseconds(now));
        counted.inspect_err(|_| meter.refused.add())
    }

    /// Reverts [`Limiter::count`] for a request that was refused for another reason.
    pub fn uncount(&self, meter: &Meter, key: ClientKey) {
        if let Some(rate) = &meter.limit.rate {
            self.table.uncount(key.0, rate);
        }
    }

    /// Acquires a permit among the client's requests in progress, if the limit has such a part.
    ///
    /// # Errors
    /// All permits of the client are in use.
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

    /// Acquires a permit among the client's PHP processes, if the limit has such a part, or joins the client's queue.
    ///
    /// # Errors
    /// The queue is full.
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

    /// Counts and returns the refusal of a request for which there is no permit.
    pub fn full(&self, meter: &Meter, key: ClientKey, over: Over, now: Instant) -> Limited {
        meter.refused.add();
        Limited {
            over,
            wait: Duration::from_secs(1),
            is_news: self.table.hear(key.0, self.nanoseconds(now)),
        }
    }

    /// Returns how many clients were forgotten, for lack of space, while their requests still counted.
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
