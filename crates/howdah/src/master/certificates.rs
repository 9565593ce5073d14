//! The process that orders certificates (`crate::certificates`) and its last messages. Its certificates stay in use
//! after it dies, and they outlive fronts.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use howdah_acme::{AcmeSettings, NameStatus};
use howdah_http::tls::certificates::FailingOrder;
use howdah_os::client_quota::QuotaClient;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, kill_process};

use super::control::ControlClient;
use super::print_message;
use super::restart::RestartPlan;
use crate::child;
use crate::process_channel::{
    FromCertificates, ProcessChannel, ReceiveOutcome, ToCertificates, read_text, text_file,
};
use howdah_acme::certificate_directory;

/// How long reading existing certificates may take at the start.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of messages that are received in one turn.
const MAX_MESSAGES_PER_TURN: usize = 64;

struct CertificateProcess {
    pid: i32,
    link: ProcessChannel,
    since: Instant,
    /// Whether the process has closed the channel. SIGCHLD follows when it has exited.
    hung_up: bool,
}

/// What has changed since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateChanges {
    /// Whether the certificates have changed.
    pub certificates: bool,
    /// Whether the challenges that the front must respond to have changed.
    pub challenges: bool,
    /// Whether the list of failing orders has changed.
    pub failing: bool,
    /// The names for which clients have requested certificates that will not be ordered.
    pub not_ordered: Vec<String>,
}

/// The process that orders certificates, and the results of its last messages.
#[derive(Default)]
pub struct OrderedCertificates {
    settings: Option<AcmeSettings>,
    process: Option<CertificateProcess>,
    restart: RestartPlan,
    /// Chains and keys, in PEM.
    certificates: Vec<(String, String)>,
    challenges: Option<(u64, String)>,
    status: serde_json::Value,
    failing: Vec<FailingOrder>,
    clients: BTreeMap<u64, ControlClient>,
    next_id: u64,
}

impl OrderedCertificates {
    /// Orders and renews certificates according to these settings from now on. `None` stops ordering.
    pub fn assign(&mut self, settings: Option<&AcmeSettings>) {
        if self.settings.as_ref() == settings {
            // Before a reload, systemd gives the StateDirectory of a unit without `ServiceUser` back to root.
            return self.prepare_directory();
        }
        let former = std::mem::replace(&mut self.settings, settings.cloned());
        let directory = |settings: &AcmeSettings| settings.directory.clone();
        if settings.is_none() {
            self.end("certificates are not ordered any more");
            self.certificates.clear();
            self.challenges = None;
            self.status = serde_json::Value::Null;
            self.failing.clear();
        } else if former.as_ref().map(directory) != settings.map(directory) {
            // Another user may own another directory.
            self.end("CertificatesDied: the process that orders certificates is being restarted; try again");
            self.start();
        } else if self.process.is_some() {
            self.send_settings();
        } else {
            self.start();
        }
    }

    /// Waits at the start until the certificates in the directory have been read.
    pub fn wait_for_stored_certificates(&mut self) {
        let until = Instant::now() + READ_TIMEOUT;
        while let Some(process) = self.process.as_ref().filter(|process| !process.hung_up) {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let mut fds = [PollFd::from_borrowed_fd(process.link.fd(), PollFlags::IN)];
            if !matches!(rustix::event::poll(&mut fds, Some(&timeout)), Ok(1..)) {
                return;
            }
            if self.receive().certificates {
                return;
            }
        }
    }

    fn start(&mut self) {
        self.restart.cancel();
        if self.settings.is_none() {
            return;
        }
        self.prepare_directory();
        match execute() {
            Ok(process) => {
                self.process = Some(process);
                self.send_settings();
            }
            Err(error) => {
                print_message(format!(
                    "CertificatesNotStarted: cannot start the process that orders certificates: {error}"
                ));
                self.restart.plan(None);
            }
        }
    }

    fn prepare_directory(&self) {
        let Some(settings) = &self.settings else {
            return;
        };
        // A foreseeable reason was already reported when the configuration was read.
        let is_foreseen = certificate_directory::foreseeable_failure(settings).is_some();
        if let Err(why) = certificate_directory::prepare(settings)
            && !is_foreseen
        {
            print_message(why.to_string());
        }
    }

    fn send_settings(&mut self) {
        let (Some(process), Some(settings)) = (&self.process, &self.settings) else {
            return;
        };
        let sent = serde_json::to_string(settings)
            .map_err(io::Error::from)
            .and_then(|text| text_file(&text))
            .and_then(|text| {
                process
                    .link
                    .send_now(&ToCertificates::Settings, &[text.as_fd()])
            });
        self.kill_if_unsent(sent);
    }

    /// Kills the process if a message could not be sent, because it is of no use then.
    fn kill_if_unsent(&mut self, sent: io::Result<()>) {
        if let (Err(error), Some(process)) = (sent, &self.process) {
            print_message(format!(
                "CertificatesDied: the process that orders certificates does not accept messages ({error}), so Howdah kills it"
            ));
            kill(process.pid);
        }
    }

    /// Closes the channel, on which the process releases its locks and exits.
    pub fn end(&mut self, why: &str) {
        self.process = None;
        self.restart.cancel();
        for asker in std::mem::take(&mut self.clients).into_values() {
            asker.refuse(why);
        }
    }

    /// Returns the descriptor to poll.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        let process = self.process.as_ref().filter(|process| !process.hung_up)?;
        Some(process.link.fd())
    }

    /// Returns when the process is started again.
    pub fn next_start(&self) -> Option<Instant> {
        self.restart.due_at()
    }

    /// Starts the process again when that is due.
    pub fn restart_if_due(&mut self, now: Instant) {
        if self.restart.is_due(now) {
            self.start();
        }
    }

    /// Returns whether the process that exited was this one.
    pub fn reaped(&mut self, pid: i32, how: &str) -> bool {
        let Some(process) = self.process.take_if(|process| process.pid == pid) else {
            return false;
        };
        for asker in std::mem::take(&mut self.clients).into_values() {
            asker.refuse("CertificatesDied: the process that orders certificates has exited");
        }
        if self.settings.is_some() {
            self.restart.plan(Some(process.since));
            print_message(format!(
                "CertificatesDied: the process that orders certificates exited ({how}) and is restarted; its certificates remain in use"
            ));
        }
        true
    }

    /// Receives the messages of the process.
    pub fn receive(&mut self) -> CertificateChanges {
        let mut news = CertificateChanges::default();
        for _ in 0..MAX_MESSAGES_PER_TURN {
            let Some(process) = self.process.as_mut().filter(|process| !process.hung_up) else {
                break;
            };
            match process.link.receive_now::<FromCertificates>() {
                ReceiveOutcome::Nothing => break,
                ReceiveOutcome::Closed => {
                    process.hung_up = true;
                    kill(process.pid);
                }
                ReceiveOutcome::Message(message, fds) => {
                    self.handle_message(message, fds, &mut news)
                }
            }
        }
        news
    }

    fn handle_message(
        &mut self,
        message: FromCertificates,
        fds: Vec<OwnedFd>,
        news: &mut CertificateChanges,
    ) {
        let text = fds.into_iter().next().and_then(|fd| read_text(fd).ok());
        let text = text.unwrap_or_default();
        match message {
            FromCertificates::Certificates => {
                if let Ok(all) = serde_json::from_str(&text) {
                    self.certificates = all;
                    news.certificates = true;
                }
            }
            FromCertificates::Challenges { number } => {
                self.challenges = Some((number, text));
                news.challenges = true;
            }
            FromCertificates::Status => {
                self.status = serde_json::from_str(&text).unwrap_or_default();
                let names = serde_json::from_str(&text).unwrap_or_default();
                let failing = failing_orders(names);
                news.failing |= failing != self.failing;
                self.failing = failing;
            }
            FromCertificates::NotOrdered { name } => news.not_ordered.push(name),
            FromCertificates::Done { id, ok } => {
                if let Some(asker) = self.clients.remove(&id) {
                    match ok {
                        true => asker.succeed(&text, &[]),
                        false => asker.refuse(&text),
                    }
                }
            }
        }
    }

    /// Returns the chains and keys, in PEM.
    pub fn certificates(&self) -> &[(String, String)] {
        &self.certificates
    }

    /// Returns the status of each name.
    pub fn status(&self) -> &serde_json::Value {
        &self.status
    }

    /// Makes the front respond to the current challenges, if there are any.
    pub fn send_challenges(&self, front: &ProcessChannel) -> io::Result<()> {
        let Some((number, text)) = &self.challenges else {
            return Ok(());
        };
        let text = text_file(text)?;
        let message = crate::process_channel::ToFront::Challenges { number: *number };
        front.send_now(&message, &[text.as_fd()])
    }

    /// Sends the front the orders that fail.
    pub fn send_failing(&self, front: &ProcessChannel) -> io::Result<()> {
        let text = serde_json::to_string(&self.failing).map_err(io::Error::from)?;
        let text = text_file(&text)?;
        front.send_now(
            &crate::process_channel::ToFront::FailingOrders,
            &[text.as_fd()],
        )
    }

    /// Reports to the process that the front responds to the challenges.
    pub fn report_challenges_served(&mut self, number: u64) {
        if let Some(process) = &self.process {
            let message = ToCertificates::Answering { number };
            let sent = process.link.send_now(&message, &[]);
            self.kill_if_unsent(sent);
        }
    }

    /// Reports a host name that no certificate covers. If the message is lost, the client's next request reports it
    /// again.
    pub fn report_uncovered_name(&self, name: String, client: QuotaClient) {
        if let Some(process) = &self.process {
            let message = ToCertificates::Wanted { name, client };
            let _ = process.link.send_now(&message, &[]);
        }
    }

    /// Forwards a command of an administrator.
    pub fn command(&mut self, command: howdah_acme::CertificateCommand, asker: ControlClient) {
        let Some(process) = &self.process else {
            return asker.refuse(match self.settings {
                None => "NoSuchName: Howdah orders no certificates, because every certificate comes from a file",
                Some(_) => "CertificatesDied: the process that orders certificates is being started; try again",
            });
        };
        self.next_id += 1;
        let id = self.next_id;
        let sent = process
            .link
            .send_now(&ToCertificates::Command { id, command }, &[]);
        self.clients.insert(id, asker);
        self.kill_if_unsent(sent);
    }
}

fn failing_orders(names: Vec<NameStatus>) -> Vec<FailingOrder> {
    let failing = names.into_iter().filter_map(|status| {
        let trouble = status.trouble?;
        Some(FailingOrder {
            name: status.name,
            failure: trouble.name,
            attempts: trouble.attempts,
        })
    });
    failing.collect()
}

fn execute() -> io::Result<CertificateProcess> {
    let (pid, link) = child::execute("certificates")?;
    Ok(CertificateProcess {
        pid,
        link,
        since: Instant::now(),
        hung_up: false,
    })
}

fn kill(pid: i32) {
    // The process has not been reaped yet, so its id is still its own.
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
}
