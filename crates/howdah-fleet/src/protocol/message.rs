//! What a member and the registry say to each other, and members among themselves.

use std::sync::Arc;

/// A member's name: the same after a restart, another for every server.
pub type Name = Arc<str>;

/// A member's membership between two joins: drawn at random, never used again.
pub type Session = u64;

/// The session of a member that the registry knows by name only; those that are drawn have its first bit
/// clear.
pub fn absent(name: &Name) -> Session {
    const FNV: (u64, u64) = (0xcbf2_9ce4_8422_2325, 0x0100_0000_01b3);
    let hash = name.bytes().fold(FNV.0, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(FNV.1)
    });
    hash | 1 << 63
}

/// A process of Valkey that has not been emptied: its run, its replication and a value that is drawn when
/// the registry is found empty.
pub type Incarnation = Arc<str>;

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Entry<E> {
    /// All pages of all sites are old.
    Everything,
    /// What a write or a purge makes old.
    Purge(E),
}

/// An entry with its number in the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record<E> {
    /// Its number, one more than that of the entry before.
    pub number: u64,
    /// The session that wrote it, which has applied it already.
    pub author: Session,
    /// What it makes old.
    pub entry: Entry<E>,
}

/// An exchange with the registry, which carries it out as one step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request<E> {
    /// A new session of a member. Sessions of its name are over.
    Join {
        /// The member's name.
        name: Name,
        /// The new session.
        session: Session,
        /// Members that this one knows of; the registry waits for those that it does not know.
        known: Vec<Name>,
        /// Whether no session of this process has joined before.
        is_new: bool,
    },
    /// Reads the log, renews and publishes.
    Sync {
        /// The incarnation that the session belongs to.
        incarnation: Incarnation,
        /// The session of the member that asks.
        session: Session,
        /// The count of the session's exchanges, as it last heard it: an exchange that arrives late is
        /// refused by it.
        count: u64,
        /// The number of the last entry that the member has applied.
        position: u64,
        /// Entries to append to the log.
        entries: Vec<Entry<E>>,
        /// Whether the member has known this incarnation for as long as a lease of another may have lasted.
        settled: bool,
        /// Sessions that were replaced, and whose leases have run out.
        over: Vec<Session>,
        /// Members that an administrator vouches for: they run no more.
        forgets: Vec<Name>,
        /// Sessions that have been silent until their members have fenced themselves, each with the count at
        /// which that is so.
        fenced: Vec<(Session, u64)>,
    },
    /// The session ends in good order: the member serves no stored page and writes nothing.
    Leave {
        /// The incarnation that the session belongs to.
        incarnation: Incarnation,
        /// The session of the member that asks.
        session: Session,
    },
}

impl<E> Request<E> {
    /// Whether members are forgotten by it.
    pub fn forgets(&self) -> bool {
        match self {
            Request::Sync {
                forgets, fenced, ..
            } => !forgets.is_empty() || !fenced.is_empty(),
            Request::Join { .. } | Request::Leave { .. } => false,
        }
    }
}

/// What became of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was carried out; the count of the session's exchanges now.
    Done(u64),
    /// Nothing was done: an exchange that the member took for lost has arrived before it. The count now.
    OutOfStep(u64),
    /// Nothing was done: this incarnation does not know the session, or it is over.
    Unknown,
}

/// A member's row in the registry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// The session that the row belongs to.
    pub session: Session,
    /// The member's name.
    pub name: Name,
    /// How many exchanges it has had.
    pub count: u64,
    /// The last entry that it had applied when it began the last of them.
    pub position: u64,
    /// Another session has taken its name over, or it is forgotten: its pages may still be served, but it
    /// writes nothing.
    pub replaced: bool,
    /// It is its process' first, and no session of its name was there when it joined: nothing was written in
    /// its name before.
    pub fresh: bool,
}

/// What the registry answers, as of one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reply<E> {
    /// The registry's incarnation.
    pub incarnation: Incarnation,
    /// Whether some member has known it for as long as a lease of another may have lasted.
    pub settled: bool,
    /// What became of the exchange.
    pub outcome: Outcome,
    /// The number of the log's last entry; the exchange's own are the last ones before it.
    pub head: u64,
    /// The entries behind the member's position; some are missing if the log is shorter.
    pub records: Vec<Record<E>>,
    /// The rows of all members.
    pub rows: Vec<Row>,
}

/// What Valkey passes on to all members while it carries an exchange out. One that is lost costs time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hint<E> {
    /// The registry's incarnation.
    pub incarnation: Incarnation,
    /// The new entries.
    pub records: Vec<Record<E>>,
}
