//! A spawner for tests: the test program itself, started again to run [`spawner_process`].

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use howdah_executor::config::{
    CgiConfig, FastCgiConfig, ProcessManager, Processes, ProgramIdentity, ProgramIni,
    ProgramPoolConfig,
};
use howdah_executor::launch::{LaunchedProcess, Launcher, SpawnerFds, ZygoteFds};
use howdah_executor::programs::spawner::{self, ProgramProtocol, SpawnerSettings};
use howdah_executor::{PoolConfig, PoolMode, ScriptBody, ScriptRequest, ScriptRole};
use howdah_os::descriptors::{inherit, take_inherited};
use howdah_proto::request::FrameBuilder;
use howdah_proto::variables::Var;

use super::TEST_TIMEOUT;
use super::backend::fastcgi_config;
use super::executable::make_executable;

const CONTROL: &str = "TEST_SPAWNER_CONTROL";
const COMMAND: &str = "TEST_SPAWNER_COMMAND";
const PROTOCOL: &str = "TEST_SPAWNER_PROTOCOL";

/// Starts spawners, and records their process ids.
#[derive(Default)]
pub struct TestLauncher {
    pub pids: Mutex<Vec<i32>>,
}

impl TestLauncher {
    /// Returns the process id of the most recent spawner.
    pub fn pid(&self) -> i32 {
        *self.pids.lock().unwrap().last().unwrap()
    }
}

impl Launcher for TestLauncher {
    fn launch(&self, _: &PoolConfig, _: ZygoteFds) -> io::Result<LaunchedProcess> {
        Err(io::Error::other("no zygotes here"))
    }

    fn launch_spawner(&self, mode: &PoolMode, fds: SpawnerFds) -> io::Result<LaunchedProcess> {
        let (protocol, command) = match mode {
            PoolMode::Cgi(config) => ("cgi", config.command.clone()),
            PoolMode::Pool(config) => ("fastcgi", config.command.clone()),
            PoolMode::Embed(_) | PoolMode::FastCgi(_) => {
                return Err(io::Error::other("no spawner"));
            }
        };
        let number = fds.control.as_raw_fd();
        let mut test = Command::new(std::env::current_exe()?);
        test.args(["--exact", "spawner_process", "--ignored", "--nocapture"])
            .env(CONTROL, number.to_string())
            .env(COMMAND, command.join("\n"))
            .env(PROTOCOL, protocol)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::from(fds.stderr))
            .process_group(0);
        inherit(&mut test, vec![fds.control]);
        let child = test.spawn()?;
        let pid = child.id() as i32;
        self.pids.lock().unwrap().push(pid);
        let raw = rustix::process::Pid::from_raw(pid).unwrap();
        let pidfd = rustix::process::pidfd_open(raw, rustix::process::PidfdFlags::empty())?;
        Ok(LaunchedProcess {
            pid,
            pidfd,
            program: Default::default(),
        })
    }
}

/// Runs the spawner's process. The test with this name calls it.
pub fn spawner_process() {
    let number = std::env::var(CONTROL).expect("started by a test").parse();
    let control = take_inherited(number.unwrap()).unwrap();
    let command = std::env::var(COMMAND).unwrap();
    let settings = SpawnerSettings {
        protocol: match std::env::var(PROTOCOL).unwrap().as_str() {
            "cgi" => ProgramProtocol::Cgi,
            _ => ProgramProtocol::FastCgi,
        },
        command: command.split('\n').map(Into::into).collect(),
        environment: Vec::new(),
    };
    spawner::serve(control, settings).unwrap();
}

/// Returns the configuration of a pool that starts php-cgi for each request.
pub fn cgi_config(children: u32) -> CgiConfig {
    CgiConfig {
        name: "test".to_owned(),
        command: vec!["/usr/bin/php-cgi".to_owned()],
        identity: ProgramIdentity::default(),
        ini: ProgramIni::default(),
        max_children: children,
        queue_size: 1000,
        queue_timeout: TEST_TIMEOUT,
        request_terminate_timeout: None,
        spawner_timeout: TEST_TIMEOUT,
    }
}

/// Returns the configuration of a pool of running php-cgi programs. Tests change the values that they are about.
pub fn program_pool_config(processes: Processes, children: u32) -> ProgramPoolConfig {
    ProgramPoolConfig {
        name: "test".to_owned(),
        command: vec!["/usr/bin/php-cgi".to_owned()],
        processes,
        identity: ProgramIdentity::default(),
        ini: ProgramIni::default(),
        pm: ProcessManager::Static,
        max_children: children,
        process_idle_timeout: Duration::from_secs(10),
        max_requests: 0,
        max_memory: None,
        spawner_timeout: TEST_TIMEOUT,
        client: FastCgiConfig {
            max_connections: None,
            keep_timeout: Duration::from_secs(30),
            ..fastcgi_config(Vec::new())
        },
    }
}

/// A directory of scripts, which is removed when the value is dropped.
pub struct Scripts(pub PathBuf);

impl Scripts {
    pub fn new() -> Scripts {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("howdah-programs-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Scripts(path)
    }

    /// Writes an executable file with this text.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        make_executable(&path);
        path
    }

    /// Writes an executable shell script with these commands.
    pub fn sh(&self, name: &str, text: &str) -> PathBuf {
        self.script(name, &format!("#!/bin/sh\n{text}\n"))
    }

    /// Compiles a C program.
    pub fn c(&self, name: &str, text: &str) -> PathBuf {
        let source = self.0.join(format!("{name}.c"));
        std::fs::write(&source, text).unwrap();
        let path = self.0.join(name);
        let mut cc = Command::new("cc");
        let status = cc.arg("-o").arg(&path).arg(&source).status();
        assert!(status.expect("a C compiler").success());
        path
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Creates a request for a script, like the server does.
pub fn request(script: &Path, query: &str, body: ScriptBody) -> ScriptRequest {
    let length = match &body {
        ScriptBody::Empty => None,
        ScriptBody::Memory(bytes) => Some(bytes.len() as u64),
        ScriptBody::File(_, len) => Some(*len),
        ScriptBody::Stream(_) => None,
    };
    let mut b = FrameBuilder::new(Vec::new());
    let method: &[u8] = match body {
        ScriptBody::Empty => b"GET",
        _ => b"POST",
    };
    let script = script.to_str().unwrap();
    b.var(Var::RequestMethod, method);
    b.var_parts(Var::RequestUri, &[b"/x?", query.as_bytes()]);
    b.var(Var::QueryString, query.as_bytes());
    b.var(Var::ScriptFilename, script.as_bytes());
    b.var(Var::ScriptName, b"/x");
    b.var(Var::GatewayInterface, b"CGI/1.1");
    b.var(Var::ServerProtocol, b"HTTP/1.1");
    b.var(Var::RedirectStatus, b"200");
    b.var(Var::HttpHost, b"example.org");
    if let Some(length) = length {
        b.var(Var::ContentLength, length.to_string().as_bytes());
        b.var(Var::ContentType, b"text/plain");
    }
    ScriptRequest {
        frame: b.finish(length, 0).unwrap(),
        body,
        id: 7,
        role: ScriptRole::Responder,
        client: None,
        effects: None,
        drop_at_end: None,
    }
}

/// Returns whether a process exists and is not a zombie.
pub fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| {
        let state = stat.rsplit(") ").next().unwrap_or_default();
        !state.starts_with(['Z', 'X'])
    })
}

/// Sends SIGKILL to one process.
pub fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Sends SIGSTOP to one process.
pub fn stop(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
}
