//! The services of the machine: the unit that continues an interrupted switch and, once the switch is complete, serves
//! after a start of the machine in place of the old servers' units.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::failure::{FailureName, SwitchFailure};
use crate::discovery::command;
use crate::plan::{Plan, ServerKind};

/// The unit of the takeover.
pub const UNIT: &str = "howdah-takeover.service";
/// How long `systemctl` may take to say something about a unit.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// The directory of units that the administrator of the machine has made (systemd.unit(5)).
const UNIT_DIRECTORY: &str = "/etc/systemd/system";

/// Returns whether systemd manages the services of this machine (sd_booted(3)).
pub fn systemd_runs() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// A unit of an old server, as it was before the switch.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct OldUnit {
    /// The name of the unit.
    pub name: String,
    /// Whether the machine starts it.
    pub was_enabled: bool,
}

/// Returns the units of the servers to be replaced. php-fpm's stays as it is, because pools of mode `fastcgi` use it. If
/// systemd does not manage a server, nothing is done about its unit.
pub fn old_units(plan: &Plan) -> Vec<OldUnit> {
    let servers = plan.servers.iter();
    let replaced = servers.filter(|server| server.kind != ServerKind::PhpFpm);
    let units = replaced.filter_map(|server| Some((server.unit.as_deref()?, server.pid)));
    let own = units.filter(|(unit, pid)| systemd_runs() && main_process(unit) == Some(*pid));
    own.map(|(unit, _)| OldUnit {
        name: unit.to_owned(),
        was_enabled: ask(&["is-enabled", unit]).as_deref() == Some("enabled"),
    })
    .collect()
}

/// Returns the main process of a unit. A process that somebody has started from a shell, or that another program has
/// started, may be in the control group of that program's unit, but is not its main process.
pub fn main_process(unit: &str) -> Option<u32> {
    let shown = ask(&["show", "--property", "MainPID", "--value", unit])?;
    shown.parse().ok().filter(|pid| *pid != 0)
}

/// Returns what `systemctl` prints, whatever its exit code is.
fn ask(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("systemctl");
    let output = command::run(command.args(arguments), ASK_TIMEOUT).ok()?;
    Some(output.stdout.trim().to_owned())
}

/// Installs and starts the unit that continues the switch if this program is killed. Until then, it waits.
///
/// # Errors
/// `ServiceNotChanged`.
pub fn install(program: &Path, directory: &Path) -> Result<(), SwitchFailure> {
    let path = Path::new(UNIT_DIRECTORY).join(UNIT);
    fs::write(&path, unit_text(program, directory)).map_err(|error| {
        FailureName::ServiceNotChanged.with(format!("cannot write {}: {error}", path.display()))
    })?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["enable", "--now", UNIT])
}

/// Lets Howdah serve after the next start of the machine, and stops the old servers.
///
/// # Errors
/// `ServiceNotChanged`.
pub fn keep_howdah(units: &[OldUnit]) -> Result<(), SwitchFailure> {
    let mut units = units.iter();
    units.try_for_each(|unit| systemctl(&["disable", "--now", &unit.name]))
}

/// Lets the machine start the old servers that it also started before the switch.
///
/// # Errors
/// `ServiceNotChanged`. The other units are changed nevertheless.
pub fn keep_old_servers(units: &[OldUnit]) -> Result<(), SwitchFailure> {
    let enabled = units.iter().filter(|unit| unit.was_enabled);
    let changed = enabled.map(|unit| systemctl(&["enable", &unit.name]));
    // Without `--now`: this process may be the unit's.
    let ours = std::iter::once_with(|| systemctl(&["disable", UNIT]));
    changed.chain(ours).fold(Ok(()), Result::and)
}

/// Runs `systemctl`.
///
/// # Errors
/// `ServiceNotChanged` with its message.
pub fn systemctl(arguments: &[&str]) -> Result<(), SwitchFailure> {
    let line = format!("systemctl {}", arguments.join(" "));
    let failed = |why: String| {
        FailureName::ServiceNotChanged.with(format!("`{line}` failed: {why}; run it by hand"))
    };
    let mut command = Command::new("systemctl");
    let output = command.args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
    }
}

/// Returns the text of the unit.
fn unit_text(program: &Path, directory: &Path) -> String {
    let quoted = |path: &Path| {
        let text = path.display().to_string();
        // systemd.service(5), command lines: `%` begins a specifier and `$` a variable.
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{}\"", text.replace('%', "%%").replace('$', "$$"))
    };
    format!(
        "# Written by `howdah takeover switch`.\n\
         [Unit]\n\
         Description=Howdah, which has taken over from other servers\n\
         After=network-online.target\n\
         Wants=network-online.target\n\
         \n\
         [Service]\n\
         ExecStart={} resume --dir {}\n\
         # After a rollback the program exits with 0, and the unit ends.\n\
         Restart=on-failure\n\
         RestartSec=1\n\
         # Howdah continues to serve while this unit is restarted.\n\
         KillMode=process\n\
         LimitNOFILE=65536\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n",
        quoted(program),
        quoted(directory)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_quotes_paths() {
        let text = unit_text(
            Path::new("/usr/lib/howdah/howdah-takeover"),
            Path::new("/var/lib/my 100%"),
        );
        let line =
            "ExecStart=\"/usr/lib/howdah/howdah-takeover\" resume --dir \"/var/lib/my 100%%\"\n";
        assert!(text.contains(line), "{text}");
    }
}
