//! The reasons why a switch does not begin. All of them are found at once, so the user can remove them in one go.

use std::path::Path;

use super::failure::{FailureName, SwitchFailure};
use super::howdah::Howdah;
use super::ports::SharedPort;
use crate::discovery::findings::changes::changes;
use crate::discovery::servers::unix_seconds;
use crate::plan::{Plan, RunningServer, ServerKind, Severity};
use crate::trial::Trial;

/// How many findings or paths of one kind are named.
const MAX_NAMED: usize = 5;

/// Returns everything that forbids the switch.
pub fn refusals(directory: &Path, plan: &Plan, ports: &[SharedPort]) -> Vec<SwitchFailure> {
    let mut found = Vec::new();
    found.extend(not_root());
    found.extend(blocking_findings(plan));
    found.extend(trial(directory));
    if ports.is_empty() {
        let why = "the plan has no TCP address at which nginx or Apache serves a site; make the plan again while they run";
        found.push(FailureName::NothingToSwitch.with(why));
    }
    let replaced = plan.servers.iter();
    for server in replaced.filter(|server| server.kind != ServerKind::PhpFpm) {
        found.extend(changed_files(server, plan.made_at));
    }
    found.extend(ports.iter().filter_map(unavailable_port));
    found.extend(running_howdah(directory));
    found
}

fn not_root() -> Option<SwitchFailure> {
    let why = "run the command as root, because it takes the sockets of other users' processes";
    (!howdah_os::process::is_root()).then(|| FailureName::NotRoot.with(why))
}

fn blocking_findings(plan: &Plan) -> Option<SwitchFailure> {
    let findings = plan.findings.iter();
    let blocking = findings.filter(|finding| finding.severity == Severity::Blocks);
    let lines = blocking.map(|finding| {
        let place = finding.site.as_ref().or(finding.place.as_ref());
        let place = place.map_or(String::new(), |place| format!("{place}: "));
        format!("{place}{} ({})", finding.message, finding.name)
    });
    let why = "the plan has findings that must be removed first";
    Some(FailureName::PlanBlocks.with(format!("{why}: {}", listed(lines)?)))
}

fn trial(directory: &Path) -> Option<SwitchFailure> {
    let trial = match Trial::read(directory) {
        Ok(trial) => trial,
        Err(why) => return Some(FailureName::TrialMissing.with(why)),
    };
    let again = format!(
        "run `howdah takeover try --dir {}` again",
        directory.display()
    );
    match trial.configuration_is_current(directory) {
        Ok(true) => {}
        Ok(false) => {
            let why = format!("Howdah's configuration has been changed since the trial; {again}");
            return Some(FailureName::TrialOutdated.with(why));
        }
        Err(why) => return Some(FailureName::TrialOutdated.with(why)),
    }
    let opened = trial.opened_paths();
    let lines = opened.map(|(site, difference)| format!("{site}: {}", difference.request));
    let opened = listed(lines)?;
    let why = "Howdah would serve what the old server denies";
    Some(FailureName::OpensDenied.with(format!("{why}: {opened}; deny these paths and {again}")))
}

/// Returns the first lines, and how many others there are. Returns `None` if there are none.
fn listed(lines: impl Iterator<Item = String>) -> Option<String> {
    let lines: Vec<String> = lines.collect();
    let named = lines.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>();
    let others = lines.len() - named.len();
    let end = match others {
        0 => String::new(),
        n => format!("; and {n} more"),
    };
    (!lines.is_empty()).then(|| named.join("; ") + &end)
}

fn changed_files(server: &RunningServer, made_at: u64) -> Option<SwitchFailure> {
    let changes = changes(server, |time| unix_seconds(time) > made_at);
    let change = changes.first()?.text();
    Some(FailureName::OldConfigurationChanged.with(format!(
        "{change} after the plan was made; make the plan again, and try it again"
    )))
}

fn unavailable_port(port: &SharedPort) -> Option<SwitchFailure> {
    let pid = port.owner.pid;
    if !port.owner.is_alive() {
        return Some(FailureName::OldServerChanged.with(format!(
            "process {pid}, which served {} when the plan was made, has exited or was started again; make the plan again",
            port.address
        )));
    }
    if !port.owner.shares_network() {
        return Some(FailureName::OtherNetwork.with(format!(
            "process {pid}, which serves {}, is in another network namespace, such as that of a container; run the command there",
            port.address
        )));
    }
    port.old_sockets().err()
}

fn running_howdah(directory: &Path) -> Option<SwitchFailure> {
    let process = Howdah::of(directory).running()?;
    Some(FailureName::HowdahRuns.with(format!(
        "process {} is a Howdah with this configuration; stop it with `howdah stop --config {}`",
        process.pid,
        directory.join(crate::plan::CONFIGURATION).display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_shortened() {
        let lines = |count: usize| listed((0..count).map(|n| n.to_string()));
        assert_eq!(lines(0), None);
        assert_eq!(lines(2).unwrap(), "0; 1");
        assert_eq!(lines(7).unwrap(), "0; 1; 2; 3; 4; and 2 more");
    }
}
