//! The behaviour of `registry.lua`, in Rust. The model explores it, and the tests in `howdah-tests/tests/fleet/pages`
//! compare it with Valkey.

use howdah_fleet::protocol::{
    EntriesHint, ExchangeOutcome, Incarnation, LogEntry, LogRecord, MemberName, MemberRow,
    RegistryReply, RegistryRequest, SessionId, placeholder_session,
};

/// How many entries the log holds.
const MAX_LOG_ENTRIES: u64 = 1024;

/// The registry in one incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelRegistry<E> {
    pub incarnation: Incarnation,
    pub settled: bool,
    pub head: u64,
    pub log: Vec<LogRecord<E>>,
    pub rows: Vec<MemberRow>,
}

impl<E: Clone> ModelRegistry<E> {
    pub fn empty(incarnation: Incarnation) -> ModelRegistry<E> {
        ModelRegistry {
            incarnation,
            settled: false,
            head: 0,
            log: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Carries out an exchange. Returns the reply, and the hint that is published to all members.
    pub fn exchange(
        &mut self,
        request: &RegistryRequest<E>,
    ) -> (RegistryReply<E>, Option<EntriesHint<E>>) {
        let mut position = self.head;
        let mut hint = None;
        let outcome = match request {
            RegistryRequest::Join {
                name,
                session,
                known,
                is_new,
            } => {
                self.join(name, *session, known, *is_new);
                ExchangeOutcome::Done(0)
            }
            RegistryRequest::Sync {
                incarnation,
                session,
                count,
                position: applied,
                entries,
                settled,
                over,
                forgets,
                fenced,
            } => match self.row(incarnation, *session) {
                None => ExchangeOutcome::Unknown,
                Some(row) if row.count != *count => ExchangeOutcome::OutOfStep(row.count),
                Some(row) => {
                    row.count += 1;
                    row.position = *applied;
                    position = *applied;
                    self.settled |= settled;
                    self.rows
                        .retain(|row| !(row.replaced && over.contains(&row.session)));
                    for row in &mut self.rows {
                        row.replaced |= forgets.contains(&row.name)
                            || fenced.contains(&(row.session, row.count));
                    }
                    hint = self.append(*session, entries);
                    ExchangeOutcome::Done(count + 1)
                }
            },
            RegistryRequest::Leave {
                incarnation,
                session,
            } => match self.row(incarnation, *session) {
                None => ExchangeOutcome::Unknown,
                Some(_) => {
                    self.rows.retain(|row| row.session != *session);
                    ExchangeOutcome::Done(0)
                }
            },
        };
        let behind = self.log.iter().filter(|record| record.number > position);
        let reply = RegistryReply {
            incarnation: self.incarnation.clone(),
            settled: self.settled,
            outcome,
            head: self.head,
            records: behind.cloned().collect(),
            rows: self.rows.clone(),
        };
        (reply, hint)
    }

    fn row(&mut self, incarnation: &Incarnation, session: SessionId) -> Option<&mut MemberRow> {
        let same = *incarnation == self.incarnation;
        let mut rows = self.rows.iter_mut().filter(|_| same);
        rows.find(|row| row.session == session && !row.replaced)
    }

    fn join(&mut self, name: &MemberName, session: SessionId, known: &[MemberName], is_new: bool) {
        let fresh = is_new && !self.rows.iter().any(|row| row.name == *name);
        self.rows
            .retain(|row| row.session != placeholder_session(name));
        for row in self.rows.iter_mut().filter(|row| row.name == *name) {
            row.replaced = true;
        }
        for name in known.iter().filter(|other| *other != name) {
            if !self.rows.iter().any(|row| row.name == *name) {
                self.rows.push(MemberRow {
                    session: placeholder_session(name),
                    name: name.clone(),
                    count: 0,
                    position: 0,
                    replaced: false,
                    fresh: false,
                });
            }
        }
        self.rows.push(MemberRow {
            session,
            name: name.clone(),
            count: 0,
            position: self.head,
            replaced: false,
            fresh,
        });
    }

    fn append(&mut self, author: SessionId, entries: &[LogEntry<E>]) -> Option<EntriesHint<E>> {
        let mut records = Vec::new();
        for entry in entries {
            self.head += 1;
            records.push(LogRecord {
                number: self.head,
                author,
                entry: entry.clone(),
            });
        }
        self.log.extend(records.iter().cloned());
        let head = self.head;
        self.log
            .retain(|record| record.number + MAX_LOG_ENTRIES > head);
        let incarnation = self.incarnation.clone();
        (!records.is_empty()).then_some(EntriesHint {
            incarnation,
            records,
        })
    }
}
