//! `howdah takeover status`: which server has each address, how far the switch is, and what to do next.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use super::failure::SwitchFailure;
use super::old_server;
use super::ports::{ListeningInodes, SharedPort};
use super::progress::{baseline_text, remaining_work, watch_text};
use super::state::{Phase, RollbackReason, STATE_FILE, SwitchLock, SwitchState};
use crate::plan::{PLAN_FILE, Plan, ServerKind};
use crate::trial::TRIAL_FILE;

/// The server that gets the new connections of an address.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServedBy {
    /// nginx.
    Nginx,
    /// Apache.
    Apache,
    /// Howdah.
    Howdah,
    /// Neither: connections are refused.
    None,
}

/// An address, and the server that gets its new connections.
#[derive(Clone, Debug, Serialize)]
pub struct PortStatus {
    /// The address.
    pub address: std::net::SocketAddr,
    /// The server.
    pub served_by: ServedBy,
    /// Whether the old server still runs, so a rollback refuses no connection.
    pub old_server_runs: bool,
}

/// The status of a takeover.
#[derive(Clone, Debug, Serialize)]
pub struct TakeoverStatus {
    /// The state of the last switch; absent if there was none.
    pub switch: Option<SwitchState>,
    /// Whether a process is in charge of the switch now.
    pub watched: bool,
    /// The addresses.
    pub ports: Vec<PortStatus>,
    /// What to do next.
    pub next: Vec<String>,
}

impl TakeoverStatus {
    /// Reads the status of the takeover in a directory.
    ///
    /// # Errors
    /// `StateUnreadable`.
    pub fn read(directory: &Path) -> Result<TakeoverStatus, SwitchFailure> {
        let switch = SwitchState::read(directory)?;
        // Only looks: a directory without a switch gets no file from this command.
        let watched = directory.join(STATE_FILE).exists()
            && matches!(SwitchLock::try_take(directory), Ok(None));
        let ports = switch.iter().flat_map(|state| {
            let howdah_runs = state.howdah.is_some_and(|howdah| howdah.is_alive());
            let listening = ListeningInodes::read();
            let ports = state.ports.iter();
            ports.map(move |port| port_status(state.phase, howdah_runs, port, &listening))
        });
        let ports: Vec<PortStatus> = ports.collect();
        Ok(TakeoverStatus {
            ports,
            next: next_steps(directory, switch.as_ref(), watched),
            switch,
            watched,
        })
    }

    /// Returns the status for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(state) = &self.switch {
            let _ = writeln!(text, "{}", phase_text(state, self));
            for port in &self.ports {
                let server = match port.served_by {
                    ServedBy::Nginx => "nginx",
                    ServedBy::Apache => "Apache",
                    ServedBy::Howdah => "Howdah",
                    ServedBy::None => "no server",
                };
                let _ = writeln!(text, "  {:<24} {server}", port.address.to_string());
            }
            let _ = writeln!(text, "{}", baseline_text(&state.baseline));
            if state.figures.seconds > 0 || state.phase == Phase::Watching {
                let _ = writeln!(text, "{}", watch_text(state));
            }
        }
        for line in &self.next {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

fn port_status(
    phase: Phase,
    howdah_runs: bool,
    port: &SharedPort,
    listening: &ListeningInodes,
) -> PortStatus {
    let old_server_runs = port.owner.is_alive();
    let is_old = old_server_runs && listening.has_any(&port.inodes);
    // Howdah has bound an address itself if no old server had it any more.
    let is_bound = port.howdah_inodes.is_empty() && phase != Phase::Starting;
    let is_howdah = howdah_runs && (is_bound || listening.has_any(&port.howdah_inodes));
    let gets_all = matches!(phase, Phase::Watching | Phase::Keeping | Phase::Kept);
    let old = match port.served_by {
        ServerKind::Nginx => ServedBy::Nginx,
        _ => ServedBy::Apache,
    };
    // An old server that was started again has other sockets.
    let was_started = || {
        let may_be = matches!(phase, Phase::RollingBack | Phase::RolledBack);
        may_be && old_server::listens(port)
    };
    // The kernel gives the connections of a server that has exited to the other one.
    let served_by = match (is_howdah, is_old) {
        (true, true) if gets_all => ServedBy::Howdah,
        (_, true) => old,
        (true, false) => ServedBy::Howdah,
        (false, false) if was_started() => old,
        (false, false) => ServedBy::None,
    };
    PortStatus {
        address: port.address,
        served_by,
        old_server_runs,
    }
}

fn phase_text(state: &SwitchState, status: &TakeoverStatus) -> String {
    let watched = status.watched;
    let has_howdah = status
        .ports
        .iter()
        .any(|port| port.served_by == ServedBy::Howdah);
    let seconds = super::state::now().saturating_sub(state.since);
    match (state.phase, &state.rollback) {
        (Phase::Starting, _) => "Howdah is being started; the old servers serve".to_owned(),
        (Phase::Watching, _) if watched => format!(
            "Howdah serves and has been watched for {seconds} s of {} s",
            state.watch_seconds
        ),
        (Phase::Watching, _) => {
            "Howdah serves, but the program that watched it was killed".to_owned()
        }
        (Phase::Keeping, _) => "the switch is being completed; Howdah serves".to_owned(),
        (Phase::Kept, _) => "the switch is complete; Howdah serves".to_owned(),
        (Phase::RollingBack, _) if has_howdah => {
            "the rollback has begun; Howdah still gets connections".to_owned()
        }
        (Phase::RollingBack, _) => {
            "the old servers serve again; Howdah finishes its requests".to_owned()
        }
        (Phase::RolledBack, Some(rollback)) => {
            format!(
                "the old servers serve: {:?}: {}",
                rollback.reason, rollback.message
            )
        }
        (Phase::RolledBack, None) => "the old servers serve".to_owned(),
    }
}

fn next_steps(directory: &Path, switch: Option<&SwitchState>, watched: bool) -> Vec<String> {
    let shown = directory.display();
    let command = |words: &str| format!("next: `howdah takeover {words} --dir {shown}`");
    let Some(state) = switch else {
        return vec![match directory {
            _ if !directory.join(PLAN_FILE).exists() => command("plan"),
            _ if !directory.join(TRIAL_FILE).exists() => command("try"),
            _ => command("switch"),
        }];
    };
    match state.phase {
        Phase::RolledBack if is_by_hand(state) => vec![command("switch")],
        Phase::RolledBack => vec![format!(
            "next: remove the cause, then `howdah takeover try --dir {shown}` and `howdah takeover switch --dir {shown}`"
        )],
        Phase::Kept => match Plan::read(directory) {
            Ok(plan) => remaining_work(state, &plan, directory),
            Err(why) => vec![why],
        },
        _ if watched => vec![format!(
            "next: nothing; to return to the old servers now, run `howdah takeover rollback --dir {shown}`"
        )],
        _ => vec![command("resume"), command("rollback")],
    }
}

fn is_by_hand(state: &SwitchState) -> bool {
    let rollback = state.rollback.as_ref();
    rollback.is_some_and(|rollback| rollback.reason == RollbackReason::RolledBackByHand)
}
