//! What was written to databases, or purged, outside the front: by jobs, and by the front before an upgrade. The
//! front's page cache is to note it; a front that ends before it has said so is followed by one that is asked
//! again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use howdah_server::cache::admin::AdminCommand;

use crate::link::{Link, ToFront};

/// Reports of jobs that wait for a front; beyond, one of each site says that anything was written.
const MOST: usize = 256;

/// Who waits until it is noted: a process, and the number that it has given this.
pub type Origin = (i32, u64);

type Report = (AdminCommand, Option<Origin>);

/// See the module.
#[derive(Default)]
pub struct Unnoted {
    /// No front has been asked to note these.
    waiting: VecDeque<Report>,
    /// A front has been asked to, by the question's number.
    asked: BTreeMap<u64, Report>,
}

impl Unnoted {
    /// A job wrote.
    pub fn job_wrote(&mut self, ask: AdminCommand) {
        let from_jobs = self.waiting.iter().filter(|(_, origin)| origin.is_none());
        if from_jobs.count() >= MOST {
            self.shorten();
        }
        self.waiting.push_back((ask, None));
    }

    /// Of each site that jobs have written to, says that anything was written, and of no other: a job that
    /// writes without end purges no pages but its own.
    fn shorten(&mut self) {
        let mut sites = BTreeSet::new();
        self.waiting.retain(|(ask, origin)| {
            if let (AdminCommand::Wrote { site, .. }, None) = (ask, origin) {
                sites.insert(site.clone());
            }
            origin.is_some()
        });
        let anything = |any: &str| vec![any.to_owned()];
        self.waiting.extend(sites.into_iter().map(|site| {
            let ask = AdminCommand::Wrote {
                site,
                writes: anything(""),
                purges: anything("*"),
            };
            (ask, None)
        }));
    }

    /// Somebody waits until this is noted.
    pub fn put(&mut self, ask: AdminCommand, origin: Origin) {
        self.waiting.push_back((ask, Some(origin)));
    }

    /// Asks the front to note everything that waits.
    ///
    /// # Errors
    /// The front takes no messages.
    pub fn send(&mut self, front: &Link, mut number: impl FnMut() -> u64) -> io::Result<()> {
        while let Some((ask, _)) = self.waiting.front() {
            let id = number();
            let question = ToFront::Cache {
                id,
                ask: ask.clone(),
            };
            front.send_now(&question, &[])?;
            self.asked
                .extend(self.waiting.pop_front().map(|report| (id, report)));
        }
        Ok(())
    }

    /// Whether the front's answer was to one of these, and who waits for it.
    pub fn noted(&mut self, id: u64) -> Option<Option<Origin>> {
        self.asked.remove(&id).map(|(_, origin)| origin)
    }

    /// The next front is to note what this one has not.
    pub fn front_is_gone(&mut self) {
        self.waiting
            .extend(std::mem::take(&mut self.asked).into_values());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_writes_without_end_purges_pages_of_its_own_site_alone() {
        let mut unnoted = Unnoted::default();
        let wrote = |site: &str, write: String| AdminCommand::Wrote {
            site: Some(site.to_owned()),
            writes: vec![write],
            purges: Vec::new(),
        };
        for number in 0..2 * MOST {
            unnoted.job_wrote(wrote("shop", number.to_string()));
        }
        assert!(unnoted.waiting.len() <= MOST + 1);
        let sites = unnoted.waiting.iter().map(|(ask, _)| match ask {
            AdminCommand::Wrote { site, .. } => site.as_deref(),
            other => panic!("{other:?}"),
        });
        assert!(sites.clone().all(|site| site == Some("shop")));
        let everything = unnoted.waiting.front().map(|(ask, _)| match ask {
            AdminCommand::Wrote { purges, .. } => purges.join(" "),
            other => panic!("{other:?}"),
        });
        assert_eq!(everything.as_deref(), Some("*"));
    }
}
