//! A simulated zygote. It receives the supervisor's commands and sends its reports over the real control socket, and
//! its children are [`Child`] values.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use howdah_executor::launch::{LaunchedProcess, Launcher, SpawnerFds, ZygoteFds};
use howdah_executor::{PoolConfig, PoolMode};
use howdah_os::mapping::PoolMemory;
use howdah_proto::control::{Exit, MAX_PACKET_BYTES, StartedPhp, ZygoteCommand, ZygoteReport};
use howdah_proto::shm::{ChildPort, Region, VERSION};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{RecvFlags, SendFlags};

use crate::child::{Child, FaultRates};
use crate::ledger::Ledger;
use crate::random::Random;
use crate::trace::Trace;

/// Launches simulated zygotes. The simulation takes them with [`ZygoteLauncher::take`].
#[derive(Default)]
pub struct ZygoteLauncher(Mutex<Vec<LaunchedZygote>>);

/// The descriptors of a zygote that has been launched.
pub struct LaunchedZygote {
    fds: ZygoteFds,
    /// Readable once the zygote has exited, like a real process's pidfd.
    exit_bell: OwnedFd,
}

impl Launcher for ZygoteLauncher {
    fn launch(&self, _: &PoolConfig, fds: ZygoteFds) -> io::Result<LaunchedProcess> {
        let exit_bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let pidfd = exit_bell.try_clone()?;
        let launched = LaunchedZygote { fds, exit_bell };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(launched);
        // Its children are reported without a process, too, so no real process is ever signalled.
        Ok(LaunchedProcess {
            pid: 0,
            pidfd,
            program: PathBuf::new(),
        })
    }

    fn launch_spawner(&self, _: &PoolMode, _: SpawnerFds) -> io::Result<LaunchedProcess> {
        Err(io::Error::other("programs are not simulated"))
    }
}

impl ZygoteLauncher {
    /// Returns the zygotes that have been launched since the last call.
    pub fn take(&self) -> Vec<LaunchedZygote> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A running zygote.
pub struct Zygote {
    region: &'static Region,
    fds: ZygoteFds,
    exit_bell: OwnedFd,
    children: Vec<Child>,
    /// Reports, and when they are sent.
    reports: Vec<(Duration, ZygoteReport)>,
    faults: FaultRates,
    random: Random,
    trace: Trace,
    ledger: Ledger,
}

/// What a zygote and its children have done in one call of [`Zygote::step`].
#[derive(Default)]
pub struct ZygoteActions {
    /// Whether anything was done at all.
    pub any: bool,
    /// Whether the front's bell was rung.
    pub rang_front: bool,
    /// Whether a child published bytes without ringing a bell before any child rang.
    pub published_silently: bool,
    /// Whether the zygote has exited.
    pub exited: bool,
}

impl Zygote {
    /// Starts a launched zygote.
    ///
    /// # Errors
    /// The pool's memory cannot be mapped.
    pub fn start(
        launched: LaunchedZygote,
        faults: FaultRates,
        mut random: Random,
        trace: Trace,
        ledger: Ledger,
    ) -> io::Result<Zygote> {
        let memory = Arc::new(PoolMemory::map(&launched.fds.memory)?);
        let region = Region::open(memory)
            .map_err(|e| io::Error::other(format!("the pool's memory is not usable: {e:?}")))?;
        let ready = ZygoteReport::Ready {
            version: VERSION,
            php: StartedPhp {
                version: "8.2-simulated".to_owned(),
                opcache: true,
                ..StartedPhp::default()
            },
        };
        let ready_at = trace.time() + random.millis(300);
        trace.note("a zygote starts");
        Ok(Zygote {
            // A child has the memory mapped for its whole life, and the program runs a limited number of simulations.
            region: Box::leak(Box::new(region)),
            fds: launched.fds,
            exit_bell: launched.exit_bell,
            children: Vec::new(),
            reports: vec![(ready_at, ready)],
            faults,
            random,
            trace,
            ledger,
        })
    }

    /// Returns whether any child sleeps although nothing has woken it.
    pub fn has_sleeping_child(&self) -> bool {
        self.children.iter().any(Child::is_asleep)
    }

    /// Lets the zygote and its children do everything that they can do now.
    pub fn step(&mut self) -> io::Result<ZygoteActions> {
        let mut actions = ZygoteActions::default();
        self.receive_commands(&mut actions)?;
        if actions.exited {
            return Ok(actions);
        }
        let mut children = std::mem::take(&mut self.children);
        for child in &mut children {
            let done = child.step();
            actions.any |= done.any;
            actions.published_silently |=
                done.published_silently && !done.rings_front && !actions.rang_front;
            if done.rings_front {
                actions.rang_front = true;
                ring(&self.fds.bells[0])?;
            }
            if done.rings_supervisor {
                ring(&self.fds.bells[1])?;
            }
            if let Some(code) = done.exited {
                let exit = code.map_or(Exit::Signal(9), Exit::Code);
                let report = ZygoteReport::Exited {
                    child: child.id,
                    exit,
                };
                self.report_later(report, 20);
            }
        }
        children.retain(|child| !child.has_exited());
        self.children = children;
        self.send_due_reports();
        Ok(actions)
    }

    fn report_later(&mut self, report: ZygoteReport, max_millis: u64) {
        let at = self.trace.time() + self.random.millis(max_millis);
        self.reports.push((at, report));
    }

    fn receive_commands(&mut self, actions: &mut ZygoteActions) -> io::Result<()> {
        let mut packet = [0; MAX_PACKET_BYTES];
        loop {
            let received =
                rustix::net::recv(&self.fds.control, &mut packet[..], RecvFlags::DONTWAIT);
            let length = match received {
                Ok((length, _)) => length,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(_) => 0,
            };
            actions.any = true;
            if length == 0 {
                self.exit("exits, because its supervisor has closed its socket")?;
                actions.exited = true;
                return Ok(());
            }
            let text = String::from_utf8_lossy(&packet[..length]).into_owned();
            let command = ZygoteCommand::parse(&packet[..length])
                .ok_or_else(|| io::Error::other(format!("not a command: {text}")))?;
            self.execute(&command);
        }
    }

    fn execute(&mut self, command: &ZygoteCommand) {
        match command {
            ZygoteCommand::Spawn {
                child,
                max_requests,
            } => {
                let child = *child;
                if self.random.chance(2) {
                    self.trace
                        .note(format_args!("the zygote cannot fork child {}", child.index));
                    let message = "out of memory".to_owned();
                    self.report_later(ZygoteReport::SpawnFailed { child, message }, 5);
                    return;
                }
                self.children.push(Child::new(
                    ChildPort::enter(self.region, child),
                    *max_requests,
                    self.faults,
                    self.random.fork(),
                    self.trace.clone(),
                    self.ledger.clone(),
                ));
                let time = self.trace.time();
                self.reports
                    .push((time, ZygoteReport::Spawned { child, pid: 0 }));
            }
            ZygoteCommand::Signal { child, signal } => {
                if let Some(child) = self.children.iter_mut().find(|c| c.id == *child) {
                    child.signal(*signal);
                }
            }
            ZygoteCommand::Trace { child } => {
                let stack = "sleep() /simulated.php:1".to_owned();
                let child = *child;
                self.report_later(ZygoteReport::Trace { child, stack }, 50);
            }
            ZygoteCommand::Scripts(_) => self.report_later(ZygoteReport::ScriptsDone, 50),
        }
    }

    fn send_due_reports(&mut self) {
        let now = self.trace.time();
        self.reports.sort_by_key(|(at, _)| *at);
        let due = self.reports.iter().take_while(|(at, _)| *at <= now).count();
        for (_, report) in self.reports.drain(..due) {
            // A supervisor that has closed its end does not read any more.
            let _ = rustix::net::send(
                &self.fds.control,
                report.encode().as_bytes(),
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            );
        }
    }

    /// Ends the zygote and all of its children at once, as the kernel does when memory is short.
    ///
    /// # Errors
    /// The supervisor cannot be told.
    pub fn die(&mut self) -> io::Result<()> {
        self.ledger.lock().zygote_died = true;
        self.exit("is killed, and its children with it")?;
        let _ = rustix::net::shutdown(&self.fds.control, rustix::net::Shutdown::Both);
        Ok(())
    }

    fn exit(&mut self, how: &str) -> io::Result<()> {
        self.trace.note(format_args!("the zygote {how}"));
        for child in &mut self.children {
            child.kill();
        }
        self.children.clear();
        ring(&self.exit_bell)
    }
}

fn ring(bell: &OwnedFd) -> io::Result<()> {
    match rustix::io::write(bell, &1u64.to_ne_bytes()) {
        // A full counter is readable as well.
        Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
