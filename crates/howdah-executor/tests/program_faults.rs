//! One program that misbehaves in every way a program can (`support/faulty.py`), in the three modes that run programs:
//! `fastcgi`, where the test starts it, `pool` and `cgi`, where Howdah does. Each fault has one name, the next request
//! is served, and nothing hangs. Faults of PHP itself are in howdah-tests' `faults/modes.rs`, for all five modes.

mod support;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use howdah_executor::cgi::CgiPool;
use howdah_executor::config::{CgiConfig, FastCgiConfig, Processes, ProgramPoolConfig};
use howdah_executor::fastcgi::FastCgiPool;
use howdah_executor::launch::{LaunchedProcess, Launcher, SpawnerFds, ZygoteFds};
use howdah_executor::program_pool::ProgramPool;
use howdah_executor::{
    ExecError, Executor, PoolConfig, PoolMode, ScriptBody, ScriptPool, ScriptRole,
};
use howdah_proto::cgi_response::CgiError;
use howdah_proto::control::Exit;
use howdah_proto::response::ResponseError;
use howdah_proto::spawner::{MAX_PACKET_BYTES, SpawnerCommand, SpawnerReport};
use rustix::net::{RecvFlags, SendFlags};

use support::backend::{backend, fastcgi_config};
use support::programs::{Scripts, TestLauncher, cgi_config, program_pool_config, request};
use support::{CollectedResponse, TestLog, bytes, finish, on_front};

#[test]
#[ignore = "not a test: the spawner's process, which the tests start"]
fn spawner_process() {
    support::programs::spawner_process();
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestedMode {
    FastCgi,
    Pool,
    Cgi,
}

/// The program as a backend that Howdah does not manage.
struct ExternalBackend {
    listener: UnixListener,
    program: PathBuf,
    child: Child,
}

impl ExternalBackend {
    fn start(listener: UnixListener, program: PathBuf) -> ExternalBackend {
        let child = ExternalBackend::execute(&listener, &program);
        ExternalBackend {
            listener,
            program,
            child,
        }
    }

    fn execute(listener: &UnixListener, program: &PathBuf) -> Child {
        let socket = OwnedFd::from(listener.try_clone().unwrap());
        let mut command = Command::new(program);
        command.stdin(Stdio::from(socket)).spawn().unwrap()
    }

    fn start_again(&mut self) {
        self.child.wait().unwrap();
        self.child = ExternalBackend::execute(&self.listener, &self.program);
    }
}

impl Drop for ExternalBackend {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct ProgramFaultFixture {
    mode: TestedMode,
    pool: Arc<dyn ScriptPool>,
    log: Arc<TestLog>,
    program: PathBuf,
    elsewhere: Option<ExternalBackend>,
    _scripts: Scripts,
}

impl ProgramFaultFixture {
    fn new(mode: TestedMode) -> ProgramFaultFixture {
        let scripts = Scripts::new();
        let program = scripts.script("faulty", include_str!("support/faulty.py"));
        let (log, launcher) = (
            Arc::new(TestLog::default()),
            Arc::new(TestLauncher::default()),
        );
        let mut elsewhere = None;
        let pool: Arc<dyn ScriptPool> = match mode {
            TestedMode::FastCgi => {
                let socket = scripts.0.join("socket");
                let listener = UnixListener::bind(&socket).unwrap();
                elsewhere = Some(ExternalBackend::start(listener, program.clone()));
                let config = FastCgiConfig {
                    max_connections: Some(1),
                    ..fastcgi_config(vec![backend(&socket)])
                };
                FastCgiPool::start(config, log.clone(), 1).unwrap()
            }
            TestedMode::Pool => {
                let config = ProgramPoolConfig {
                    command: vec![program.to_str().unwrap().to_owned()],
                    ..program_pool_config(Processes::Independent { connections: 1 }, 1)
                };
                ProgramPool::start(config, launcher, log.clone(), 1).unwrap()
            }
            TestedMode::Cgi => {
                let config: CgiConfig = cgi_config(1);
                CgiPool::start(config, launcher, log.clone()).unwrap()
            }
        };
        ProgramFaultFixture {
            mode,
            pool,
            log,
            program,
            elsewhere,
            _scripts: scripts,
        }
    }

    /// Sends a POST, which is never repeated, with a body larger than the sockets and pipes can buffer.
    async fn request(&self, how: &str) -> Result<CollectedResponse, ExecError> {
        let mut request = request(&self.program, how, ScriptBody::Memory(bytes(BODY)));
        if let TestedMode::Cgi = self.mode {
            request.role = ScriptRole::Program;
        }
        finish(self.pool.start(request)).await
    }

    async fn check_it_serves(&self, after: &str) {
        let answer = self.request("whole").await;
        let answer =
            answer.unwrap_or_else(|error| panic!("{:?} after {after}: {error}", self.mode));
        assert_eq!(answer.body, BODY.to_string().as_bytes(), "after {after}");
    }
}

const BODY: usize = 1 << 20;

/// Returns the behaviours of the program, and the errors that they cause: over FastCGI, and as a CGI program.
fn faults() -> Vec<(&'static str, ExecError, Option<ExecError>)> {
    let cgi = |error| ExecError::ResponseInvalid(ResponseError::Cgi(error));
    let closed = |answering| ExecError::BackendClosed { answering };
    let same = |error: ExecError| (error.clone(), Some(error));
    let with = |how, (over_fastcgi, as_cgi)| (how, over_fastcgi, as_cgi);
    let version = howdah_proto::fastcgi::RecordError::Version(b'H');
    vec![
        with("text", same(cgi(CgiError::NotAResponse))),
        with("headless", same(cgi(CgiError::HeadUnfinished))),
        // A CGI program may write an HTTP status line as its first line.
        with(
            "http",
            (
                ExecError::ResponseInvalid(ResponseError::FastCgi(version)),
                None,
            ),
        ),
        with("silent", (closed(false), Some(ExecError::ResponseMissing))),
        // The end of a CGI program's output is the end of its response.
        with("cut", (closed(true), None)),
        with(
            "killed",
            (closed(true), Some(ExecError::ChildDied(Exit::Signal(9)))),
        ),
    ]
}

async fn check_faults(mut rig: ProgramFaultFixture) {
    for (how, over_fastcgi, as_cgi) in faults() {
        let expected = match rig.mode {
            TestedMode::FastCgi | TestedMode::Pool => Some(over_fastcgi),
            TestedMode::Cgi => as_cgi,
        };
        let Some(expected) = expected else { continue };
        let outcome = rig.request(how).await;
        assert_eq!(outcome.err(), Some(expected), "{:?}: {how}", rig.mode);
        if how == "killed"
            && let Some(elsewhere) = &mut rig.elsewhere
        {
            elsewhere.start_again();
        }
        rig.check_it_serves(how).await;
    }
}

/// Checks unusual but permitted behaviour: the response arrives completely.
async fn check_whole_answers(rig: ProgramFaultFixture) {
    let deaf = rig.request("deaf").await.unwrap();
    assert_eq!(deaf.body, b"not interested", "{:?}", rig.mode);
    let split = rig.request("split").await.unwrap();
    assert_eq!(
        (split.head.status, &split.body[..]),
        (404, &b"body"[..]),
        "{:?}",
        rig.mode
    );
    assert_eq!(split.head.headers, [(b"X-Long".to_vec(), b"1".to_vec())]);
    let noisy = rig.request("noisy").await.unwrap();
    assert_eq!(noisy.body, b"at last", "{:?}", rig.mode);
    rig.check_it_serves("noisy").await;
}

#[test]
fn program_faults_are_named_and_the_next_request_is_served() {
    for mode in [TestedMode::FastCgi, TestedMode::Pool, TestedMode::Cgi] {
        on_front(async { check_faults(ProgramFaultFixture::new(mode)).await });
    }
}

#[test]
fn unusual_but_valid_program_output_is_accepted() {
    for mode in [TestedMode::FastCgi, TestedMode::Pool, TestedMode::Cgi] {
        let rig = ProgramFaultFixture::new(mode);
        let log = rig.log.clone();
        on_front(check_whole_answers(rig));
        log.wait_for(": in between");
        log.wait_for("line 0 xxxx");
        match mode {
            // Everything is logged line by line, however the program was started.
            TestedMode::FastCgi | TestedMode::Pool => drop(log.wait_for("line 9 xxxx")),
            TestedMode::Cgi => drop(log.wait_for("program's standard error is not logged")),
        }
    }
}

/// Traces contain the mode of the pool that ran the script.
#[test]
fn program_pools_name_their_mode() {
    for (mode, name) in [
        (TestedMode::FastCgi, "fastcgi"),
        (TestedMode::Pool, "pool"),
        (TestedMode::Cgi, "cgi"),
    ] {
        assert_eq!(ProgramFaultFixture::new(mode).pool.mode(), name);
    }
}

/// Returns what a spawner sends when it is told to start the process with this number.
type Lie = fn(u64) -> Vec<Vec<u8>>;

/// Starts first a spawner that sends these false reports, and then real ones.
struct LyingLauncher {
    lie: Mutex<Option<Lie>>,
    honest: TestLauncher,
}

impl Launcher for LyingLauncher {
    fn launch(&self, pool: &PoolConfig, fds: ZygoteFds) -> io::Result<LaunchedProcess> {
        self.honest.launch(pool, fds)
    }

    fn launch_spawner(&self, mode: &PoolMode, fds: SpawnerFds) -> io::Result<LaunchedProcess> {
        let Some(lie) = self.lie.lock().unwrap().take() else {
            return self.honest.launch_spawner(mode, fds);
        };
        // Takes the place of the spawner's process, and exits at the end of its input.
        let mut process = Command::new("cat").stdin(Stdio::piped()).spawn()?;
        let pid = process.id() as i32;
        let raw = rustix::process::Pid::from_raw(pid).unwrap();
        let pidfd = rustix::process::pidfd_open(raw, rustix::process::PidfdFlags::empty())?;
        std::thread::spawn(move || {
            let control = fds.control;
            let tell = |packet: &[u8]| rustix::net::send(&control, packet, SendFlags::NOSIGNAL);
            tell(&SpawnerReport::Ready.encode()).unwrap();
            let mut packet = vec![0; MAX_PACKET_BYTES];
            while let Ok((length @ 1.., _)) =
                rustix::net::recv(&control, &mut packet[..], RecvFlags::empty())
            {
                if let Some(SpawnerCommand::Start(start)) = SpawnerCommand::parse(&packet[..length])
                {
                    for report in lie(start.id) {
                        // The front may have shut the socket down after the first lie.
                        let _ = tell(&report);
                    }
                }
            }
            drop(process.stdin.take());
            let _ = process.wait();
        });
        Ok(LaunchedProcess {
            pid,
            pidfd,
            program: PathBuf::new(),
        })
    }
}

#[test]
fn spawner_with_impossible_reports_is_replaced() {
    let unreadable: Lie = |_| vec![b"begun".to_vec()];
    let repeated: Lie = |id| {
        // No process has this number, because it is greater than the kernel's limit (2^22).
        let started = SpawnerReport::Started { id, pid: i32::MAX };
        vec![started.encode(); 2]
    };
    for (lie, reason) in [
        (unreadable, "a message that cannot be parsed"),
        (repeated, "two reports that the same process started"),
    ] {
        let scripts = Scripts::new();
        let program = scripts.sh("hello", r"printf 'Content-Type: text/plain\n\nhello'");
        let log = Arc::new(TestLog::default());
        let launcher = Arc::new(LyingLauncher {
            lie: Some(lie).into(),
            honest: TestLauncher::default(),
        });
        let pool = CgiPool::start(cgi_config(1), launcher, log.clone()).unwrap();
        let get = || {
            let mut request = request(&program, "", ScriptBody::Empty);
            request.role = ScriptRole::Program;
            finish(pool.start(request))
        };
        on_front(async {
            pool.ready().await.unwrap();
            let failed = get().await;
            assert!(failed.is_err(), "{failed:?}");
            let complaint = log.wait_for("SpawnerProtocolError");
            assert!(complaint.contains(reason), "{complaint}");
            assert_eq!(get().await.unwrap().body, b"hello");
        });
    }
}
