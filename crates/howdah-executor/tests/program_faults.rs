//! One program that misbehaves in every way a program can (`support/faulty.py`), in the three modes that run programs:
//! `fastcgi`, where the test starts it, `pool` and `cgi`, where Howdah does. Each fault has one name, the next request
//! is served, and nothing hangs. Faults of PHP itself are in howdah-tests' `faults/modes.rs`, for all five modes.

mod support;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use howdah_executor::cgi::CgiPool;
use howdah_executor::config::{CgiConfig, FastCgiConfig, Processes, ProgramPoolConfig};
use howdah_executor::fastcgi::FastCgiPool;
use howdah_executor::program_pool::ProgramPool;
use howdah_executor::{ExecError, ScriptBody, ScriptPool, ScriptRole};
use howdah_proto::cgi_response::CgiError;
use howdah_proto::control::Exit;
use howdah_proto::response::ResponseError;

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
