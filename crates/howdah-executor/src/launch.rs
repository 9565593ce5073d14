//! Starts a zygote or a spawner. The front is unprivileged and has threads, so a master process starts them for it
//! where pools run as other users. Without a master, [`DirectLauncher`] does it.

use std::io::{self, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use howdah_os::descriptors::inherit;

use crate::config::{PoolConfig, PoolMode, ProgramIdentity, ProgramIni};

/// The descriptors that a zygote inherits. The launcher consumes them: after `launch` only the zygote holds them.
#[derive(Debug)]
pub struct ZygoteFds {
    /// The pool's shared memory (memfd).
    pub memory: OwnedFd,
    /// The zygote's end of the control socket.
    pub control: OwnedFd,
    /// One eventfd per front thread.
    pub bells: Vec<OwnedFd>,
    /// The writing end of the pipe that becomes the zygote's stdout and stderr.
    pub stderr: OwnedFd,
}

/// The descriptors that a spawner (see [`crate::programs`]) inherits, like [`ZygoteFds`].
#[derive(Debug)]
pub struct SpawnerFds {
    /// The spawner's end of the control socket.
    pub control: OwnedFd,
    /// The writing end of the pipe that becomes the spawner's stdout and stderr.
    pub stderr: OwnedFd,
}

/// A started zygote or spawner.
#[derive(Debug)]
pub struct LaunchedProcess {
    /// The process id of the zygote or spawner.
    pub pid: i32,
    /// Becomes readable when the process has exited.
    pub pidfd: OwnedFd,
    /// The PHP program of a zygote; empty for a spawner.
    pub program: PathBuf,
}

/// Starts zygotes and spawners. May block while a program is executed.
pub trait Launcher: Send + Sync {
    /// Executes `pool.program` as the zygote of this pool.
    fn launch(&self, pool: &PoolConfig, fds: ZygoteFds) -> io::Result<LaunchedProcess>;

    /// Executes a spawner for this pool, whose mode needs one.
    fn launch_spawner(&self, mode: &PoolMode, fds: SpawnerFds) -> io::Result<LaunchedProcess>;
}

/// Starts zygotes as children of this process, under its own user. Used when there is no master.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectLauncher;

impl Launcher for DirectLauncher {
    fn launch(&self, pool: &PoolConfig, fds: ZygoteFds) -> io::Result<LaunchedProcess> {
        let mut command = zygote_command(pool, &fds)?;
        let mut inherited = vec![fds.memory, fds.control];
        inherited.extend(fds.bells);
        inherit(&mut command, inherited);
        spawn(command, &fds.stderr, pool.program.host.clone())
    }

    fn launch_spawner(&self, mode: &PoolMode, fds: SpawnerFds) -> io::Result<LaunchedProcess> {
        // The very file that is running, even after an upgrade has replaced it, so front and spawner always use the
        // same protocol.
        let mut command = spawner_command(mode, Path::new("/proc/self/exe"), &fds)?;
        command.arg0("howdah");
        inherit(&mut command, vec![fds.control]);
        spawn(command, &fds.stderr, PathBuf::new())
    }
}

fn spawn(mut command: Command, stderr: &OwnedFd, program: PathBuf) -> io::Result<LaunchedProcess> {
    command
        .stdout(Stdio::from(stderr.try_clone()?))
        .stderr(Stdio::from(stderr.try_clone()?))
        // The terminal's Ctrl-C is for the server only, which then drains its pools.
        .process_group(0);
    let child = command.spawn().map_err(|e| {
        let program = command.get_program().display();
        io::Error::new(e.kind(), format!("cannot start {program}: {e}"))
    })?;
    let pid = child.id() as i32;
    let raw = rustix::process::Pid::from_raw(pid)
        .ok_or_else(|| io::Error::other("spawn gave process id 0"))?;
    // The child is not reaped before its pidfd has been opened, so its id cannot have been reused.
    let pidfd = rustix::process::pidfd_open(raw, rustix::process::PidfdFlags::empty())?;
    Ok(LaunchedProcess {
        pid,
        pidfd,
        program,
    })
}

/// Returns the command line, environment and standard input of a pool's spawner: `PROGRAM spawner …`. The descriptor
/// keeps its number.
///
/// # Errors
/// The mode has no spawner, or no memory file can be created for the settings.
pub fn spawner_command(mode: &PoolMode, program: &Path, fds: &SpawnerFds) -> io::Result<Command> {
    let (protocol, identity, ini, configured): (_, &ProgramIdentity, &ProgramIni, &[String]) =
        match mode {
            PoolMode::Cgi(config) => ("cgi", &config.identity, &config.ini, &config.command),
            PoolMode::Pool(config) => ("fastcgi", &config.identity, &config.ini, &config.command),
            PoolMode::Embed(_) | PoolMode::FastCgi(_) => {
                let message = format!("mode `{}` has no spawner", mode.word());
                return Err(io::Error::other(message));
            }
        };
    let mut command = Command::new(program);
    command
        .args(["spawner", "--pool", mode.name(), "--protocol", protocol])
        .arg("--control-fd")
        .arg(fds.control.as_raw_fd().to_string());
    if let Some(file) = &ini.php_ini {
        command.arg("--php-ini").arg(file);
    }
    pass_settings(&mut command, &ini.defines)?;
    if let Some(user) = &identity.user {
        command.arg("--user").arg(user);
    }
    if let Some(group) = &identity.group {
        command.arg("--group").arg(group);
    }
    command.arg("--").args(configured);
    set_environment(&mut command, identity.clear_env, &identity.environment);
    Ok(command)
}

/// Variables of the server's environment that remain when it is cleared: the search path of programs, and where PHP
/// finds its settings.
const KEPT_VARIABLES: [&str; 3] = ["PATH", "PHPRC", "PHP_INI_SCAN_DIR"];

/// Sets the part of the server's environment that a process inherits, and the variables that the configuration adds.
pub fn set_environment(command: &mut Command, clear: bool, pairs: &[(String, String)]) {
    if clear {
        command.env_clear();
        let kept = KEPT_VARIABLES
            .iter()
            .filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.envs(kept);
    }
    command.envs(pairs.iter().map(|(k, v)| (k, v)));
}

/// Passes PHP settings, as `-d` does, but by standard input: any user of the machine can read a command line, and a
/// setting may be a password.
fn pass_settings(command: &mut Command, pairs: &[(String, String)]) -> io::Result<()> {
    if pairs.is_empty() {
        command.stdin(Stdio::null());
        return Ok(());
    }
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = std::fs::File::from(rustix::fs::memfd_create("howdah-settings", flags)?);
    for (name, value) in pairs {
        write!(file, "{name}={value}\0")?;
    }
    file.rewind()?;
    command.arg("--define-stdin").stdin(Stdio::from(file));
    Ok(())
}

/// Returns the command line, environment and standard input of a pool's zygote. The descriptors keep their numbers.
///
/// # Errors
/// No memory file can be created for the settings.
pub fn zygote_command(pool: &PoolConfig, fds: &ZygoteFds) -> io::Result<Command> {
    let mut command = pool.program.command();
    let bells: Vec<String> = fds
        .bells
        .iter()
        .map(|b| b.as_raw_fd().to_string())
        .collect();
    command
        .arg("--pool")
        .arg(&pool.name)
        .arg("--memory-fd")
        .arg(fds.memory.as_raw_fd().to_string())
        .arg("--control-fd")
        .arg(fds.control.as_raw_fd().to_string())
        .arg("--bell-fds")
        .arg(bells.join(","))
        .arg("--farewell-ms")
        .arg(pool.timeouts.shutdown.as_millis().to_string());
    if let Some(worker) = &pool.worker {
        command.arg("--worker").arg(&worker.script);
    }
    add_php_settings(&mut command, pool)?;
    Ok(command)
}

/// Returns the command line, environment and standard input of a trial, which starts PHP like the pool's zygote, but
/// without preloading, and exits. The trial succeeds if PHP starts. Otherwise its last line on stderr is `howdah-php:
/// NAME: sentence`, or stderr contains only PHP's own messages.
///
/// # Errors
/// No memory file can be created for the settings.
pub fn trial_command(pool: &PoolConfig) -> io::Result<Command> {
    let mut command = pool.program.command();
    let seconds = pool.timeouts.start.as_secs().max(1);
    command.arg("--try-seconds").arg(seconds.to_string());
    add_php_settings(&mut command, pool)?;
    Ok(command)
}

/// Adds PHP's settings, user and environment.
fn add_php_settings(command: &mut Command, pool: &PoolConfig) -> io::Result<()> {
    if let Some(ini) = &pool.php_ini {
        command.arg("--php-ini").arg(ini);
    }
    if pool.worker.is_some() {
        // Before opcache wipes its cache, it waits for all processes that run code from the cache, and by default it
        // kills them after three minutes. Workers run such code for as long as they live, so they must not be killed
        // for it.
        command.args(["-d", "opcache.force_restart_timeout=2147483647"]);
    }
    pass_settings(command, &pool.defines)?;
    if let Some(user) = &pool.user {
        command.arg("--user").arg(user);
    }
    if let Some(group) = &pool.group {
        command.arg("--group").arg(group);
    }
    command
        .arg("--opcache")
        .arg(if pool.opcache { "on" } else { "off" });
    set_environment(command, pool.clear_env, &pool.environment);
    pool.program.preload(command, pool.clear_env)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleared_environment_keeps_needed_and_named_variables() {
        let pairs = [("DATABASE_URL".to_owned(), "x".to_owned())];
        let names = |clear| {
            let mut command = Command::new("true");
            set_environment(&mut command, clear, &pairs);
            let set = command.get_envs().filter(|(_, value)| value.is_some());
            let set = set.map(|(name, _)| name.to_string_lossy().into_owned());
            (set.collect::<Vec<_>>(), format!("{command:?}"))
        };
        // Cargo sets its own variables for every test.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let (kept, line) = names(true);
        assert!(
            kept.iter()
                .all(|n| KEPT_VARIABLES.contains(&&**n) || n == "DATABASE_URL"),
            "{kept:?}"
        );
        assert!(
            kept.contains(&"PATH".to_owned()) && line.starts_with("env -i "),
            "{line}"
        );
        let (added, line) = names(false);
        assert_eq!(added, ["DATABASE_URL"], "on top of all");
        assert!(!line.contains("env -i"), "{line}");
    }

    #[test]
    fn settings_are_not_on_the_command_line() {
        let mut command = Command::new("cat");
        let pairs = [("mysqli.default_pw", "s3cret"), ("a", "1 2\n")];
        pass_settings(
            &mut command,
            &pairs.map(|(k, v)| (k.to_owned(), v.to_owned())),
        )
        .unwrap();
        assert_eq!(format!("{command:?}"), r#""cat" "--define-stdin""#);
        // The program reads the settings from its standard input.
        let mut program = Command::new("sh");
        program.args(["-c", "cat", "sh"]);
        pass_settings(&mut program, &[("n".to_owned(), "v=w".to_owned())]).unwrap();
        assert_eq!(program.output().unwrap().stdout, b"n=v=w\0");
    }
}
