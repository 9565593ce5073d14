//! The messages between a member and the registry, and between members.

use std::sync::Arc;

/// A member's name. It survives a restart and is different on every server.
pub type MemberName = Arc<str>;

/// The membership of a member between two joins: a random number that is never reused.
pub type SessionId = u64;

/// Returns the session of a member that the registry knows only by name. It has the highest bit set, which is clear in
/// sessions drawn at random.
pub fn placeholder_session(name: &MemberName) -> SessionId {
    const FNV: (u64, u64) = (0xcbf2_9ce4_8422_2325, 0x0100_0000_01b3);
    let hash = name.bytes().fold(FNV.0, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(FNV.1)
    });
    hash | 1 << 63
}

/// Identifies a process of Valkey that has not been emptied. It consists of the run ID, the replication ID, and a
/// random value that is drawn when the registry is found empty.
pub type Incarnation = Arc<str>;

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogEntry<E> {
    /// All pages of all sites are invalidated.
    Everything,
    /// The invalidation of a write or a purge.
    Purge(E),
}

/// An entry with its number in the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogRecord<E> {
    /// The number of the entry, one more than that of the previous entry.
    pub number: u64,
    /// The session that wrote the entry, and has already applied it.
    pub author: SessionId,
    /// The invalidation that all members apply.
    pub entry: LogEntry<E>,
}

/// A request to the registry, which carries it out atomically.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RegistryRequest<E> {
    /// Starts a new session of a member. Earlier sessions of the same name end.
    Join {
        /// The member's name.
        name: MemberName,
        /// The new session.
        session: SessionId,
        /// The members that this one knows. The registry adds a row for each one that it does not know, so that the
        /// fleet waits for it.
        known: Vec<MemberName>,
        /// Whether this is the first join of the process.
        is_new: bool,
    },
    /// Reads the log, renews the lease and publishes entries.
    Sync {
        /// The incarnation that the session belongs to.
        incarnation: Incarnation,
        /// The session of the requesting member.
        session: SessionId,
        /// The number of exchanges of the session, as the member last received it. The registry refuses an exchange
        /// with another count, because it has arrived late.
        count: u64,
        /// The number of the last entry that the member has applied.
        position: u64,
        /// Entries to append to the log.
        entries: Vec<LogEntry<E>>,
        /// Whether the member has known this incarnation for at least as long as another member's lease may have
        /// lasted.
        settled: bool,
        /// Sessions that were replaced and whose leases have expired.
        over: Vec<SessionId>,
        /// Members that an administrator asserts are no longer running.
        forgets: Vec<MemberName>,
        /// Sessions that have been silent for so long that their members must have fenced themselves, each with the
        /// count for which this holds.
        fenced: Vec<(SessionId, u64)>,
    },
    /// Ends the session in good order: the member serves no stored pages and writes nothing.
    Leave {
        /// The incarnation that the session belongs to.
        incarnation: Incarnation,
        /// The session of the requesting member.
        session: SessionId,
    },
}

impl<E> RegistryRequest<E> {
    /// Returns whether the request makes the registry forget members.
    pub fn forgets_members(&self) -> bool {
        match self {
            RegistryRequest::Sync {
                forgets, fenced, ..
            } => !forgets.is_empty() || !fenced.is_empty(),
            RegistryRequest::Join { .. } | RegistryRequest::Leave { .. } => false,
        }
    }
}

/// The result of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExchangeOutcome {
    /// The exchange was carried out. Holds the new number of exchanges of the session.
    Done(u64),
    /// Nothing was done, because an exchange that the member took for lost arrived first. Holds the current number of
    /// exchanges.
    OutOfStep(u64),
    /// Nothing was done, because this incarnation does not know the session, or the session has ended.
    Unknown,
}

/// A member's row in the registry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemberRow {
    /// The session that the row belongs to.
    pub session: SessionId,
    /// The member's name.
    pub name: MemberName,
    /// The number of exchanges of the session.
    pub count: u64,
    /// The number of the last entry that the member had applied when it began the latest of these exchanges.
    pub position: u64,
    /// Whether another session has taken over the name, or the member has been forgotten. Its pages may still be
    /// served, but it writes nothing.
    pub replaced: bool,
    /// Whether this is the first session of its process, and no session of the same name existed when it joined.
    /// Nothing was written under the name before.
    pub fresh: bool,
}

/// The registry's reply to a request, a snapshot of one point in time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegistryReply<E> {
    /// The registry's incarnation.
    pub incarnation: Incarnation,
    /// Whether some member has known this incarnation for at least as long as another member's lease may have lasted.
    pub settled: bool,
    /// The result of the exchange.
    pub outcome: ExchangeOutcome,
    /// The number of the log's last entry. If the exchange appended entries, they are the last ones up to this number.
    pub head: u64,
    /// The entries after the member's position. Some are missing if the log has been trimmed.
    pub records: Vec<LogRecord<E>>,
    /// The rows of all members.
    pub rows: Vec<MemberRow>,
}

/// The message that Valkey publishes to all members while it carries out an exchange. A lost hint only costs time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntriesHint<E> {
    /// The registry's incarnation.
    pub incarnation: Incarnation,
    /// The new entries.
    pub records: Vec<LogRecord<E>>,
}
