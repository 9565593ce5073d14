//! Commands of an administrator.

use std::rc::Rc;
use std::time::SystemTime;

use tokio::sync::mpsc;

use super::name::NameTaskMessage;
use super::{CertificateCommand, ManagerEvent, ManagerState, NameTasks};
use crate::failure::AcmeFailure;
use crate::names;
use crate::order::OrderContext;
use crate::store::StoredState;

/// Starts a command. An event reports its outcome.
pub(super) fn run(
    shared: &Rc<ManagerState>,
    tasks: &NameTasks,
    id: u64,
    command: CertificateCommand,
) {
    match command {
        CertificateCommand::Order { name } => order(shared, tasks, id, name),
        CertificateCommand::Remove { name } => {
            let nudges = tasks.get(&name).map(|(_, nudges)| nudges.clone());
            tokio::task::spawn_local(remove(shared.clone(), id, name, nudges));
        }
    }
}

fn order(shared: &Rc<ManagerState>, tasks: &NameTasks, id: u64, name: Option<String>) {
    let chosen: Vec<_> = match &name {
        Some(name) => tasks.get(name).into_iter().collect(),
        None => tasks.values().collect(),
    };
    if chosen.is_empty() {
        let why = match name {
            Some(name) => {
                format!("NoSuchName: Howdah orders no certificate for {name}: no site has this host, or the site's certificate comes from a file")
            }
            None => "NoSuchName: Howdah orders no certificates, because every certificate comes from a file".to_owned(),
        };
        let outcome = Err(why);
        let _ = shared.events.send(ManagerEvent::Done { id, outcome });
        return;
    }
    let (reply, outcomes) = mpsc::unbounded_channel();
    for (_, nudges) in chosen {
        let _ = nudges.send(NameTaskMessage::Order(reply.clone()));
    }
    tokio::task::spawn_local(report_outcomes(shared.clone(), id, outcomes));
}

/// Collects the outcomes of several orders.
async fn report_outcomes(
    shared: Rc<ManagerState>,
    id: u64,
    mut outcomes: mpsc::UnboundedReceiver<Result<String, String>>,
) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    while let Some(outcome) = outcomes.recv().await {
        match outcome {
            Ok(line) => good.push(line),
            Err(line) => bad.push(line),
        }
    }
    let outcome = match bad.is_empty() {
        true => Ok(good.join("\n")),
        false => Err([bad, good].concat().join("\n")),
    };
    let _ = shared.events.send(ManagerEvent::Done { id, outcome });
}

async fn remove(
    shared: Rc<ManagerState>,
    id: u64,
    name: String,
    nudges: Option<mpsc::UnboundedSender<NameTaskMessage>>,
) {
    let outcome = revoke_and_remove(&shared, &name).await;
    if let (Some(nudges), true) = (&nudges, outcome.is_ok()) {
        let _ = nudges.send(NameTaskMessage::Removed);
    }
    let outcome = outcome.map(|what| match nudges {
        Some(_) => format!("{what}; a site uses the name, so a new certificate is ordered"),
        None => what,
    });
    let _ = shared.events.send(ManagerEvent::Done { id, outcome });
}

async fn revoke_and_remove(shared: &ManagerState, name: &str) -> Result<String, String> {
    names::check_name(name)?;
    let (settings, store) = (shared.settings(), shared.store());
    let named = |failure: AcmeFailure| format!("{}: {name}: {failure}", failure.name());
    let stored = match store.load(name) {
        StoredState::Good(stored) => Some(stored),
        StoredState::Broken(_) => None,
        StoredState::None => return Err(format!("NoSuchName: there is no certificate for {name}")),
    };
    let record = store.record(name);
    let mut what = format!("removed the certificate of {name}");
    if let (Some(stored), Some(authority)) = (stored, shared.authority(record.authority.as_deref()))
    {
        let orders = OrderContext {
            settings: &settings,
            store: &store,
            board: &shared.board,
            client: &shared.client,
        };
        let until = stored.validity.not_after;
        if until > SystemTime::now() {
            orders.revoke(&authority, &stored).await.map_err(named)?;
            what = format!(
                "the certificate of {name} was revoked by {} and removed",
                authority.name
            );
        }
    }
    store.remove(name).map_err(named)?;
    Ok(what)
}
