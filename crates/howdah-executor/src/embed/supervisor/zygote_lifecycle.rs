//! Starts the zygote, handles its reports, and restarts it when it has exited.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use howdah_os::clock;
use howdah_proto::control::{StartedPhp, ZygoteReport};
use howdah_proto::level::LogLevel;
use howdah_proto::shm::{ChildId, VERSION};

use super::super::children::PoolChild;
use super::super::zygote::ProtocolError;
use super::{
    ChildState, EXIT_TIMEOUT, ExecError, Ordering, PoolCondition, STEADY_AFTER, Supervisor,
    ZygoteClient, ZygoteMessage, ZygoteState, sys,
};

/// The maximum number of reports that are read in a row, so a zygote that sends without end does not hold up anything
/// else.
pub(super) const MAX_REPORTS_PER_TURN: usize = 256;

impl Supervisor {
    /// Makes the current zygote exit, if there is one.
    pub(super) fn stop_zygote(&mut self, now: Instant) {
        // The zygote's reports are not read any more.
        self.scripts = None;
        let was = std::mem::replace(&mut self.zygote, ZygoteState::Gone);
        self.zygote = match was {
            ZygoteState::Starting { link, .. } | ZygoteState::Ready { link } => {
                ZygoteState::Leaving {
                    link: link.close(),
                    kill_at: now + EXIT_TIMEOUT,
                }
            }
            other => other,
        };
    }

    pub(super) fn manage_zygote(&mut self, now: Instant) -> Duration {
        match &self.zygote {
            ZygoteState::Asleep | ZygoteState::None { .. } if self.is_drained(now) => {
                self.zygote = ZygoteState::Gone
            }
            ZygoteState::Asleep if self.shared.pool.outstanding.load(Ordering::SeqCst) > 0 => {
                self.shared.asleep.store(false, Ordering::Release);
                self.set_condition(PoolCondition::Starting);
                self.start_zygote(now);
            }
            ZygoteState::Asleep => {}
            ZygoteState::None { start_at } if *start_at > now => return *start_at - now,
            ZygoteState::None { .. } => {
                if !self.prepare_memory() {
                    return Duration::from_millis(5);
                }
                self.start_zygote(now);
            }
            ZygoteState::Starting { link, deadline } if *deadline <= now => {
                link.kill();
                self.start_failed(
                    now,
                    "StartTimeout",
                    &format!(
                        "the zygote did not become ready within {:?}; is a preload script stuck?",
                        self.shared.pool.config.timeouts.start
                    ),
                );
            }
            ZygoteState::Starting { deadline, .. } => return *deadline - now,
            ZygoteState::Leaving { link, kill_at } => {
                if link.has_exited() {
                    self.zygote = match self.drain_until {
                        Some(_) => ZygoteState::Gone,
                        None => ZygoteState::None { start_at: now },
                    };
                    return Duration::ZERO;
                } else if *kill_at <= now {
                    link.kill();
                    return Duration::from_millis(20);
                } else {
                    return *kill_at - now;
                }
            }
            ZygoteState::Ready { .. } | ZygoteState::Gone => {}
        }
        Duration::from_secs(3600)
    }

    /// Returns whether the pool is draining and needs no more processes.
    pub(super) fn is_drained(&self, now: Instant) -> bool {
        self.drain_until.is_some_and(|until| {
            until <= now || self.shared.pool.outstanding.load(Ordering::SeqCst) == 0
        })
    }

    pub(super) fn start_zygote(&mut self, now: Instant) {
        self.generation += 1;
        self.note_php_files();
        match ZygoteClient::start(&self.shared, self.launcher.as_ref()) {
            Ok((link, output)) => {
                self.note_php_program(link.program());
                self.outputs.push(output);
                self.last_output_line.clear();
                self.zygote = ZygoteState::Starting {
                    link,
                    deadline: now + self.shared.pool.config.timeouts.start,
                };
            }
            Err(error) => self.start_failed(now, "CannotStart", &error.to_string()),
        }
    }

    pub(super) fn start_failed(&mut self, now: Instant, name: &str, message: &str) {
        let pause = self.start_backoff.record_failure();
        self.zygote = ZygoteState::None {
            start_at: now + pause,
        };
        self.log_complaint(name, message);
        self.mark_down(name, message);
    }

    /// Logs why the pool cannot serve, once until the reason changes.
    pub(super) fn log_complaint(&mut self, name: &str, message: &str) {
        let complaint = format!("{name}: {message}");
        if complaint != self.last_complaint {
            self.log_event(
                LogLevel::Error,
                name,
                &format!("{message} (retrying until it succeeds)"),
            );
            self.last_complaint = complaint;
        }
    }

    /// Refuses requests until a later attempt succeeds.
    pub(super) fn mark_down(&mut self, name: &str, message: &str) {
        let error = ExecError::PoolDown {
            name: name.to_owned(),
            message: message.to_owned(),
        };
        self.set_condition(PoolCondition::Down {
            name: name.to_owned(),
            message: message.to_owned(),
        });
        self.shared.down.store(true, Ordering::Release);
        self.refuse_all(&error);
    }

    pub(super) fn set_condition(&self, condition: PoolCondition) {
        if self.drain_until.is_none() {
            self.shared.condition.send_replace(condition);
        }
    }

    pub(super) fn refuse_all(&self, error: &ExecError) {
        for lane in &self.shared.lanes {
            lane.refuse_unclaimed(&self.shared.pool, error, |_| true);
        }
    }

    pub(super) fn on_zygote_exit(&mut self, now: Instant) {
        let was = std::mem::replace(&mut self.zygote, ZygoteState::None { start_at: now });
        let (link, started) = match was {
            ZygoteState::Starting { link, .. } => (link, false),
            ZygoteState::Ready { link } => (link, true),
            other => {
                self.zygote = other;
                return;
            }
        };
        // The zygote has closed its socket, so the process is of no use even if it is still alive.
        if !link.has_exited() {
            link.kill();
            link.has_exited();
        }
        let pid = link.pid();
        self.scripts = None;
        if !started {
            self.read_outputs();
            let (name, message) = self.exited_during_start();
            self.start_failed(now, name, &message);
            return;
        }
        if self.has_served() || now.duration_since(self.ready_at) >= STEADY_AFTER {
            self.start_backoff.record_success();
        }
        // The restart is immediate if the zygote has worked, and delayed more and more if zygotes exit repeatedly
        // without having worked.
        let pause = self.start_backoff.record_failure() - Duration::from_millis(100);
        let when = match pause.is_zero() {
            true => String::new(),
            false => format!(" in {:.1} s", pause.as_secs_f64()),
        };
        let message = format!(
            "the zygote (pid {pid}) exited; its children finish their requests, and a new zygote starts{when}"
        );
        self.log_event(LogLevel::Error, "ZygoteDied", &message);
        self.zygote = ZygoteState::None {
            start_at: now + pause,
        };
        self.set_condition(PoolCondition::Starting);
        self.retire_children(now);
    }

    /// Retires the children of the current zygote, which is dead. They finish their current requests.
    fn retire_children(&mut self, now: Instant) {
        let generation = self.generation;
        let mut unborn = Vec::new();
        let mut unbooted = Vec::new();
        for child in self
            .children
            .iter_mut()
            .filter(|c| c.generation == generation)
        {
            match child.state {
                ChildState::Starting => unborn.push(child.id),
                ChildState::Serving { .. } => {
                    child.set_state(ChildState::Retiring, now);
                    sys::wake(self.shared.pool.port.retire(child.id.index));
                }
                // Without its zygote, no process would forward the outcome of its boot.
                ChildState::Booting => unbooted.push(child.id),
                ChildState::Retiring | ChildState::Terminating { .. } => {}
            }
        }
        for id in unborn {
            self.children.remove(id);
            self.shared.pool.port.remove_child(id.index);
        }
        for id in unbooted {
            self.terminate(id, "ZygoteDied", now);
        }
    }

    /// Returns whether a child of the current zygote has got as far as accepting requests, which means that the zygote
    /// did not die of its start.
    fn has_served(&self) -> bool {
        let mut own = self
            .children
            .iter()
            .filter(|c| c.generation == self.generation);
        self.served
            || own.any(|c| {
                let row = self.shared.pool.port.child_status(c.id.index);
                row.live || row.busy_since.is_some() || row.requests > 0
            })
    }

    /// Returns the name and the message for a zygote that exited during its start. PHP exits where it cannot start, and
    /// its last output, if any, explains the reason best. A zygote that crashes names the signal itself
    /// (`shim/core/crashes.c`). (The message contains no process id, so the same complaint is logged once.)
    pub(super) fn exited_during_start(&self) -> (&'static str, String) {
        let words = self.last_output_line.as_str();
        if let Some(crash) = words.strip_prefix("howdah-php: PhpCrashed: ") {
            return ("PhpCrashed", crash.to_owned());
        }
        let message = match words {
            "" => "the zygote exited during its start, without a message: PHP or an extension ended the process, or \
                   it was killed, as the kernel does when memory is short (`journalctl -k`)"
                .to_owned(),
            words => format!("the zygote exited during its start; its last output: {words}"),
        };
        ("ZygoteDied", message)
    }

    pub(super) fn read_outputs(&mut self) {
        let shared = &self.shared;
        let starts =
            matches!(self.zygote, ZygoteState::Starting { .. }) || self.workers.is_starting_next();
        let (newest, last_words) = (
            self.outputs.len().wrapping_sub(1),
            &mut self.last_output_line,
        );
        let mut at = 0;
        self.outputs.retain_mut(|output| {
            let is_newest = at == newest;
            at += 1;
            output.take(|line| {
                if is_newest && !line.trim().is_empty() {
                    line.trim().clone_into(last_words);
                }
                let unknown = line.strip_prefix("howdah-php: SettingUnknown: ");
                let (level, name, text) = match unknown {
                    // No script has run yet.
                    Some(text) if is_newest && starts => {
                        (LogLevel::Warning, "SettingUnknown", text)
                    }
                    _ => (LogLevel::Notice, "ProcessOutput", line),
                };
                shared
                    .pool
                    .log
                    .pool(&shared.pool.config.name, level, name, text);
            })
        });
    }

    pub(super) fn read_reports(&mut self) {
        for _ in 0..MAX_REPORTS_PER_TURN {
            let received = match &self.zygote {
                ZygoteState::Starting { link, .. } | ZygoteState::Ready { link } => link.receive(),
                _ => return,
            };
            let now = clock::now();
            let heard = match received {
                ZygoteMessage::Report(report, fd) => {
                    self.on_report(report, fd, self.generation, now)
                }
                ZygoteMessage::ProtocolError(bytes) => Err(ProtocolError::unreadable(&bytes)),
                ZygoteMessage::Nothing => return,
                ZygoteMessage::Closed => return self.on_zygote_exit(now),
            };
            if let Err(error) = heard {
                return self.end_for_protocol_error(&error);
            }
        }
    }

    /// Kills a zygote that has sent a report which cannot be true. A zygote runs code of its pool's user (preloading)
    /// and belongs to that user, so nothing else from it is believed either. After that it is handled like any dead
    /// zygote.
    fn end_for_protocol_error(&mut self, error: &ProtocolError) {
        let (ZygoteState::Starting { link, .. } | ZygoteState::Ready { link }) = &self.zygote
        else {
            return;
        };
        link.kill();
        let message = format!("{error}; the zygote (pid {}) is killed", link.pid());
        self.log_event(LogLevel::Error, "ZygoteProtocolError", &message);
        self.on_zygote_exit(clock::now());
    }

    /// Handles a report of the zygote of this generation. The report is untrusted: it can only concern children of that
    /// zygote, in the state in which such a report is expected.
    pub(super) fn on_report(
        &mut self,
        report: ZygoteReport,
        fd: Option<OwnedFd>,
        generation: u64,
        now: Instant,
    ) -> Result<(), ProtocolError> {
        match report {
            ZygoteReport::Ready { version, php } => {
                self.check_is_starting("ready", generation)?;
                self.on_ready(version, php, now);
            }
            ZygoteReport::Failed { name, message } => {
                self.check_is_starting("failed", generation)?;
                self.read_outputs();
                self.start_failed(now, &name, &message);
            }
            ZygoteReport::Spawned { child, pid } => {
                return self.on_spawned(child, pid, fd, generation, now);
            }
            ZygoteReport::SpawnFailed { child, message } => {
                if !self.is_starting(child, generation) {
                    return Err(ProtocolError::of(
                        "spawn-failed",
                        "no such child was requested",
                    ));
                }
                self.children.remove(child);
                self.shared.pool.port.remove_child(child.index);
                self.next_fork_at = now + self.fork_backoff.record_failure();
                self.log_event(
                    LogLevel::Error,
                    "SpawnFailed",
                    &format!("cannot fork a child: {message}"),
                );
            }
            ZygoteReport::Exited { child, exit } => {
                if self
                    .children
                    .get(child)
                    .is_some_and(|c| c.generation == generation)
                {
                    self.on_exited(child, exit, now);
                }
            }
            ZygoteReport::Worker(word) => {
                let its = |c: &mut PoolChild| c.generation == generation;
                if self.children.get(word.child()).is_some_and(its) {
                    self.on_worker_message(word, now);
                }
            }
            ZygoteReport::Trace { child, stack } => self.on_trace(child, &stack),
            ZygoteReport::ScriptsDone => return self.on_scripts_done(generation),
        }
        Ok(())
    }

    fn check_is_starting(&self, report: &str, generation: u64) -> Result<(), ProtocolError> {
        match self.zygote {
            ZygoteState::Starting { .. } if generation == self.generation => Ok(()),
            _ => Err(ProtocolError::of(report, "the zygote was already ready")),
        }
    }

    /// Returns whether the zygote of this generation has been asked to fork that child, and has not replied.
    pub(super) fn is_starting(&mut self, child: ChildId, generation: u64) -> bool {
        self.children
            .get(child)
            .is_some_and(|c| c.generation == generation && matches!(c.state, ChildState::Starting))
    }

    pub(super) fn on_ready(&mut self, version: u32, php: StartedPhp, now: Instant) {
        let was = std::mem::replace(&mut self.zygote, ZygoteState::Gone);
        let link = match was {
            ZygoteState::Starting { link, .. } => link,
            other => {
                self.zygote = other;
                return;
            }
        };
        if version != VERSION {
            link.kill();
            link.has_exited();
            let program = &self.shared.pool.config.program;
            let message = format!(
                "{program} uses version {version} of the shared memory, but this server uses {VERSION}; install both from the same build"
            );
            self.start_failed(now, "OtherVersion", &message);
            return;
        }
        if self.shared.pool.config.opcache && !php.opcache {
            self.log_event(
                LogLevel::Warning,
                "OpcacheOff",
                "opcache is not loaded or not enabled, so every request compiles its PHP files",
            );
        }
        self.zygote = ZygoteState::Ready { link };
        self.served = false;
        self.ready_at = now;
        self.first_plan = true;
        self.report_lost_extensions(&php);
        self.record_started_php(php, now);
        if self.shared.pool.config.worker.is_none() {
            self.mark_up();
        }
    }

    /// Records that the pool can serve requests.
    pub(super) fn mark_up(&mut self) {
        self.last_complaint.clear();
        self.shared.down.store(false, Ordering::Release);
        self.set_condition(PoolCondition::Ready);
    }
}
