//! Commands of an administrator.

use std::rc::Rc;
use std::time::SystemTime;

use tokio::sync::mpsc;

use super::name::Nudge;
use super::{Command, Event, Shared, Tasks};
use crate::failure::Failure;
use crate::names;
use crate::order::Orders;
use crate::store::Look;

/// Starts a command. An event reports its outcome.
pub(super) fn run(shared: &Rc<Shared>, tasks: &Tasks, id: u64, command: Command) {
    match command {
        Command::Order { name } => order(shared, tasks, id, name),
        Command::Remove { name } => {
            let nudges = tasks.get(&name).map(|(_, nudges)| nudges.clone());
            tokio::task::spawn_local(remove(shared.clone(), id, name, nudges));
        }
    }
}

fn order(shared: &Rc<Shared>, tasks: &Tasks, id: u64, name: Option<String>) {
    let chosen: Vec<_> = match &name {
        Some(name) => tasks.get(name).into_iter().collect(),
        None => tasks.values().collect(),
    };
    if chosen.is_empty() {
        let why = match name {
            Some(name) => {
                format!("NoSuchName: no site without a certificate file has the host {name}")
            }
            None => "NoSuchName: every certificate comes from a file".to_owned(),
        };
        let outcome = Err(why);
        let _ = shared.events.send(Event::Done { id, outcome });
        return;
    }
    let (reply, outcomes) = mpsc::unbounded_channel();
    for (_, nudges) in chosen {
        let _ = nudges.send(Nudge::Order(reply.clone()));
    }
    tokio::task::spawn_local(answer(shared.clone(), id, outcomes));
}

/// Collects the outcomes of several orders.
async fn answer(
    shared: Rc<Shared>,
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
    let _ = shared.events.send(Event::Done { id, outcome });
}

async fn remove(
    shared: Rc<Shared>,
    id: u64,
    name: String,
    nudges: Option<mpsc::UnboundedSender<Nudge>>,
) {
    let outcome = revoke_and_remove(&shared, &name).await;
    if let (Some(nudges), true) = (&nudges, outcome.is_ok()) {
        let _ = nudges.send(Nudge::Removed);
    }
    let outcome = outcome.map(|what| match nudges {
        Some(_) => format!("{what}; a site has the name, so a new certificate is ordered"),
        None => what,
    });
    let _ = shared.events.send(Event::Done { id, outcome });
}

async fn revoke_and_remove(shared: &Shared, name: &str) -> Result<String, String> {
    names::check(name)?;
    let (settings, store) = (shared.settings(), shared.store());
    let named = |failure: Failure| format!("{}: {name}: {failure}", failure.name());
    let stored = match store.look(name) {
        Look::Good(stored) => Some(stored),
        Look::Broken(_) => None,
        Look::None => return Err(format!("NoSuchName: there is no certificate for {name}")),
    };
    let record = store.record(name);
    let mut what = format!("removed the certificate of {name}");
    if let (Some(stored), Some(authority)) = (stored, shared.authority(record.authority.as_deref()))
    {
        let orders = Orders {
            settings: &settings,
            store: &store,
            board: &shared.board,
            client: &shared.client,
        };
        let until = stored.validity.not_after;
        if until > SystemTime::now() {
            orders.revoke(&authority, &stored).await.map_err(named)?;
            what = format!(
                "{} revoked the certificate of {name}, which is removed",
                authority.name
            );
        }
    }
    store.remove(name).map_err(named)?;
    Ok(what)
}
