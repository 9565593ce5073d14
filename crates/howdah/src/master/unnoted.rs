//! Writes to databases, and purges, from outside the front: from jobs, and from the front before an upgrade. The
//! front's page cache must apply them. If a front exits before it has confirmed that, they are sent to the next front
//! again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use howdah_server::cache::admin::AdminCommand;

use crate::link::{Link, ToFront};

/// The maximum number of waiting reports of jobs. Beyond that, they are merged into one report for each site, which
/// says that anything may have been written.
const MOST: usize = 256;

/// The process that waits for the confirmation, and its number of this report.
pub type Origin = (i32, u64);

type Report = (AdminCommand, Option<Origin>);

/// The reports that the front has not confirmed.
#[derive(Default)]
pub struct Unnoted {
    /// Reports that were not sent to any front.
    waiting: VecDeque<Report>,
    /// Reports that were sent to a front, by the number of the request.
    asked: BTreeMap<u64, Report>,
}

impl Unnoted {
    /// Adds the report of a job's write.
    pub fn job_wrote(&mut self, ask: AdminCommand) {
        let from_jobs = self.waiting.iter().filter(|(_, origin)| origin.is_none());
        if from_jobs.count() >= MOST {
            self.shorten();
        }
        self.waiting.push_back((ask, None));
    }

    /// Merges the reports of jobs into one for each site that jobs have written to, which says that anything may have
    /// been written. Other sites are not affected: a job that never stops writing purges only the pages of its own
    /// site.
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

    /// Adds a report whose confirmation a process waits for.
    pub fn put(&mut self, ask: AdminCommand, origin: Origin) {
        self.waiting.push_back((ask, Some(origin)));
    }

    /// Sends all waiting reports to the front.
    ///
    /// # Errors
    /// Fails if the front accepts no messages.
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

    /// Takes a report that the front has confirmed. Returns `None` if the response was not for a report, and otherwise
    /// the process that waits for the confirmation, if any.
    pub fn noted(&mut self, id: u64) -> Option<Option<Origin>> {
        self.asked.remove(&id).map(|(_, origin)| origin)
    }

    /// Puts back all reports that the front has not confirmed, so the next front receives them.
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
