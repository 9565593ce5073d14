//! The services of the machine: the unit that continues an interrupted switch and, once the switch is complete, serves
//! after a start of the machine in place of the old servers' units.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::failure::{FailureName, SwitchFailure};
use crate::plan::{Plan, ServerKind};

/// The unit of the takeover.
pub const UNIT: &str = "howdah-takeover.service";
/// The directory of units that the administrator of the machine has made (systemd.unit(5)).
const UNIT_DIRECTORY: &str = "/etc/systemd/system";

/// Returns whether systemd manages the services of this machine (sd_booted(3)).
pub fn systemd_runs() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Returns the units of the servers to be replaced. php-fpm's stays as it is, because pools of mode `fastcgi` use it.
pub fn old_units(plan: &Plan) -> Vec<&str> {
    let servers = plan.servers.iter();
    let replaced = servers.filter(|server| server.kind != ServerKind::PhpFpm);
    replaced
        .filter_map(|server| server.unit.as_deref())
        .collect()
}

/// Returns whether systemd manages the old servers. If it does not, no unit is written or changed.
pub fn manages(plan: &Plan) -> bool {
    systemd_runs() && !old_units(plan).is_empty()
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
pub fn keep_howdah(plan: &Plan) -> Result<(), SwitchFailure> {
    for unit in old_units(plan) {
        systemctl(&["disable", "--now", unit])?;
    }
    Ok(())
}

/// Lets the old servers serve after the next start of the machine.
///
/// # Errors
/// `ServiceNotChanged`.
pub fn keep_old_servers(plan: &Plan) -> Result<(), SwitchFailure> {
    for unit in old_units(plan) {
        systemctl(&["enable", unit])?;
    }
    // Without `--now`: this process may be the unit's.
    systemctl(&["disable", UNIT])
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
