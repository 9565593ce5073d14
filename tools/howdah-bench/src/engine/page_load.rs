//! Which part of a page a client requests next. The clients of a connection are the parts of one visitor's page: the
//! first requests the page, the others what the page uses.

/// The page loads of a thread.
#[derive(Debug)]
pub struct PageLoads {
    /// The number of parts of a page, and so of the clients of a visitor.
    parts: u32,
    visitors: Vec<VisitorLoad>,
}

/// One visitor's page load.
#[derive(Clone, Copy, Debug, Default)]
struct VisitorLoad {
    /// When the page was requested, in nanoseconds of the run.
    begun: u64,
    /// How many parts have not ended.
    pending: u32,
    /// Whether all parts so far had good responses.
    good: bool,
}

/// What follows the end of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextPart {
    /// The other parts are not complete.
    Nothing,
    /// The page has arrived: these clients request what it uses.
    Others { first: u32, last: u32 },
    /// The load has ended: this client requests the page again. `took` is the time of a load whose responses were all
    /// good.
    Page {
        client: u32,
        took: Option<u64>,
        begun: u64,
    },
}

impl PageLoads {
    /// Creates the loads of a thread with this number of clients.
    pub fn new(parts: u32, clients: u32) -> PageLoads {
        PageLoads {
            parts,
            visitors: vec![VisitorLoad::default(); (clients / parts) as usize],
        }
    }

    /// Returns whether this client requests the page.
    pub fn is_page(&self, client: u32) -> bool {
        client.is_multiple_of(self.parts)
    }

    /// Notes that a client begins a request.
    pub fn begin(&mut self, client: u32, now: u64) {
        let is_page = self.is_page(client);
        let visitor = &mut self.visitors[(client / self.parts) as usize];
        if is_page {
            visitor.begun = now;
            visitor.good = true;
        }
        visitor.pending += 1;
    }

    /// Decides what follows the end of a client's request.
    pub fn end(&mut self, client: u32, good: bool, now: u64) -> NextPart {
        let (is_page, parts) = (self.is_page(client), self.parts);
        let visitor = &mut self.visitors[(client / parts) as usize];
        visitor.pending = visitor.pending.saturating_sub(1);
        visitor.good &= good;
        if is_page && good {
            return NextPart::Others {
                first: client + 1,
                last: client + parts - 1,
            };
        }
        if visitor.pending > 0 {
            return NextPart::Nothing;
        }
        NextPart::Page {
            client: client - client % parts,
            took: visitor.good.then(|| now.saturating_sub(visitor.begun)),
            begun: visitor.begun,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_comes_before_its_parts_and_again_after_them() {
        let mut loads = PageLoads::new(3, 6);
        assert!(loads.is_page(3) && !loads.is_page(4));
        loads.begin(3, 100);
        assert_eq!(
            loads.end(3, true, 150),
            NextPart::Others { first: 4, last: 5 }
        );
        loads.begin(4, 150);
        loads.begin(5, 150);
        assert_eq!(loads.end(5, true, 200), NextPart::Nothing);
        let page = |took| NextPart::Page {
            client: 3,
            took,
            begun: 100,
        };
        assert_eq!(loads.end(4, true, 300), page(Some(200)));
        loads.begin(3, 100);
        assert_eq!(loads.end(3, false, 300), page(None));
        loads.begin(3, 100);
        loads.end(3, true, 110);
        loads.begin(4, 110);
        assert_eq!(loads.end(4, false, 300), page(None));
    }
}
