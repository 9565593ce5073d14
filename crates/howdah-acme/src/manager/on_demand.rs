//! Certificates for names that nobody configured: ordered when a client asks for one, if the platform's
//! own `ask` URL says yes. Anybody can ask for any name, so questions and orders are bounded.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::Shared;
use crate::failure::Failure;
use crate::names;

/// How long a no holds.
const DENIED: Duration = Duration::from_secs(60);
/// Names remembered with a no, and questions at once.
const REMEMBERED: usize = 10_000;
const QUESTIONS: usize = 8;
/// New names a minute.
const NEW: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Default)]
pub(super) struct OnDemand {
    denied: RefCell<HashMap<String, Instant>>,
    asking: RefCell<HashSet<String>>,
    begun: RefCell<VecDeque<Instant>>,
}

/// A name gets no certificate now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Denied;

impl OnDemand {
    /// Whether the platform is to be asked about a name that a client wants; an error: it is no.
    fn begin(&self, name: &str, now: Instant) -> Result<bool, Denied> {
        let mut denied = self.denied.borrow_mut();
        if denied.len() >= REMEMBERED {
            denied.retain(|_, at| now.duration_since(*at) < DENIED);
        }
        let recent = |at: &Instant| now.duration_since(*at) < DENIED;
        if denied.get(name).is_some_and(recent) || denied.len() >= REMEMBERED {
            return Err(Denied);
        }
        let mut asking = self.asking.borrow_mut();
        if asking.contains(name) {
            return Ok(false);
        }
        match asking.len() < QUESTIONS {
            true => Ok(asking.insert(name.to_owned())),
            false => Err(Denied),
        }
    }

    /// Takes the answer; whether the name is taken on.
    fn end(&self, name: &str, allowed: bool, now: Instant) -> bool {
        self.asking.borrow_mut().remove(name);
        if !allowed {
            self.denied.borrow_mut().insert(name.to_owned(), now);
            return false;
        }
        let mut begun = self.begun.borrow_mut();
        while begun
            .front()
            .is_some_and(|at| now.duration_since(*at) >= MINUTE)
        {
            begun.pop_front();
        }
        let fits = begun.len() < NEW;
        if fits {
            begun.push_back(now);
        }
        fits
    }
}

/// A client wants a name: it is sent to `allowed` if the platform says yes.
pub(super) fn wanted(shared: &Rc<Shared>, name: String, allowed: &mpsc::UnboundedSender<String>) {
    let fits = names::check(&name).is_ok() && !names::is_local(&name) && !name.starts_with('*');
    let begun = match fits {
        true => shared.on_demand.begin(&name, Instant::now()),
        false => Err(Denied),
    };
    match begun {
        Ok(true) => {}
        Ok(false) => return,
        Err(Denied) => return shared.tell_not_ordered(name),
    }
    let (shared, allowed) = (shared.clone(), allowed.clone());
    tokio::task::spawn_local(async move {
        let answer = permit(&shared, &name).await;
        if shared.on_demand.end(&name, answer.is_ok(), Instant::now()) {
            let _ = allowed.send(name);
            return;
        }
        if let Err(failure) = answer {
            shared.log(format!("{}: {name}: {failure}", failure.name()));
        }
        shared.tell_not_ordered(name);
    });
}

/// Asks the platform whether a name that nobody configured may have a certificate.
///
/// # Errors
/// [`Failure::OnDemandDenied`]
pub(super) async fn permit(shared: &Shared, name: &str) -> Result<(), Failure> {
    let settings = shared.settings();
    if settings.names.iter().any(|own| own == name) {
        return Ok(());
    }
    let denied = |why: String| Failure::OnDemandDenied { why };
    let Some(url) = &settings.ask else {
        return Err(denied("nothing is ordered on demand any more".to_owned()));
    };
    let separator = if url.contains('?') { '&' } else { '?' };
    let question = format!("{url}{separator}domain={name}");
    match shared.client.status(&question).await {
        Ok(200..=299) => Ok(()),
        Ok(status) => Err(denied(format!("{question} answers {status}"))),
        Err(why) => Err(denied(format!("{question}: {why}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_new_names_are_bounded() {
        let demand = OnDemand::default();
        let start = Instant::now();
        let name = |n: usize| format!("{n}.example.org");
        for n in 0..QUESTIONS {
            assert_eq!(demand.begin(&name(n), start), Ok(true));
            let again = demand.begin(&name(n), start);
            assert_eq!(again, Ok(false), "it is being asked");
        }
        assert_eq!(demand.begin("more.example.org", start), Err(Denied));
        for n in 0..QUESTIONS {
            assert!(!demand.end(&name(n), false, start));
        }
        let again = demand.begin(&name(0), start);
        assert_eq!(again, Err(Denied), "it was denied just now");
        assert_eq!(demand.begin(&name(0), start + DENIED), Ok(true));
        for n in 0..NEW {
            assert!(demand.end(&name(n), true, start));
        }
        assert!(!demand.end("eleventh.example.org", true, start));
        assert!(demand.end("later.example.org", true, start + MINUTE));
    }
}
