//! A zygote and children that are threads of the test. They use the real protocol over the real shared memory, and
//! misbehave on demand in ways that no PHP process would. A `cat` process takes the place of the zygote's process, so
//! its exit is a real one.

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command as Process, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use howdah_executor::config::{PoolConfig, PoolMode};
use howdah_executor::launch::{LaunchedProcess, Launcher, SpawnerFds, ZygoteFds};
use howdah_os::mapping::PoolMemory;
use howdah_proto::control::{Exit, StartedPhp, ZygoteCommand, ZygoteReport};
use howdah_proto::response::{encode_head, kind};
use howdah_proto::shm::{Bell, BodyRead, ChildId, ChildPort, Region, RequestClaim, VERSION};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::thread::futex;

/// Starts fake zygotes. The first report of the next one can be chosen.
#[derive(Default)]
pub struct FakeLauncher {
    /// Sent instead of `Ready` by the next zygotes, in turn.
    pub first_reports: Mutex<Vec<ZygoteReport>>,
    /// Sent by the next zygote once it is ready, with these descriptors.
    pub claims: Mutex<Vec<(ZygoteReport, Option<OwnedFd>)>>,
    /// Sent by the next zygote after its claims: a packet that is not a report.
    pub unreadable: Mutex<Option<Vec<u8>>>,
    pub launches: AtomicU32,
    /// Process ids of the `cat` processes.
    pub pids: Mutex<Vec<i32>>,
}

struct FakeZygote {
    region: &'static Region,
    control: OwnedFd,
    /// The pidfd of the `cat` process.
    pidfd: OwnedFd,
    bells: Vec<OwnedFd>,
    /// Set when the "process" of a child has been killed. Its thread then does nothing any more.
    killed: Mutex<HashMap<ChildId, Arc<AtomicBool>>>,
    /// The children that have received SIGTERM, which they handle.
    terminated: Mutex<HashSet<ChildId>>,
}

impl Launcher for FakeLauncher {
    fn launch(&self, _: &PoolConfig, fds: ZygoteFds) -> io::Result<LaunchedProcess> {
        self.launches.fetch_add(1, Ordering::SeqCst);
        let mut process = Process::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let pid = process.id() as i32;
        self.pids.lock().unwrap().push(pid);
        let raw = rustix::process::Pid::from_raw(pid).unwrap();
        let pidfd = rustix::process::pidfd_open(raw, rustix::process::PidfdFlags::empty())?;
        let memory = Arc::new(PoolMemory::map(&fds.memory)?);
        // Threads that still work when the zygote is gone use it.
        let region = Box::leak(Box::new(Region::open(memory).unwrap()));
        let fake = Arc::new(FakeZygote {
            region,
            control: fds.control,
            pidfd: pidfd.try_clone()?,
            bells: fds.bells,
            killed: Mutex::default(),
            terminated: Mutex::default(),
        });
        let mut words = self.first_reports.lock().unwrap();
        let first = if words.is_empty() {
            ZygoteReport::Ready {
                version: VERSION,
                php: StartedPhp {
                    version: "8.2-fake".into(),
                    opcache: true,
                    ..StartedPhp::default()
                },
            }
        } else {
            words.remove(0)
        };
        let claims = std::mem::take(&mut *self.claims.lock().unwrap());
        let unreadable = self.unreadable.lock().unwrap().take();
        std::thread::spawn(move || fake.serve(first, claims, unreadable, &mut process));
        Ok(LaunchedProcess {
            pid,
            pidfd,
            program: Default::default(),
        })
    }

    fn launch_spawner(&self, _: &PoolMode, _: SpawnerFds) -> io::Result<LaunchedProcess> {
        Err(io::Error::other("no spawners here"))
    }
}

impl FakeZygote {
    fn tell(&self, report: &ZygoteReport) {
        let _ = rustix::net::send(
            &self.control,
            report.encode().as_bytes(),
            SendFlags::NOSIGNAL,
        );
    }

    fn claim(&self, report: &ZygoteReport, fd: &Option<OwnedFd>) {
        let fds: Vec<_> = fd.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        }
        let text = report.encode();
        let iov = [io::IoSlice::new(text.as_bytes())];
        let flags = SendFlags::NOSIGNAL;
        let _ = rustix::net::sendmsg(&self.control, &iov, &mut ancillary, flags);
    }

    fn serve(
        self: Arc<Self>,
        first: ZygoteReport,
        claims: Vec<(ZygoteReport, Option<OwnedFd>)>,
        unreadable: Option<Vec<u8>>,
        process: &mut Child,
    ) {
        self.tell(&first);
        for (report, fd) in &claims {
            self.claim(report, fd);
        }
        if let Some(packet) = unreadable {
            let _ = rustix::net::send(&self.control, &packet, SendFlags::NOSIGNAL);
        }
        let mut packet = vec![0; 32 * 1024];
        while let Ok((n, _)) = rustix::net::recv(&self.control, &mut packet[..], RecvFlags::empty())
        {
            if n == 0 {
                break;
            }
            // A killed zygote receives nothing any more.
            if process.try_wait().unwrap().is_some() {
                break;
            }
            match ZygoteCommand::parse(&packet[..n]).expect("a command") {
                ZygoteCommand::Spawn {
                    child,
                    max_requests,
                } => {
                    let killed = Arc::new(AtomicBool::new(false));
                    self.killed.lock().unwrap().insert(child, killed.clone());
                    let fake = self.clone();
                    // There is no process: signals arrive by `ZygoteCommand::Signal`.
                    self.tell(&ZygoteReport::Spawned { child, pid: 0 });
                    std::thread::spawn(move || fake.child(child, max_requests, &killed));
                }
                ZygoteCommand::Signal { child, signal: 15 } => {
                    self.terminated.lock().unwrap().insert(child);
                }
                ZygoteCommand::Signal { child, signal } => {
                    if signal == 9
                        && let Some(killed) = self.killed.lock().unwrap().get(&child)
                        && !killed.swap(true, Ordering::SeqCst)
                    {
                        self.tell(&ZygoteReport::Exited {
                            child,
                            exit: Exit::Signal(9),
                        });
                    }
                }
                ZygoteCommand::Trace { child } => self.tell(&ZygoteReport::Trace {
                    child,
                    stack: "sleep() /fake.php:3\nmain() /fake.php:1".into(),
                }),
                ZygoteCommand::Scripts(_) => self.tell(&ZygoteReport::ScriptsDone),
            }
        }
        drop(process.stdin.take());
        let _ = process.wait();
    }

    fn ring(&self, bell: Bell, front: u32) {
        if bell.0 {
            rustix::io::write(&self.bells[front as usize], &1u64.to_ne_bytes()).unwrap();
        }
    }

    /// Returns whether the zygote's process has exited. Real children exit with it.
    fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).expect("a poll") > 0
    }

    /// Sleeps until the word changes. Returns `false` if the zygote has exited.
    fn sleep(&self, word: &AtomicU32, seen: u32) -> bool {
        let step = Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        loop {
            let slept = futex::wait(word, futex::Flags::empty(), seen, Some(&step));
            if self.is_gone() {
                return false;
            }
            if slept != Err(Errno::TIMEDOUT) {
                return true;
            }
        }
    }

    fn child(&self, id: ChildId, max_requests: u64, killed: &AtomicBool) {
        let port = ChildPort::enter(self.region, id);
        let mut turn = 0;
        while !self.is_gone() {
            turn += 1;
            if !port.is_retiring()
                && let Some(claim) = port.claim(turn)
            {
                let now = now_ns();
                port.begin_job(now);
                claim.record_begin(now);
                if !self.job(id, claim, killed) {
                    return;
                }
                if port.end_job() == max_requests {
                    port.mark_spent();
                }
                continue;
            }
            if port.is_retiring() {
                self.tell(&ZygoteReport::Exited {
                    child: id,
                    exit: Exit::Code(0),
                });
                return;
            }
            let (word, seen) = port.park();
            if let Some(claim) = port.claim(turn) {
                port.unpark();
                let now = now_ns();
                port.begin_job(now);
                claim.record_begin(now);
                if !self.job(id, claim, killed) {
                    return;
                }
                port.end_job();
            } else if !port.is_retiring() {
                if !self.sleep(word, seen) {
                    return;
                }
                port.unpark();
            }
            if killed.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Does what the URI says. Returns `false` if the process is dead.
    fn job(&self, id: ChildId, mut claim: RequestClaim, killed: &AtomicBool) -> bool {
        let is_terminated = || self.terminated.lock().unwrap().contains(&id);
        let front = claim.front();
        // The URI is the first string of a frame.
        let frame = claim.frame_bytes();
        let end = frame[40..].iter().position(|b| *b == 0).unwrap();
        let uri = String::from_utf8(frame[40..40 + end].to_vec()).unwrap();
        let (what, arg) = uri[1..].split_once('/').unwrap_or((&uri[1..], "0"));
        let number: usize = arg.parse().unwrap_or(0);
        let head = |claim: &mut RequestClaim| {
            let mut payload = Vec::new();
            encode_head(
                &mut payload,
                200,
                b"",
                [(&b"X-Fake"[..], &b"1"[..])].into_iter(),
            );
            assert!(claim.begin_frame(kind::HEAD, payload.len() as u32));
            assert_eq!(claim.write_payload(&payload), payload.len());
        };
        match what {
            "hello" => {
                head(&mut claim);
                assert_eq!(claim.write_body(b"hello"), 5);
            }
            "big" => {
                head(&mut claim);
                let all = super::bytes(number);
                if !self.write_all(&mut claim, &all, killed) {
                    self.ring(claim.done(), front);
                    return true;
                }
            }
            "echo" => {
                head(&mut claim);
                let mut buffer = vec![0; 10_000];
                loop {
                    let (mut read, mut bell) = claim.read_body(&mut buffer);
                    if read == BodyRead::Pending {
                        let (word, seen) = claim.prepare_wait();
                        (read, bell) = claim.read_body(&mut buffer);
                        if read == BodyRead::Pending {
                            let _ = futex::wait(word, futex::Flags::empty(), seen, None);
                        }
                        claim.end_wait();
                    }
                    self.ring(bell, front);
                    match read {
                        BodyRead::Bytes(n) => {
                            if !self.write_all(&mut claim, &buffer[..n], killed) {
                                break;
                            }
                        }
                        BodyRead::Pending => {}
                        BodyRead::End => break,
                        BodyRead::CutOff => {
                            self.write_all(&mut claim, b"CUT OFF", killed);
                            break;
                        }
                    }
                }
            }
            "flush" => {
                head(&mut claim);
                claim.write_body(b"one");
                self.ring(claim.publish(), front);
                self.wait(&claim, || claim.aborted());
            }
            "finish" => {
                head(&mut claim);
                claim.write_body(b"answered");
                assert!(claim.begin_frame(kind::FINISH, 0));
                self.ring(claim.publish(), front);
                self.wait_for_kill(killed);
            }
            "log" => {
                assert!(claim.begin_frame(kind::LOG, 4 + 5));
                claim.write_payload(&4u32.to_ne_bytes());
                claim.write_payload(b"beware"[..5].as_ref());
                head(&mut claim);
            }
            // Handles SIGTERM, and responds after it.
            "stubborn" => {
                while !is_terminated() {
                    std::thread::park_timeout(std::time::Duration::from_millis(2));
                }
                head(&mut claim);
            }
            "hello-unless-terminated" if is_terminated() => {
                self.wait_for_kill(killed);
                return false;
            }
            "hello-unless-terminated" => {
                head(&mut claim);
                assert_eq!(claim.write_body(b"hello"), 5);
            }
            "nothing" => {}
            "nonsense" => {
                assert!(claim.begin_frame(99, 0));
                self.ring(claim.publish(), front);
                self.wait_for_kill(killed);
                return false;
            }
            "hang" => {
                self.wait_for_kill(killed);
                return false;
            }
            other => panic!("no such fake script: {other}"),
        }
        if killed.load(Ordering::SeqCst) {
            return false;
        }
        self.ring(claim.done(), front);
        true
    }

    fn write_all(&self, claim: &mut RequestClaim, mut bytes: &[u8], killed: &AtomicBool) -> bool {
        while !bytes.is_empty() {
            if claim.aborted() || killed.load(Ordering::SeqCst) {
                return false;
            }
            let n = claim.write_body(bytes);
            bytes = &bytes[n..];
            if n == 0 {
                let bell = claim.publish();
                self.ring(bell, claim.front());
                self.wait(claim, || claim.has_room() || claim.aborted());
            }
        }
        true
    }

    fn wait(&self, claim: &RequestClaim, ready: impl Fn() -> bool) {
        while !ready() {
            let (word, seen) = claim.prepare_wait();
            if !ready() {
                let _ = futex::wait(word, futex::Flags::empty(), seen, None);
            }
            claim.end_wait();
        }
    }

    fn wait_for_kill(&self, killed: &AtomicBool) {
        while !killed.load(Ordering::SeqCst) {
            std::thread::park_timeout(std::time::Duration::from_millis(2));
        }
    }
}

fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
