//! The front's process from the master's view: its start, its messages and its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::process::{self, FrontProcess};
use super::upgrade::Upgrade;
use super::{LONGEST_PAUSE, MESSAGES, Master, SETTLED, State, reload, say};
use crate::exit;
use crate::link::{Received, ToFront, ToMaster, read_text};

impl Master {
    pub(super) fn front_is_gone(&mut self, how: &str, well: bool) {
        let Some(front) = self.front.take() else {
            return;
        };
        let asked = std::mem::take(&mut self.questions).into_values();
        let early = std::mem::take(&mut self.early).into_iter();
        let askers = asked
            .map(|(asker, _)| asker)
            .chain(early.map(|(_, asker)| asker));
        askers.for_each(|asker| asker.refuse("the front has ended"));
        self.unnoted.front_is_gone();
        if matches!(
            self.upgrade,
            Upgrade::HandingOver { .. } | Upgrade::Leaving { .. }
        ) {
            self.end_upgrade(&[format!("the front ended: {how}")]);
        }
        match self.state {
            State::Stopping { .. } => {
                self.ended = Some(if well { exit::done() } else { exit::failed() });
            }
            State::Starting if self.predecessors.is_empty() => {
                if !front.refused {
                    say(format!(
                        "FrontDied: the front ended during its start: {how}"
                    ));
                }
                self.ended = Some(exit::failed());
            }
            State::Starting | State::Serving | State::Restarting { .. } => {
                self.abandon_reload(&format!("the front ended: {how}"));
                if front.since.elapsed() >= SETTLED {
                    self.crashes = 0;
                }
                self.crashes += 1;
                self.plan_restart();
                say(format!(
                    "FrontDied: the front ended ({how}) and is started again"
                ));
            }
        }
    }

    pub(super) fn plan_restart(&mut self) {
        let pause = match self.crashes {
            0 | 1 => Duration::ZERO,
            n => (Duration::from_millis(50) * (1 << n.min(8))).min(LONGEST_PAUSE),
        };
        let at = Instant::now() + pause;
        self.state = State::Restarting { at };
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
        if matches!(self.state, State::Restarting { .. }) {
            self.state = match self.upgrade.is_taking_over() {
                true => State::Starting,
                false => State::Serving,
            };
        }
        Ok(())
    }

    pub(super) fn hear_front(&mut self) {
        for _ in 0..MESSAGES {
            let Some(front) = self.front.as_ref().filter(|front| !front.hung_up) else {
                return;
            };
            match front.link.receive_now::<ToMaster>() {
                Received::Nothing => return,
                Received::Closed => {
                    // The front is exiting or misbehaves. SIGCHLD follows when it has exited.
                    if let Some(front) = &mut self.front {
                        front.hung_up = true;
                        front.kill();
                    }
                    return;
                }
                Received::Message(message, fds) => self.front_says(message, fds),
            }
        }
    }

    fn front_says(&mut self, message: ToMaster, mut fds: Vec<OwnedFd>) {
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
                self.front_must_hear(sent);
            }
            ToMaster::Serving { generation } => self.serving(generation),
            ToMaster::Refused { generation } => {
                let text = fds.pop().map(read_text);
                let text = match text {
                    Some(Ok(text)) => text,
                    _ => "the front gave no reason".to_owned(),
                };
                self.refused(generation, &text);
            }
            ToMaster::Wanted { name, client } => self.ordered.wanted(name, client),
            ToMaster::Answering { number } => self.ordered.answering(number),
            ToMaster::Status { id } => {
                if let Some(origin) = self.unnoted.noted(id) {
                    if let Some((pid, number)) = origin {
                        self.predecessors.noted(pid, number);
                    }
                    return;
                }
                if let Some((asker, _)) = self.questions.remove(&id) {
                    match fds.pop().map(read_text) {
                        Some(Ok(text)) => asker.status(
                            &text,
                            self.generation,
                            self.facts.clone(),
                            self.ordered.status().clone(),
                        ),
                        _ => asker.refuse("the front's answer could not be read"),
                    }
                }
            }
            ToMaster::Pulse { number, threads } => {
                let watch = self.front.as_mut().and_then(|front| front.watch.as_mut());
                if let Some(watch) = watch {
                    watch.heard(number, &threads);
                }
            }
            ToMaster::HandedOver => self.handed_over(),
            // The next program handles the purges that a front sends after it has handed over.
            ToMaster::Purged { .. } => {}
            ToMaster::Waiting { text } => {
                if self.is_stopping() {
                    say(text);
                }
            }
        }
    }

    /// Forwards the messages of the process that orders certificates to the front.
    pub(super) fn hear_of_certificates(&mut self) {
        let news = self.ordered.hear();
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
        self.front_must_hear(sent);
    }

    /// Forwards the messages of the process that runs jobs to the front.
    pub(super) fn hear_of_jobs(&mut self) {
        let news = self.jobs.hear(&mut self.unnoted);
        let Some(front) = self.front.as_ref().filter(|front| !front.hung_up) else {
            // The next front receives them at its start.
            return;
        };
        let sent = match news {
            true => self.jobs.send_status(&front.link),
            false => Ok(()),
        };
        self.front_must_hear(sent);
        self.send_unnoted();
    }

    /// Makes the front apply the writes of other processes once it serves. Before that it has no page cache.
    pub(super) fn send_unnoted(&mut self) {
        let serving = |front: &&FrontProcess| front.watch.is_some() && !front.hung_up;
        let Some(front) = self.front.as_ref().filter(serving) else {
            return;
        };
        let next = &mut self.next_question;
        let sent = self.unnoted.send(&front.link, || {
            *next += 1;
            *next
        });
        self.front_must_hear(sent);
    }

    /// Kills the front if a message could not be sent, because it is of no use then.
    pub(super) fn front_must_hear(&mut self, sent: io::Result<()>) {
        if let Err(error) = sent {
            say(format!(
                "FrontUnresponsive: the front takes no messages ({error}); it is killed"
            ));
            if let Some(front) = &mut self.front {
                front.kill();
            }
        }
    }
}
