//! Code that the tests of the program share: a private directory, the program's output, and waiting for a
//! condition.

#![allow(
    dead_code,
    reason = "every test binary uses its own part of this module"
)]

mod scratch;

pub use scratch::*;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

/// The program under test.
pub const HOWDAH_PROGRAM: &str = env!("CARGO_BIN_EXE_howdah");

/// Returns the program with these arguments.
pub fn howdah<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(HOWDAH_PROGRAM);
    command.args(arguments).env_remove("NOTIFY_SOCKET");
    command
}

/// A running server; killed when dropped.
pub struct ServerUnderTest {
    child: Child,
    pub address: SocketAddr,
    pub control: PathBuf,
    lines: Arc<Mutex<Vec<String>>>,
}

impl ServerUnderTest {
    /// Starts a server with these arguments on a free port, with a control socket in the scratch directory.
    pub fn start(scratch: &Scratch, arguments: &[&str]) -> ServerUnderTest {
        ServerUnderTest::start_with(scratch, arguments, &[])
    }

    /// Does the same as [`ServerUnderTest::start`], with these environment variables.
    pub fn start_with(
        scratch: &Scratch,
        arguments: &[&str],
        env: &[(&str, &Path)],
    ) -> ServerUnderTest {
        let arguments = [arguments, &["--listen", "127.0.0.1:0"]].concat();
        ServerUnderTest::start_listening(scratch, &arguments, env)
    }

    /// Starts a server that listens where the arguments, or the file that they name, specify. One of the addresses must
    /// be TCP.
    pub fn start_listening(
        scratch: &Scratch,
        arguments: &[&str],
        env: &[(&str, &Path)],
    ) -> ServerUnderTest {
        let mut command = howdah(["serve"]);
        command.args(arguments).envs(env.iter().copied());
        ServerUnderTest::start_command(scratch, command)
    }

    /// Starts a server on these sockets, each with the name that a service manager passes.
    pub fn start_passed(
        scratch: &Scratch,
        arguments: &[&str],
        sockets: Vec<(&str, OwnedFd)>,
    ) -> ServerUnderTest {
        ServerUnderTest::start_command(scratch, serve_with_passed_sockets(arguments, sockets))
    }

    /// Starts `howdah serve …`, with a control socket in the scratch directory added.
    pub fn start_command(scratch: &Scratch, mut command: Command) -> ServerUnderTest {
        let control = scratch.path("control.sock");
        command
            .arg("--control")
            .arg(&control)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let theirs = lines.clone();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                theirs.lock().unwrap().push(line);
            }
        });
        let mut server = ServerUnderTest {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            control,
            lines,
        };
        let mark = "howdah: listening on http://";
        wait_until("the server to listen", || {
            let found = server.log().lines().find_map(|line| {
                line.strip_prefix(mark)
                    .map(|address| address.parse().unwrap())
            });
            if let Some(address) = found {
                server.address = address;
            }
            assert!(
                found.is_some() || server.child.try_wait().unwrap().is_none(),
                "the server ended: {}",
                server.log()
            );
            found.is_some()
        });
        server
    }

    pub fn log(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until the server has exited.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the server to end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Runs a command that communicates with this server.
    pub fn run_command(&self, arguments: &[&str]) -> (i32, String, String) {
        run(howdah(arguments).arg("--control").arg(&self.control))
    }

    /// Returns the status of the server.
    pub fn status(&self) -> serde_json::Value {
        let (code, out, err) = self.run_command(&["status", "--json"]);
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).unwrap()
    }

    /// Sends a request on a connection of its own.
    pub fn send_request(&self, path: &str) -> TcpStream {
        self.send_request_to("localhost", path)
    }

    /// Sends a request for this host on a connection of its own.
    pub fn send_request_to(&self, host: &str, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        stream
    }

    /// Returns the status and the body of the response to a request for this host.
    pub fn get_from(&self, host: &str, path: &str) -> (u16, String) {
        read_response(self.send_request_to(host, path))
    }

    /// Returns the status and the body of the response to a request.
    pub fn get(&self, path: &str) -> (u16, String) {
        read_response(self.send_request(path))
    }
}

impl Drop for ServerUnderTest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns `howdah serve` with sockets that are passed as sd_listen_fds(3) specifies.
pub fn serve_with_passed_sockets(arguments: &[&str], sockets: Vec<(&str, OwnedFd)>) -> Command {
    // The copies have numbers above those that they are moved to.
    let moved = |socket: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(socket, 100).unwrap();
    let (names, sockets): (Vec<&str>, Vec<OwnedFd>) = sockets
        .iter()
        .map(|(name, socket)| (*name, moved(socket)))
        .unzip();
    let moves: Vec<String> = (3..)
        .zip(&sockets)
        .map(|(number, socket)| format!("{number}<&{0} {0}<&-", socket.as_raw_fd()))
        .collect();
    let mut command = Command::new("bash");
    command
        .arg("-c")
        .arg(format!(
            "exec {}; LISTEN_PID=$$ exec \"$@\"",
            moves.join(" ")
        ))
        .args(["-", HOWDAH_PROGRAM, "serve"])
        .args(arguments)
        .env_remove("NOTIFY_SOCKET")
        .env("LISTEN_FDS", sockets.len().to_string())
        .env("LISTEN_FDNAMES", names.join(":"));
    howdah_os::descriptors::inherit(&mut command, sockets);
    command
}

/// Reads a response until the end of the connection.
pub fn read_response(mut stream: TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text
        .get(9..12)
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(|| panic!("no answer: {text:?}"));
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

/// Creates a directory to serve, with a page, a file, and a script that a test can block.
pub fn create_site(scratch: &Scratch) -> String {
    scratch.write("web/index.php", "<?php echo 'one';");
    scratch.write("web/a.txt", "static");
    // The script waits for a file, so the test decides when the request ends.
    scratch.write(
        "web/hold.php",
        "<?php touch($_GET['f'] . '.began'); while (!file_exists($_GET['f'])) { usleep(2000); clearstatcache(); } echo 'held';",
    );
    scratch.path("web").display().to_string()
}

/// Returns the process id of the front from the server's status.
pub fn front_pid(server: &ServerUnderTest) -> i32 {
    server.status()["pid"].as_i64().unwrap() as i32
}

/// Sends a signal to a process.
pub fn kill(pid: i32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Returns whether a process has exited. A zombie that its parent has not waited for counts as exited.
pub fn is_gone(pid: i32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat"));
    state.map_or(true, |text| text.contains(") Z "))
}

/// Starts a request that runs until the test writes the file with this name.
pub fn begin_held_request(server: &ServerUnderTest, scratch: &Scratch, name: &str) -> TcpStream {
    let file = scratch.path(name);
    let stream = server.send_request(&format!("/hold.php?f={}", file.display()));
    let began = scratch.path(&format!("{name}.began"));
    wait_until("the script to begin", || began.exists());
    stream
}

/// A process that is killed when its value is dropped, however the test ends.
pub struct EndedWithTheTest(pub Child);

impl Drop for EndedWithTheTest {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
