//! `howdah php`: runs PHP on the command line. Its database writes reach the page cache of a running server before this
//! command exits. It is meant for cron jobs, WP-CLI, artisan and drush.
//!
//! `howdah-php php` is a child of this process and reports what it is about to write. This process forwards the reports
//! to the server over its control socket. So a script that is killed has already reported its writes, and PHP never
//! waits for the server. Everything else belongs to the script: standard streams, terminal, exit status.
//!
//! If no server runs, this process becomes a member of the fleet itself, if the configuration names one ([`member`]).

mod member;

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;

use howdah_server::cache::admin::AdminCommand;
use member::ScriptMember;

use super::client::{self, NoResponse, ResponseWait};
use super::served_php::ServedPhp;
use crate::effects::ScriptEffects;
use crate::master::control::ControlRequest;
use crate::{exit, sys};
use howdah_config::arguments::PhpArguments;
use howdah_config::php::{self, PhpUse};
use howdah_config::pool_section::DEFAULT_POOL;

/// How long the server may take to respond.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the script and reports its writes to the server.
pub fn run(arguments: &PhpArguments) -> ExitCode {
    let served = match php_to_run(arguments) {
        Ok(served) => served,
        Err((code, reasons)) => {
            for why in reasons {
                eprintln!("howdah: {why}");
            }
            return code;
        }
    };
    match run_and_report(arguments, &served) {
        Ok(status) => status_of(status),
        Err(why) => {
            eprintln!("howdah: PhpDoesNotStart: {}: {why}", served.program);
            exit::php()
        }
    }
}

/// Returns the PHP of the command line, or that of the pool that the arguments name.
fn php_to_run(arguments: &PhpArguments) -> Result<ServedPhp, (ExitCode, Vec<String>)> {
    let one = |why: String| (exit::php(), vec![why]);
    let checked = |served: ServedPhp| match php::check(&served.program) {
        Ok(()) => Ok(served),
        Err(why) => Err(one(why.to_string())),
    };
    match (&arguments.pool, &arguments.target.config) {
        (Some(pool), Some(file)) => ServedPhp::of_pool(file, Some(pool))
            .map_err(|mistakes| (exit::configuration(), mistakes))
            .and_then(checked),
        (Some(pool), None) if pool == DEFAULT_POOL => ServedPhp::of_environment("php")
            .map_err(one)
            .and_then(checked),
        (Some(pool), None) => {
            let why = format!(
                "--pool {pool}: give the configuration that contains this pool with --config FILE; without a configuration, the only pool is `{DEFAULT_POOL}`"
            );
            Err((exit::configuration(), vec![why]))
        }
        (None, _) => {
            let program = php::find(None, PhpUse::CommandLine)
                .and_then(|program| php::check(&program).map(|()| program));
            let program = program.map_err(|why| one(why.to_string()))?;
            let php_ini = arguments.php_ini.as_deref();
            let defines = super::settings_of_variables("php", &program, php_ini)
                .map_err(|why| one(format!("PhpDoesNotStart: {why}")))?;
            Ok(ServedPhp {
                program,
                php_ini: None,
                defines,
                environment: Vec::new(),
            })
        }
    }
}

/// Returns the script's exit status. For a script that was ended by a signal, it is the status that shells use.
fn status_of(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Returns the command `howdah-php php` with these arguments, which sends its reports to `writer`.
fn command(
    arguments: &PhpArguments,
    served: &ServedPhp,
    writer: &OwnedFd,
) -> std::io::Result<Command> {
    let mut command = served.program.command_here()?;
    let environment = served.environment.iter();
    command
        .envs(environment.map(|(name, value)| (name, value)))
        .arg("php")
        .arg("--effects-fd")
        .arg(writer.as_raw_fd().to_string())
        .args(arguments.program_arguments(served.php_ini.as_deref(), &served.defines));
    Ok(command)
}

fn run_and_report(arguments: &PhpArguments, served: &ServedPhp) -> std::io::Result<ExitStatus> {
    // Signals from a terminal reach the script as well; this process only has to outlive it.
    let signals = sys::SignalDescriptor::new(&[
        libc::SIGCHLD,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGHUP,
    ])?;
    let (effects, writer) = ScriptEffects::pair()?;
    let mut command = command(arguments, served, &writer)?;
    sys::inherit(&mut command, vec![writer]);
    // Without this process, the script's writes would no longer be reported.
    sys::exit_with_parent(&mut command, Signal::KILL);
    let mut child = command.spawn()?;
    // Our copy of the writing end is closed with the command.
    drop(command);
    let mut reporter = WriteReporter {
        arguments,
        effects,
        member: None,
        failure: None,
    };
    loop {
        let wait = reporter.effects.due().map(|due| Timespec {
            tv_sec: due.as_secs() as i64,
            tv_nsec: i64::from(due.subsec_nanos()),
        });
        let mut fds = vec![PollFd::new(&signals, PollFlags::IN)];
        if let Some(reader) = reporter.effects.fd() {
            fds.push(PollFd::from_borrowed_fd(reader, PollFlags::IN));
        }
        match rustix::event::poll(&mut fds, wait.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        reporter.effects.read();
        for signal in signals.take_pending() {
            if signal == libc::SIGTERM || signal == libc::SIGHUP {
                forward_signal(&child, signal);
            }
        }
        if let Some(status) = child.try_wait()? {
            // The last report is already in the socket. A process that the script has left behind may hold the other
            // end open.
            reporter.effects.read();
            reporter.report();
            reporter.print_failure();
            reporter.leave();
            return Ok(status);
        }
        if reporter.effects.due() == Some(Duration::ZERO) {
            reporter.report();
        }
    }
}

fn forward_signal(child: &Child, signal: i32) {
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
        // The process may have exited by itself just now.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// The writes and purges of the script, and where they are reported.
struct WriteReporter<'a> {
    arguments: &'a PhpArguments,
    effects: ScriptEffects,
    /// Set if there was no server.
    member: Option<ScriptMember>,
    /// The reason why the last report failed.
    failure: Option<String>,
}

impl WriteReporter<'_> {
    fn report(&mut self) {
        let site = self.arguments.site.as_deref();
        let Some(ask) = self.effects.report().map(|wrote| wrote.command_for(site)) else {
            return;
        };
        self.failure = self.send(ask).err();
        if self.failure.is_none() {
            self.effects.confirm_report();
        }
    }

    /// Reports to the server or to the fleet.
    fn send(&mut self, ask: AdminCommand) -> Result<(), String> {
        if let Some(member) = &self.member {
            return member.publish(&ask);
        }
        let target = &self.arguments.target;
        let question = ControlRequest::Cache { ask: ask.clone() };
        let answer = match client::send_request_if_server_runs(
            target,
            &question,
            ResponseWait::AtMost(RESPONSE_TIMEOUT),
        ) {
            Ok(answer) => answer,
            Err(NoResponse::NoServer(why)) => {
                let joined = ScriptMember::join(target.config.as_deref())?;
                let member = self.member.insert(joined.ok_or(why)?);
                return member.publish(&ask);
            }
            Err(other) => return Err(other.reason()),
        };
        let word = |key: &str| Some(answer.status.as_ref()?.get(key)?.as_str()?.to_owned());
        match (word("cache"), word("mistake")) {
            (Some(_), _) => Ok(()),
            // Without a page cache there is nothing to report.
            (None, Some(why)) if why.starts_with("CacheOff") => Ok(()),
            (None, why) => Err(why.unwrap_or(answer.message)),
        }
    }

    /// Prints the writes that could not be reported, if any, and what to do.
    fn print_failure(&self) {
        let Some(why) = &self.failure else { return };
        let all = self.effects.describe();
        let shown: Vec<&str> = all.iter().take(5).map(String::as_str).collect();
        let who = match self.member {
            Some(_) => "on a server of the fleet",
            None => "when the server is running",
        };
        eprintln!(
            "howdah php: {why}\nhowdah php: WritesNotTold: the script wrote to a database, or purged ({}{}), but no page cache was notified; {who}, run: howdah cache purge --all",
            shown.join("; "),
            if all.len() > shown.len() { "; …" } else { "" }
        );
    }

    /// Leaves the fleet.
    fn leave(&self) {
        let Some(member) = &self.member else { return };
        let has_left = member.leave();
        if self.failure.is_some() || !has_left {
            eprintln!(
                "howdah php: if servers of the fleet log FleetMemberSilent for this process, run: howdah cache forget {}",
                member.unique_member_name()
            );
        }
    }
}
