//! Writes to databases, and purges, from outside the front: from jobs, and from the front before an upgrade. The
//! front's page cache must apply them. If a front exits before it has confirmed that, they are sent to the next front
//! again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use howdah_server::cache::admin::AdminCommand;

use crate::process_channel::{ProcessChannel, ToFront};

/// The maximum number of waiting reports of jobs. Beyond that, they are merged into one report for each site, which
/// says that anything may have been written.
const MAX_WAITING_REPORTS: usize = 256;

/// The process that waits for the confirmation, and the number that the process gave the report.
pub type ReportOrigin = (i32, u64);

type WriteReport = (AdminCommand, Option<ReportOrigin>);

/// The reports that the front has not confirmed.
#[derive(Default)]
pub struct UnconfirmedWrites {
    /// Reports that were not sent to any front.
    waiting: VecDeque<WriteReport>,
    /// Reports that were sent to a front, by the number of the request.
    sent: BTreeMap<u64, WriteReport>,
}

impl UnconfirmedWrites {
    /// Adds the report of a job's write.
    pub fn add_job_write(&mut self, ask: AdminCommand) {
        let from_jobs = self.waiting.iter().filter(|(_, origin)| origin.is_none());
        if from_jobs.count() >= MAX_WAITING_REPORTS {
            self.merge_job_reports();
        }
        self.waiting.push_back((ask, None));
    }

    /// Merges the reports of jobs into one for each site that jobs have written to, which says that anything may have
    /// been written. Other sites are not affected: a job that never stops writing purges only the pages of its own
    /// site.
    fn merge_job_reports(&mut self) {
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
    pub fn add_report(&mut self, ask: AdminCommand, origin: ReportOrigin) {
        self.waiting.push_back((ask, Some(origin)));
    }

    /// Sends all waiting reports to the front.
    ///
    /// # Errors
    /// Fails if the front accepts no messages.
    pub fn send(
        &mut self,
        front: &ProcessChannel,
        mut number: impl FnMut() -> u64,
    ) -> io::Result<()> {
        while let Some((ask, _)) = self.waiting.front() {
            let id = number();
            let question = ToFront::Cache {
                id,
                ask: ask.clone(),
            };
            front.send_now(&question, &[])?;
            self.sent
                .extend(self.waiting.pop_front().map(|report| (id, report)));
        }
        Ok(())
    }

    /// Takes a report that the front has confirmed. Returns `None` if the response was not for a report, and otherwise
    /// the process that waits for the confirmation, if any.
    pub fn take_confirmed(&mut self, id: u64) -> Option<Option<ReportOrigin>> {
        self.sent.remove(&id).map(|(_, origin)| origin)
    }

    /// Puts back all reports that the front has not confirmed, so the next front receives them.
    pub fn requeue_sent(&mut self) {
        self.waiting
            .extend(std::mem::take(&mut self.sent).into_values());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unconfirmed_writes_of_an_endless_job_purge_only_its_own_site() {
        let mut unnoted = UnconfirmedWrites::default();
        let wrote = |site: &str, write: String| AdminCommand::Wrote {
            site: Some(site.to_owned()),
            writes: vec![write],
            purges: Vec::new(),
        };
        for number in 0..2 * MAX_WAITING_REPORTS {
            unnoted.add_job_write(wrote("shop", number.to_string()));
        }
        assert!(unnoted.waiting.len() <= MAX_WAITING_REPORTS + 1);
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
