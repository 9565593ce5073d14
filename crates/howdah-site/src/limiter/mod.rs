//! Limits of what one client may request: requests in a time, requests in progress, PHP processes. This module decides
//! and counts; it sends no response and knows no routes.
//!
//! - [`rate`]: the arithmetic of a rate; the caller passes the time.
//! - `table`: the state of clients' rates, in bounded memory.
//! - [`permits`]: permits for requests in progress, and the requests that wait for a process.
//! - [`meter`]: the counters of one limit, which outlive a reload.
//!
//! The algorithm is that of nginx's `limit_req` with `nodelay`: a leaky bucket that holds `burst` requests beyond the
//! current one. A refused request does not fill the bucket, so a client that continues to send requests gets the rate,
//! as with nginx.

pub mod meter;
pub mod permits;
pub mod rate;
mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use howdah_http::network;
use meter::{Meter, MeterName, WaitLimits};
use permits::{ClientPermit, PermitQueue, PermitRequest};
use rate::Rate;
use table::ClientTable;

/// The limit of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLimit {
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

impl fmt::Display for ClientLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            LimitPart::Rate,
            LimitPart::Connections,
            LimitPart::Processes,
        ];
        let parts: Vec<_> = parts
            .iter()
            .filter_map(|over| self.describe_part(*over))
            .collect();
        if let Some(preset) = self.preset {
            write!(f, "limit {preset}, ")?;
        }
        f.write_str(&parts.join(", "))
    }
}

impl ClientLimit {
    /// Returns one part of the limit as text, if the limit has that part.
    pub fn describe_part(&self, over: LimitPart) -> Option<String> {
        match over {
            LimitPart::Rate => Some(format!("rate {}", self.rate?)),
            LimitPart::Connections => Some(format!("connections {}", self.connections?)),
            LimitPart::Processes => Some(format!("processes {}", self.processes?)),
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
pub enum ClientIdentity<'a> {
    /// The client's address; `None` for a client on a unix socket.
    Address(Option<IpAddr>),
    /// The value of a header or cookie.
    Value(&'a [u8]),
    /// All clients are one.
    Everyone,
}

impl LimitBy {
    /// Returns the identity of the client at this address.
    pub fn client_at(&self, address: Option<IpAddr>) -> ClientIdentity<'static> {
        match self {
            LimitBy::All => ClientIdentity::Everyone,
            LimitBy::Network(v4, v6) => ClientIdentity::Address(
                address.map(|address| network::network_address(address, *v4, *v6)),
            ),
            _ => ClientIdentity::Address(address.map(network::client_network)),
        }
    }
}

/// The key of a client under a limit: a keyed hash, so a client cannot choose its neighbours in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientKey(u64);

/// The state of all limits. All threads and all configurations of the process share one value.
#[derive(Debug)]
pub struct Limiter {
    table: ClientTable,
    keys: RandomState,
    started: Instant,
    meters: Mutex<BTreeMap<MeterName, Weak<Meter>>>,
}

impl Default for Limiter {
    fn default() -> Limiter {
        Limiter {
            table: ClientTable::new(table::MAX_CLIENTS),
            keys: RandomState::new(),
            started: Instant::now(),
            meters: Mutex::default(),
        }
    }
}

/// The part of a limit that a client exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitPart {
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
    pub over: LimitPart,
    /// How long to wait until the next request would pass; an estimate for all parts but the rate.
    pub wait: Duration,
    /// Whether the log has had no entry about this client for a while.
    pub should_log: bool,
}

/// The result of asking for one of a client's PHP processes.
#[derive(Debug)]
pub enum ProcessPermit {
    /// The request has a permit.
    Acquired(ClientPermit),
    /// Other requests of the same client have all permits, and the request waits.
    Queued(PermitQueue),
}

impl Limiter {
    /// Returns the meter of this name: that of the previous configuration, if its limit is the same.
    pub fn meter(&self, name: MeterName, limit: &Arc<ClientLimit>) -> Arc<Meter> {
        self.meter_with_wait_limits(name, limit, WaitLimits::PER_CLIENT)
    }

    fn meter_with_wait_limits(
        &self,
        name: MeterName,
        limit: &Arc<ClientLimit>,
        patience: WaitLimits,
    ) -> Arc<Meter> {
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
    pub fn abandon_meter(&self, pool: &str, processes: u32) -> Option<Arc<Meter>> {
        if processes < 2 {
            return None;
        }
        let limit = Arc::new(ClientLimit {
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
        Some(self.meter_with_wait_limits(name, &limit, WaitLimits::ABANDONED_SCRIPTS))
    }

    /// Returns the key of a client under a limit.
    pub fn key(&self, meter: &Meter, client: ClientIdentity<'_>) -> ClientKey {
        ClientKey(self.keys.hash_one((meter.id, client)))
    }

    /// Counts a request, unless its client exceeds the limit's rate.
    pub fn count(&self, meter: &Meter, key: ClientKey, now: Instant) -> Result<(), Limited> {
        let Some(rate) = &meter.limit.rate else {
            return Ok(());
        };
        let counted = self.table.count(key.0, rate, self.nanoseconds(now));
        counted.inspect_err(|_| meter.refused.increment())
    }

    /// Reverts [`Limiter::count`] for a request that was refused for another reason.
    pub fn revert_count(&self, meter: &Meter, key: ClientKey) {
        if let Some(rate) = &meter.limit.rate {
            self.table.revert_count(key.0, rate);
        }
    }

    /// Acquires a permit among the client's requests in progress, if the limit has such a part.
    ///
    /// # Errors
    /// All permits of the client are in use.
    pub fn acquire_connection(
        &self,
        meter: &Meter,
        key: ClientKey,
        now: Instant,
    ) -> Result<Option<ClientPermit>, Limited> {
        let Some(places) = &meter.connections else {
            return Ok(None);
        };
        match places.acquire(key.0) {
            PermitRequest::Place(place) => Ok(Some(place)),
            PermitRequest::Queued(_) | PermitRequest::Full => {
                Err(self.refuse_without_permit(meter, key, LimitPart::Connections, now))
            }
        }
    }

    /// Acquires a permit among the client's PHP processes, if the limit has such a part, or joins the client's queue.
    ///
    /// # Errors
    /// The queue is full.
    pub fn acquire_process(
        &self,
        meter: &Meter,
        key: ClientKey,
        now: Instant,
    ) -> Result<Option<ProcessPermit>, Limited> {
        let Some(places) = &meter.processes else {
            return Ok(None);
        };
        match places.acquire(key.0) {
            PermitRequest::Place(place) => Ok(Some(ProcessPermit::Acquired(place))),
            PermitRequest::Queued(line) => Ok(Some(ProcessPermit::Queued(line))),
            PermitRequest::Full => {
                Err(self.refuse_without_permit(meter, key, LimitPart::Processes, now))
            }
        }
    }

    /// Counts and returns the refusal of a request for which there is no permit.
    pub fn refuse_without_permit(
        &self,
        meter: &Meter,
        key: ClientKey,
        over: LimitPart,
        now: Instant,
    ) -> Limited {
        meter.refused.increment();
        Limited {
            over,
            wait: Duration::from_secs(1),
            should_log: self.table.should_log(key.0, self.nanoseconds(now)),
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
