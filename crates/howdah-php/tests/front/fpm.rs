//! php-fpm as the oracle: started on a private socket without any php.ini, and queried by a minimal FastCGI client that
//! handles one request at a time.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use howdah_test_support::php::php_host;

use super::{MAX_WAIT, TestDir};

/// Returns the php-fpm of the installation that `php` is from: beside it, or of its series under the name that Debian
/// gives it.
fn fpm_of_series(php: &Path) -> PathBuf {
    let version = Command::new(php).arg("-v").output();
    let version = version.expect("PHP can be started").stdout;
    let version = String::from_utf8_lossy(&version).into_owned();
    let mut parts = version.split(['.', ' ']).skip(1);
    let (major, minor) = parts.next().zip(parts.next()).expect("a version");
    let directory = php.parent().unwrap_or(Path::new(""));
    [
        PathBuf::from(format!("/usr/sbin/php-fpm{major}.{minor}")),
        directory.join("php-fpm"),
        directory.join("../sbin/php-fpm"),
    ]
    .into_iter()
    .find(|path| path.exists())
    .unwrap_or_else(|| {
        panic!("php-fpm {major}.{minor} is not installed: scripts/setup-debian.sh test")
    })
}

/// A running php-fpm with one child.
pub struct Fpm {
    process: Child,
    socket: PathBuf,
    _dir: TestDir,
}

/// The status, the headers in order, and the body.
#[derive(Debug, PartialEq, Eq)]
pub struct PlainResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Fpm {
    /// Starts php-fpm with `settings` (`name=value`): the program that hosts howdah-php, or else one of its series.
    pub fn start(settings: &[&str]) -> Fpm {
        let host = php_host();
        let name = host.file_name().unwrap_or_default().to_string_lossy();
        let program = if name.starts_with("php-fpm") {
            host
        } else {
            fpm_of_series(&host)
        };
        let dir = TestDir::new();
        let socket = dir.0.join("fpm.sock");
        let config = dir.write(
            "fpm.conf",
            &format!(
                "[global]\nerror_log = {0}/fpm.log\ndaemonize = no\n[www]\nlisten = {0}/fpm.sock\n\
                 pm = static\npm.max_children = 1\ncatch_workers_output = no\nclear_env = yes\n",
                dir.0.display()
            ),
        );
        let mut command = Command::new(program);
        command.args(["-n", "-F", "-R", "-y"]).arg(config);
        for setting in settings {
            command.args(["-d", setting]);
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("php-fpm starts");
        let deadline = Instant::now() + MAX_WAIT;
        while UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < deadline, "php-fpm does not listen");
            std::thread::yield_now();
        }
        Fpm {
            process,
            socket,
            _dir: dir,
        }
    }

    /// Sends a request to php-fpm and reads its whole response.
    pub fn run(&self, variables: &[(String, String)], body: &[u8]) -> PlainResponse {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
        let mut out = record(1, &[0, 1, 0, 0, 0, 0, 0, 0]);
        let mut params = Vec::new();
        for (name, value) in variables {
            for len in [name.len(), value.len()] {
                params.extend_from_slice(&(len as u32 | 0x8000_0000).to_be_bytes());
            }
            params.extend_from_slice(name.as_bytes());
            params.extend_from_slice(value.as_bytes());
        }
        out.extend(record(4, &params));
        out.extend(record(4, b""));
        for piece in body.chunks(60_000) {
            out.extend(record(5, piece));
        }
        out.extend(record(5, b""));
        stream.write_all(&out).unwrap();
        let mut raw = Vec::new();
        loop {
            let mut head = [0; 8];
            stream.read_exact(&mut head).unwrap();
            let len = u16::from_be_bytes([head[4], head[5]]) as usize;
            let mut content = vec![0; len + head[6] as usize];
            stream.read_exact(&mut content).unwrap();
            match head[1] {
                6 => raw.extend_from_slice(&content[..len]),
                3 => return parse(&String::from_utf8_lossy(&raw)),
                _ => {}
            }
        }
    }
}

impl Drop for Fpm {
    fn drop(&mut self) {
        // On this signal, the master ends its child itself.
        super::sys::kill(self.process.id() as i32, libc::SIGTERM);
        let _ = self.process.wait();
    }
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(content.len()).unwrap().to_be_bytes();
    let mut out = vec![1, kind, 0, 1, len[0], len[1], 0, 0];
    out.extend_from_slice(content);
    out
}

fn parse(raw: &str) -> PlainResponse {
    let (head, body) = raw.split_once("\r\n\r\n").unwrap_or((raw, ""));
    let mut plain = PlainResponse {
        status: 200,
        headers: Vec::new(),
        body: body.to_owned(),
    };
    for line in head.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.trim();
        if name.eq_ignore_ascii_case("status") {
            plain.status = value.split(' ').next().unwrap().parse().unwrap();
        } else {
            plain.headers.push((name.to_owned(), value.to_owned()));
        }
    }
    plain
}
