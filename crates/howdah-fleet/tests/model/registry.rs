//! The behaviour of `registry.lua`, in Rust. The model explores it, and the tests in `howdah-tests/tests/fleet` compare
//! it with Valkey.

use howdah_fleet::protocol::{
    Entry, Hint, Incarnation, Name, Outcome, Record, Reply, Request, Row, Session, absent,
};

/// How many entries the log holds.
const LOG: u64 = 1024;

/// The registry in one incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Registry<E> {
    pub incarnation: Incarnation,
    pub settled: bool,
    pub head: u64,
    pub log: Vec<Record<E>>,
    pub rows: Vec<Row>,
}

impl<E: Clone> Registry<E> {
    pub fn empty(incarnation: Incarnation) -> Registry<E> {
        Registry {
            incarnation,
            settled: false,
            head: 0,
            log: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Carries out an exchange. Returns the reply, and the hint that is published to all members.
    pub fn exchange(&mut self, request: &Request<E>) -> (Reply<E>, Option<Hint<E>>) {
        let mut position = self.head;
        let mut hint = None;
        let outcome = match request {
            Request::Join {
                name,
                session,
                known,
                is_new,
            } => {
                self.join(name, *session, known, *is_new);
                Outcome::Done(0)
            }
            Request::Sync {
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
                None => Outcome::Unknown,
                Some(row) if row.count != *count => Outcome::OutOfStep(row.count),
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
                    Outcome::Done(count + 1)
                }
            },
            Request::Leave {
                incarnation,
                session,
            } => match self.row(incarnation, *session) {
                None => Outcome::Unknown,
                Some(_) => {
                    self.rows.retain(|row| row.session != *session);
                    Outcome::Done(0)
                }
            },
        };
        let behind = self.log.iter().filter(|record| record.number > position);
        let reply = Reply {
            incarnation: self.incarnation.clone(),
            settled: self.settled,
            outcome,
            head: self.head,
            records: behind.cloned().collect(),
            rows: self.rows.clone(),
        };
        (reply, hint)
    }

    fn row(&mut self, incarnation: &Incarnation, session: Session) -> Option<&mut Row> {
        let same = *incarnation == self.incarnation;
        let mut rows = self.rows.iter_mut().filter(|_| same);
        rows.find(|row| row.session == session && !row.replaced)
    }

    fn join(&mut self, name: &Name, session: Session, known: &[Name], is_new: bool) {
        let fresh = is_new && !self.rows.iter().any(|row| row.name == *name);
        self.rows.retain(|row| row.session != absent(name));
        for row in self.rows.iter_mut().filter(|row| row.name == *name) {
            row.replaced = true;
        }
        for name in known.iter().filter(|other| *other != name) {
            if !self.rows.iter().any(|row| row.name == *name) {
                self.rows.push(Row {
                    session: absent(name),
                    name: name.clone(),
                    count: 0,
                    position: 0,
                    replaced: false,
                    fresh: false,
                });
            }
        }
        self.rows.push(Row {
            session,
            name: name.clone(),
            count: 0,
            position: self.head,
            replaced: false,
            fresh,
        });
    }

    fn append(&mut self, author: Session, entries: &[Entry<E>]) -> Option<Hint<E>> {
        let mut records = Vec::new();
        for entry in entries {
            self.head += 1;
            records.push(Record {
                number: self.head,
                author,
                entry: entry.clone(),
            });
        }
        self.log.extend(records.iter().cloned());
        let head = self.head;
        self.log.retain(|record| record.number + LOG > head);
        let incarnation = self.incarnation.clone();
        (!records.is_empty()).then_some(Hint {
            incarnation,
            records,
        })
    }
}
