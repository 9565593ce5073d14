//! The front's process from the master's view: its start, its messages and its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::process::{self, FrontProcess};
use super::upgrade::UpgradeState;
use super::{
    FRONT_SETTLED_AFTER, MAX_FRONT_RESTART_PAUSE, MAX_MESSAGES_PER_TURN, Master, MasterState,
    print_message, reload,
};
use crate::exit;
use crate::process_channel::{ReceiveOutcome, ToFront, ToMaster, read_text};

impl Master {
    pub(super) fn handle_front_exit(&mut self, how: &str, well: bool) {
        let Some(front) = self.front.take() else {
            return;
        };
        let asked = std::mem::take(&mut self.front_requests).into_values();
        let early = std::mem::take(&mut self.early_requests).into_iter();
        let askers = asked
            .map(|(asker, _)| asker)
            .chain(early.map(|(_, asker)| asker));
        askers.for_each(|asker| asker.refuse("the front has exited"));
        self.unconfirmed_writes.requeue_sent();
        if matches!(
            self.upgrade,
            UpgradeState::HandingOver { .. } | UpgradeState::Leaving { .. }
        ) {
            self.end_upgrade(&[format!("the front exited: {how}")]);
        }
        match self.state {
            MasterState::Stopping { .. } => {
                self.exit_code = Some(if well { exit::done() } else { exit::failed() });
            }
            MasterState::Starting if self.predecessors.is_empty() => {
                if !front.refused {
                    print_message(format!(
                        "FrontDied: the front exited during its start: {how}"
                    ));
                }
                self.exit_code = Some(exit::failed());
            }
            MasterState::Starting | MasterState::Serving | MasterState::Restarting { .. } => {
                self.abandon_reload(&format!("the front exited: {how}"));
                if front.since.elapsed() >= FRONT_SETTLED_AFTER {
                    self.crashes = 0;
                }
                self.crashes += 1;
                self.plan_restart();
                print_message(format!(
                    "FrontDied: the front exited ({how}) and is restarted"
                ));
            }
        }
    }

    pub(super) fn plan_restart(&mut self) {
        let pause = match self.crashes {
            0 | 1 => Duration::ZERO,
            n => (Duration::from_millis(50) * (1 << n.min(8))).min(MAX_FRONT_RESTART_PAUSE),
        };
        let at = Instant::now() + pause;
        self.state = MasterState::Restarting { at };
    }

    pub(super) fn start_front(&mut self) -> io::Result<()> {
        let front = FrontProcess::start()?;
        let ordered = self.ordered.certificates();
        self.keys.send(&front.link, &self.settings, ordered)?;
        self.ordered.send_challenges(&front.link)?;
        self.ordered.send_failing(&front.link)?;
        self.jobs.send_status(&front.link)?;
        reload::send_configuration(
            &front.link,
            self.generation,
            &self.arguments,
            self.source.as_ref(),
            &self.settings,
            &self.listeners,
            !self.predecessors.is_empty(),
        )?;
        self.front = Some(front);
        if matches!(self.state, MasterState::Restarting { .. }) {
            self.state = match self.upgrade.is_taking_over() {
                true => MasterState::Starting,
                false => MasterState::Serving,
            };
        }
        Ok(())
    }

    pub(super) fn receive_from_front(&mut self) {
        for _ in 0..MAX_MESSAGES_PER_TURN {
            let Some(front) = self.front.as_ref().filter(|front| !front.hung_up) else {
                return;
            };
            match front.link.receive_now::<ToMaster>() {
                ReceiveOutcome::Nothing => return,
                ReceiveOutcome::Closed => {
                    // The front is exiting or misbehaves. SIGCHLD follows when it has exited.
                    if let Some(front) = &mut self.front {
                        front.hung_up = true;
                        front.kill();
                    }
                    return;
                }
                ReceiveOutcome::Message(message, fds) => self.handle_front_message(message, fds),
            }
        }
    }

    fn handle_front_message(&mut self, message: ToMaster, mut fds: Vec<OwnedFd>) {
        match message {
            ToMaster::Launch {
                id,
                generation,
                pool,
            } => {
                let pools = self.generations.get(&generation);
                let config = pools.and_then(|pools| pools.iter().find(|p| p.name() == pool));
                let launched = process::launch(config, fds);
                let Some(front) = &self.front else { return };
                let sent = match &launched {
                    Ok(zygote) => {
                        let message = ToFront::Launched {
                            id,
                            pid: zygote.pid,
                            program: zygote.program.clone(),
                        };
                        front.link.send_now(&message, &[zygote.pidfd.as_fd()])
                    }
                    Err(error) => {
                        let message = error.to_string();
                        front
                            .link
                            .send_now(&ToFront::NotLaunched { id, message }, &[])
                    }
                };
                self.kill_front_if_unsent(sent);
            }
            ToMaster::Serving { generation } => self.handle_serving(generation),
            ToMaster::Refused { generation } => {
                let text = fds.pop().map(read_text);
                let text = match text {
                    Some(Ok(text)) => text,
                    _ => "the front did not give a reason".to_owned(),
                };
                self.handle_refused(generation, &text);
            }
            ToMaster::Wanted { name, client } => self.ordered.report_uncovered_name(name, client),
            ToMaster::Answering { number } => self.ordered.report_challenges_served(number),
            ToMaster::Status { id } => {
                if let Some(origin) = self.unconfirmed_writes.take_confirmed(id) {
                    if let Some((pid, number)) = origin {
                        self.predecessors.confirm(pid, number);
                    }
                    return;
                }
                if let Some((asker, _)) = self.front_requests.remove(&id) {
                    match fds.pop().map(read_text) {
                        Some(Ok(text)) => asker.status(
                            &text,
                            self.generation,
                            self.facts.clone(),
                            self.ordered.status().clone(),
                        ),
                        _ => asker.refuse("the front's response could not be read"),
                    }
                }
            }
            ToMaster::Pulse { number, threads } => {
                let watch = self.front.as_mut().and_then(|front| front.watch.as_mut());
                if let Some(watch) = watch {
                    watch.handle_pulse(number, &threads);
                }
            }
            ToMaster::HandedOver => self.handed_over(),
            // The next program handles the purges that a front sends after it has handed over.
            ToMaster::Purged { .. } => {}
            ToMaster::Waiting { text } => {
                if self.is_stopping() {
                    print_message(text);
                }
            }
        }
    }

    /// Forwards the messages of the process that orders certificates to the front.
    pub(super) fn receive_from_certificates(&mut self) {
        let news = self.ordered.receive();
        let Some(front) = self.front.as_ref().filter(|front| !front.hung_up) else {
            // The next front receives them at its start.
            return;
        };
        let mut sent = Ok(());
        if news.challenges {
            sent = self.ordered.send_challenges(&front.link);
        }
        if news.failing {
            sent = sent.and(self.ordered.send_failing(&front.link));
        }
        for name in news.not_ordered {
            // If the front is busy, the waiting clients wait until their handshake times out.
            let _ = front.link.send_now(&ToFront::NotOrdered { name }, &[]);
        }
        if news.certificates {
            let ordered = self.ordered.certificates();
            sent = sent.and(self.keys.replace_ordered(&front.link, ordered));
        }
        self.kill_front_if_unsent(sent);
    }

    /// Forwards the messages of the process that runs jobs to the front.
    pub(super) fn receive_from_jobs(&mut self) {
        let news = self.jobs.receive(&mut self.unconfirmed_writes);
        let Some(front) = self.front.as_ref().filter(|front| !front.hung_up) else {
            // The next front receives them at its start.
            return;
        };
        let sent = match news {
            true => self.jobs.send_status(&front.link),
            false => Ok(()),
        };
        self.kill_front_if_unsent(sent);
        self.send_unconfirmed_writes();
    }

    /// Makes the front apply the writes of other processes once it serves. Before that it has no page cache.
    pub(super) fn send_unconfirmed_writes(&mut self) {
        let serving = |front: &&FrontProcess| front.watch.is_some() && !front.hung_up;
        let Some(front) = self.front.as_ref().filter(serving) else {
            return;
        };
        let next = &mut self.last_request_id;
        let sent = self.unconfirmed_writes.send(&front.link, || {
            *next += 1;
            *next
        });
        self.kill_front_if_unsent(sent);
    }

    /// Kills the front if a message could not be sent, because it is of no use then.
    pub(super) fn kill_front_if_unsent(&mut self, sent: io::Result<()>) {
        if let Err(error) = sent {
            print_message(format!(
                "FrontUnresponsive: the front does not accept messages ({error}) and is killed"
            ));
            if let Some(front) = &mut self.front {
                front.kill();
            }
        }
    }
}
