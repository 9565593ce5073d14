//! `howdah certificates`: the process that orders and renews certificates (`howdah_acme`). The master, which does not
//! handle HTTP, starts it, and starts it again when it dies. In the meantime its certificates stay in use.
//!
//! It runs as the owner of its directory (`howdah_acme::certificate_directory`). If that has to be root, the process
//! keeps none of root's capabilities, and can read and write only files that root itself owns.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use howdah_acme::{AcmeSettings, ManagerEvent, ManagerInput, manager};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use tokio::sync::mpsc;

use crate::master::print_message;
use crate::process_channel::{
    FromCertificates, ProcessChannel, ReceiveOutcome, ToCertificates, read_text, text_file,
};
use crate::{child, exit, sys};

/// How often the process checks whether its directory has been given to another user. If so, it exits and is started
/// again as that user.
const OWNER_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Runs `howdah certificates`.
pub fn run(link: i32) -> ExitCode {
    match serve(link) {
        Ok(()) => exit::done(),
        Err(why) => {
            print_message(format!("certificates: {why}"));
            exit::failed()
        }
    }
}

fn serve(link: i32) -> Result<(), String> {
    let (link, _blocked) = child::prepare(link)?;
    let first = match link.receive::<ToCertificates>() {
        ReceiveOutcome::Message(ToCertificates::Settings, fds) => settings(fds)?,
        _ => return Ok(()),
    };
    // Only a child of root can have become the owner.
    let becomes_owner = sys::is_root();
    give_up_privileges(&first)?;
    let directory = first.directory.clone();
    let (inputs, inbox) = mpsc::unbounded_channel();
    let (outbox, mut events) = mpsc::unbounded_channel();
    let _ = inputs.send(ManagerInput::Settings(first));
    let (reading, answering) = (link.clone(), inputs);
    std::thread::spawn(move || forward_messages(&reading, &answering));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let telling = async {
            while let Some(event) = events.recv().await {
                if let Err(error) = send_event(&link, event) {
                    return Err(format!("cannot reach the master: {error}"));
                }
            }
            Ok(())
        };
        let losing_the_directory = async {
            while !becomes_owner || is_own(&directory) {
                tokio::time::sleep(OWNER_CHECK_INTERVAL).await;
            }
            let directory = directory.display();
            Err(format!(
                "{directory} does not belong to the same user as before"
            ))
        };
        tokio::select! {
            ended = manager::run(inbox, outbox) => ended,
            ended = telling => ended,
            ended = losing_the_directory => ended,
        }
    })
}

/// Returns whether the directory belongs to our user; true if that cannot be determined.
fn is_own(directory: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    std::fs::metadata(directory).map_or(true, |meta| meta.uid() == own)
}

fn settings(fds: Vec<OwnedFd>) -> Result<AcmeSettings, String> {
    let fd = fds.into_iter().next().ok_or("descriptors are missing")?;
    let text = read_text(fd).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// Forwards the messages of the master until the master exits.
fn forward_messages(link: &ProcessChannel, inputs: &mpsc::UnboundedSender<ManagerInput>) {
    loop {
        let input = match link.receive::<ToCertificates>() {
            ReceiveOutcome::Message(ToCertificates::Settings, fds) => match settings(fds) {
                Ok(settings) => ManagerInput::Settings(settings),
                Err(_) => continue,
            },
            ReceiveOutcome::Message(ToCertificates::Answering { number }, _) => {
                ManagerInput::ChallengesServed(number)
            }
            ReceiveOutcome::Message(ToCertificates::Wanted { name, client }, _) => {
                ManagerInput::NameRequested { name, client }
            }
            ReceiveOutcome::Message(ToCertificates::Command { id, command }, _) => {
                ManagerInput::Command { id, command }
            }
            ReceiveOutcome::Nothing => continue,
            ReceiveOutcome::Closed => return,
        };
        if inputs.send(input).is_err() {
            return;
        }
    }
}

fn send_event(link: &ProcessChannel, event: ManagerEvent) -> std::io::Result<()> {
    let send = |message: &FromCertificates, text: &str| {
        let file = text_file(text)?;
        link.send(message, &[file.as_fd()])
    };
    match event {
        ManagerEvent::Log(line) => print_message(line),
        ManagerEvent::Certificates(all) => {
            send(
                &FromCertificates::Certificates,
                &serde_json::to_string(&all)?,
            )?;
        }
        ManagerEvent::Challenges { number, challenges } => {
            let text = serde_json::to_string(&challenges)?;
            send(&FromCertificates::Challenges { number }, &text)?;
        }
        ManagerEvent::NotOrdered(name) => link.send(&FromCertificates::NotOrdered { name }, &[])?,
        ManagerEvent::Status(all) => {
            send(&FromCertificates::Status, &serde_json::to_string(&all)?)?;
        }
        ManagerEvent::Done { id, outcome } => {
            let ok = outcome.is_ok();
            let text = outcome.unwrap_or_else(|why| why);
            send(&FromCertificates::Done { id, ok }, &text)?;
        }
    }
    Ok(())
}

fn give_up_privileges(settings: &AcmeSettings) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot drop privileges: {error}");
    if sys::is_root() {
        let owner = std::fs::metadata(&settings.directory).map_or(0, |meta| meta.uid());
        match sys::find_user(&owner.to_string()).filter(|_| owner != 0) {
            Some(account) => sys::become_user(&account, account.gid).map_err(failed)?,
            None => {
                let none = CapabilitySets {
                    effective: CapabilitySet::empty(),
                    permitted: CapabilitySet::empty(),
                    inheritable: CapabilitySet::empty(),
                };
                set_capabilities(None, none).map_err(|error| failed(error.into()))?;
            }
        }
    }
    sys::drop_capabilities().map_err(failed)?;
    sys::forbid_new_privileges().map_err(failed)
}
