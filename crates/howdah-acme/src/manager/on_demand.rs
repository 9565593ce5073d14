//! Certificates for names that are not configured: ordered when a client asks for one, if the platform's `ask` URL
//! allows it. Any client can ask for any name, so the number of requests to that URL and of orders is limited, and no
//! client can use up a limit alone ([`howdah_os::shares`]).

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use howdah_os::shares::{Client, Shares};
use tokio::sync::mpsc;

use super::Shared;
use crate::failure::Failure;
use crate::names;

/// How long a denial is remembered.
const DENIED: Duration = Duration::from_secs(60);
/// The maximum number of denied names that are remembered, and of simultaneous requests to the `ask` URL. A client may
/// use up to half of each.
const REMEMBERED: usize = 10_000;
const QUESTIONS: usize = 16;
/// The maximum number of new names per minute. A client may use up to half of them; public authorities do not issue
/// more.
const NEW: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// The limits for names on demand; see the module.
pub(super) struct OnDemand {
    denied: RefCell<Shares<Instant>>,
    asking: RefCell<Shares<()>>,
    begun: RefCell<Shares<Instant>>,
}

impl Default for OnDemand {
    fn default() -> OnDemand {
        OnDemand {
            denied: RefCell::new(Shares::new(REMEMBERED)),
            asking: RefCell::new(Shares::new(QUESTIONS)),
            begun: RefCell::new(Shares::new(NEW)),
        }
    }
}

/// A name gets no certificate now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Denied;

impl OnDemand {
    /// Returns whether to ask the platform about a name that a client asks for, or `false` if this is already being
    /// done. The error means that the name is denied.
    fn begin(&self, name: &str, client: Client, now: Instant) -> Result<bool, Denied> {
        let mut denied = self.denied.borrow_mut();
        let recent = |at: &Instant| now.duration_since(*at) < DENIED;
        if denied.get(name).is_some_and(recent) {
            return Err(Denied);
        }
        if !denied.has_room(client) {
            denied.retain(|_, at| recent(at));
        }
        // The platform would be asked repeatedly about a denial that cannot be remembered.
        if !denied.has_room(client) {
            return Err(Denied);
        }
        let mut asking = self.asking.borrow_mut();
        if asking.get(name).is_some() {
            return Ok(false);
        }
        if !asking.has_room(client) {
            return Err(Denied);
        }
        asking.put(name, client, ());
        Ok(true)
    }

    /// Records the platform's decision for a client's name. Returns whether an order is started for it.
    fn end(&self, name: &str, client: Client, allowed: bool, now: Instant) -> bool {
        self.asking.borrow_mut().remove(name);
        if !allowed {
            self.denied.borrow_mut().put(name, client, now);
            return false;
        }
        let mut begun = self.begun.borrow_mut();
        begun.retain(|_, at| now.duration_since(*at) < MINUTE);
        let fits = begun.has_room(client);
        if fits {
            begun.put(name, client, now);
        }
        fits
    }
}

/// Handles a client's request for a name. The name is sent to `allowed` if the platform allows it.
pub(super) fn wanted(
    shared: &Rc<Shared>,
    name: String,
    client: Client,
    allowed: &mpsc::UnboundedSender<String>,
) {
    let fits = names::check(&name).is_ok() && !names::is_local(&name) && !name.starts_with('*');
    let begun = match fits {
        true => shared.on_demand.begin(&name, client, Instant::now()),
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
        let allows = answer.is_ok();
        if shared.on_demand.end(&name, client, allows, Instant::now()) {
            let _ = allowed.send(name);
            return;
        }
        if let Err(failure) = answer {
            shared.log(format!("{}: {name}: {failure}", failure.name()));
        }
        shared.tell_not_ordered(name);
    });
}

/// Asks the platform whether a name that is not configured may have a certificate.
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

    fn client(last: u8) -> Client {
        Some(std::net::IpAddr::from([192, 0, 2, last]))
    }

    fn name(n: usize) -> String {
        format!("{n}.example.org")
    }

    #[test]
    fn questions_and_new_names_are_bounded() {
        let demand = OnDemand::default();
        let (start, one) = (Instant::now(), client(1));
        let begin = |n: usize, now| demand.begin(&name(n), one, now);
        for n in 0..QUESTIONS / 2 {
            assert_eq!(begin(n, start), Ok(true));
            assert_eq!(begin(n, start), Ok(false), "it is being asked");
        }
        assert_eq!(begin(QUESTIONS, start), Err(Denied));
        for n in 0..QUESTIONS / 2 {
            assert!(!demand.end(&name(n), one, false, start));
        }
        assert_eq!(begin(0, start), Err(Denied), "it was denied just now");
        assert_eq!(begin(0, start + DENIED), Ok(true));
        for n in 0..NEW / 2 {
            assert!(demand.end(&name(n), one, true, start));
        }
        assert!(!demand.end("sixth.example.org", one, true, start));
        assert!(demand.end("another.example.org", client(2), true, start));
        assert!(demand.end("later.example.org", one, true, start + MINUTE));
    }

    #[test]
    fn a_client_that_asks_for_names_without_end_keeps_no_other_from_asking() {
        let demand = OnDemand::default();
        let now = Instant::now();
        let mut asked = 0;
        for n in 0..2 * REMEMBERED {
            if demand.begin(&name(n), client(1), now) == Ok(true) {
                demand.end(&name(n), client(1), false, now);
                asked += 1;
            }
        }
        assert_eq!(asked, REMEMBERED / 2);
        // Another client makes as many simultaneous requests as it can.
        for n in 0..QUESTIONS {
            let _ = demand.begin(&format!("{n}.example.net"), client(2), now);
        }
        assert_eq!(
            demand.begin("shop.example.com", client(2), now),
            Err(Denied)
        );
        let others = demand.begin("shop.example.com", client(3), now);
        assert_eq!(others, Ok(true));
    }
}
