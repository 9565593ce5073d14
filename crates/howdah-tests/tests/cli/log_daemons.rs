//! Logs to Debian's rsyslogd, over its unix socket and UDP, and to a socket that is read as systemd's journal reads its
//! own, because journald itself needs a whole machine.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::process::{Process, wait_until};
use howdah_tests::rig::free_address;

/// A running rsyslogd with a configuration of its own.
struct Rsyslog {
    socket: PathBuf,
    port: u16,
    /// The file to which rsyslogd writes.
    file: PathBuf,
    _process: Process,
}

impl Rsyslog {
    fn start(builder: &Builder) -> Rsyslog {
        let at = |name: &str| builder.scratch().path().join(name);
        let (socket, file) = (at("syslog.sock"), at("messages"));
        let port = free_address().port();
        let config = builder.scratch().write(
            "rsyslog.conf",
            format!(
                "module(load=\"imuxsock\" SysSock.Use=\"off\")\n\
                 input(type=\"imuxsock\" Socket=\"{}\")\n\
                 module(load=\"imudp\")\n\
                 input(type=\"imudp\" address=\"127.0.0.1\" port=\"{port}\")\n\
                 template(name=\"t\" type=\"string\" string=\"%syslogfacility-text%.%syslogseverity-text% %programname% %procid%|%msg%\\n\")\n\
                 action(type=\"omfile\" file=\"{}\" template=\"t\")\n",
                socket.display(),
                file.display()
            ),
        );
        let mut command = Command::new("/usr/sbin/rsyslogd");
        command
            .arg("-n")
            .arg("-f")
            .arg(&config)
            .arg("-i")
            .arg(at("rsyslog.pid"));
        let process = Process::start("rsyslogd", &mut command);
        wait_until("rsyslogd's socket", Duration::from_secs(30), || {
            socket.exists()
        });
        Rsyslog {
            socket,
            port,
            file,
            _process: process,
        }
    }

    fn wait_for(&self, what: &str) -> String {
        let mut found = String::new();
        wait_until(
            &format!("{what:?} in syslog"),
            Duration::from_secs(30),
            || {
                let text = std::fs::read_to_string(&self.file).unwrap_or_default();
                let line = text.lines().find(|line| line.contains(what));
                found = line.unwrap_or_default().to_owned();
                !found.is_empty()
            },
        );
        found
    }
}

fn front_of(fixture: &Fixture) -> String {
    fixture.front().to_string()
}

#[test]
fn syslog_daemon_gets_both_logs_with_their_severity() {
    let builder = Fixture::named("syslog");
    let rsyslog = Rsyslog::start(&builder);
    let fixture = builder
        .script(
            "bad.php",
            "<?php trigger_error(\"it's bad\", E_USER_WARNING);",
        )
        .config(&format!(
            "[log]\nerror = \"syslog:server=unix:{},facility=local7,tag=shop\"",
            rsyslog.socket.display()
        ))
        .argument(
            "--access-log",
            &format!("syslog:server=127.0.0.1:{}", rsyslog.port),
        )
        .start();
    fixture.get("/bad.php?x=1");
    let front = front_of(&fixture);
    let line = rsyslog.wait_for("it's bad");
    assert!(
        line.starts_with(&format!(
            "local7.warning shop {front}| warning php pool=www: "
        )),
        "{line}"
    );
    let line = rsyslog.wait_for("GET /bad.php?x=1");
    assert!(
        line.starts_with(&format!("daemon.info howdah {front}|127.0.0.1 - - [")),
        "{line}"
    );
}

/// Parses a message of journald's native protocol: fields as `NAME=value`, or with a length.
fn fields(message: &[u8]) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    let mut rest = message;
    while !rest.is_empty() {
        let end = rest
            .iter()
            .position(|b| *b == b'\n')
            .expect("a field's end");
        let line = std::str::from_utf8(&rest[..end]).expect("UTF-8");
        let (name, value) = line.split_once('=').expect("a field of one line");
        assert!(
            name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'),
            "{name}"
        );
        assert!(fields.insert(name.to_owned(), value.to_owned()).is_none());
        rest = &rest[end + 1..];
    }
    fields
}

/// A socket that is read continuously, as the journal's is. Dropping the value closes the socket.
struct Journal {
    messages: mpsc::Receiver<Vec<u8>>,
    /// Messages that were read before the test asked for them: the two logs are written by separate threads.
    read: RefCell<VecDeque<BTreeMap<String, String>>>,
    over: Arc<AtomicBool>,
    reading: Option<JoinHandle<()>>,
}

impl Journal {
    fn bind(path: &Path) -> Journal {
        let socket = UnixDatagram::bind(path).expect("a socket");
        let look = Some(Duration::from_millis(50));
        socket.set_read_timeout(look).expect("a timeout can be set");
        let (to, messages) = mpsc::channel();
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let reading = std::thread::spawn(move || {
            let mut message = vec![0; 1 << 16];
            while !ends.load(Ordering::Relaxed) {
                if let Ok(length) = socket.recv(&mut message) {
                    // The test may have ended.
                    let _ = to.send(message[..length].to_vec());
                }
            }
        });
        Journal {
            messages,
            read: RefCell::default(),
            over,
            reading: Some(reading),
        }
    }

    /// Returns the fields of the next message of `log` whose text contains `of`.
    fn next(&self, log: &str, of: &str) -> BTreeMap<String, String> {
        let wanted = |fields: &BTreeMap<String, String>| {
            fields["HOWDAH_LOG"] == log && fields["MESSAGE"].contains(of)
        };
        let mut read = self.read.borrow_mut();
        if let Some(at) = read.iter().position(wanted) {
            return read.remove(at).expect("it has just been found");
        }
        loop {
            let message = self.messages.recv_timeout(Duration::from_secs(30));
            let fields = fields(&message.unwrap_or_else(|_| panic!("no {of:?} in the {log} log")));
            if wanted(&fields) {
                return fields;
            }
            read.push_back(fields);
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(reading) = self.reading.take() {
            reading.join().expect("the reader does not panic");
        }
    }
}

#[test]
fn journal_gets_fields_to_look_for_and_a_lost_line_is_counted() {
    let builder = Fixture::named("journal");
    let path = builder.scratch().path().join("journal.sock");
    let journal = Journal::bind(&path);
    let target = format!("journald:{}", path.display());
    let fixture = builder
        .script("bad.php", "<?php error_log('told'); echo 1;")
        .config(&format!(
            "[log]\nerror = \"{target}\"\nlevel = \"info\"\n\
             [traces]\nendpoint = \"http://127.0.0.1:9\""
        ))
        .argument("--access-log", &target)
        .start();
    fixture.get("/bad.php");
    let error = journal.next("error", "told");
    assert_eq!(error["PRIORITY"], "5");
    assert_eq!(error["SYSLOG_IDENTIFIER"], "howdah");
    assert_eq!(
        (error["HOWDAH_NAME"].as_str(), error["HOWDAH_POOL"].as_str()),
        ("php", "www")
    );
    assert!(
        error["MESSAGE"].starts_with("notice php pool=www: told | GET "),
        "{error:?}"
    );
    let access = journal.next("access", "GET /bad.php");
    assert_eq!(
        (
            access["PRIORITY"].as_str(),
            access["HOWDAH_STATUS"].as_str()
        ),
        ("6", "200")
    );
    for field in ["HOWDAH_REQUEST", "HOWDAH_TRACE"] {
        assert_eq!(access[field], error[field], "{field}");
    }
    fixture.get("/none");
    let access = journal.next("access", "GET /none");
    assert_eq!(access["HOWDAH_NAME"], "NotFound");
    // The socket loses its reader, and later has one again.
    drop(journal);
    fixture.get("/bad.php");
    fixture.wait("a lost line", |fixture| {
        fixture.status()["access_log_dropped"].as_u64() > Some(0)
    });
    std::fs::remove_file(&path).expect("the socket is there");
    let journal = Journal::bind(&path);
    fixture.get("/bad.php");
    let told = journal.next("error", "access log: lines are written again");
    assert_eq!(told["HOWDAH_NAME"], "LogWorksAgain");
}

#[test]
fn daemon_that_is_not_there_is_named_at_the_start() {
    let scratch = howdah_tests::scratch::Scratch::new("no-syslog");
    let site = scratch.writable_dir("site");
    let output = Command::new(howdah_tests::rig::howdah_program())
        .args(["serve", "--listen", "127.0.0.1:0", "--access-log"])
        .arg("syslog:server=unix:/nonexistent/log")
        .arg(&site)
        .output()
        .expect("howdah can be run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("cannot write the access log: /nonexistent/log: No such file"),
        "{said}"
    );
}
