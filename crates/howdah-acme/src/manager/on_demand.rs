//! Certificates for names that are not configured: ordered when a client asks for one, if the platform's `ask` URL
//! allows it. Any client can ask for any name, so the number of requests to that URL and of orders is limited, and no
//! client can use up a limit alone ([`howdah_os::client_quota`]).

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use howdah_os::client_quota::{ClientQuota, QuotaClient};
use tokio::sync::mpsc;

use super::ManagerState;
use crate::failure::AcmeFailure;
use crate::names;

/// How long a denial is remembered.
const DENIAL_DURATION: Duration = Duration::from_secs(60);
/// The maximum number of denied names that are remembered, and of simultaneous requests to the `ask` URL. A client may
/// use up to half of each.
const MAX_REMEMBERED_DENIALS: usize = 10_000;
const MAX_SIMULTANEOUS_CHECKS: usize = 16;
/// The maximum number of new names per minute. A client may use up to half of them; public authorities do not issue
/// more.
const MAX_NEW_NAMES_PER_MINUTE: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// The limits for names on demand; see the module.
pub(super) struct OnDemandLimits {
    denied: RefCell<ClientQuota<Instant>>,
    checks_in_progress: RefCell<ClientQuota<()>>,
    orders_started: RefCell<ClientQuota<Instant>>,
}

impl Default for OnDemandLimits {
    fn default() -> OnDemandLimits {
        OnDemandLimits {
            denied: RefCell::new(ClientQuota::new(MAX_REMEMBERED_DENIALS)),
            checks_in_progress: RefCell::new(ClientQuota::new(MAX_SIMULTANEOUS_CHECKS)),
            orders_started: RefCell::new(ClientQuota::new(MAX_NEW_NAMES_PER_MINUTE)),
        }
    }
}

/// The error that a name gets no certificate at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NameDenied;

impl OnDemandLimits {
    /// Returns whether to ask the platform about a name that a client asks for, or `false` if this is already being
    /// done. The error means that the name is denied.
    fn begin_check(
        &self,
        name: &str,
        client: QuotaClient,
        now: Instant,
    ) -> Result<bool, NameDenied> {
        let mut denied = self.denied.borrow_mut();
        let recent = |at: &Instant| now.duration_since(*at) < DENIAL_DURATION;
        if denied.get(name).is_some_and(recent) {
            return Err(NameDenied);
        }
        if !denied.has_room(client) {
            denied.retain(|_, at| recent(at));
        }
        // The platform would be asked repeatedly about a denial that cannot be remembered.
        if !denied.has_room(client) {
            return Err(NameDenied);
        }
        let mut asking = self.checks_in_progress.borrow_mut();
        if asking.get(name).is_some() {
            return Ok(false);
        }
        if !asking.has_room(client) {
            return Err(NameDenied);
        }
        asking.insert(name, client, ());
        Ok(true)
    }

    /// Records the platform's decision for a client's name. Returns whether an order is started for it.
    fn end_check(&self, name: &str, client: QuotaClient, allowed: bool, now: Instant) -> bool {
        self.checks_in_progress.borrow_mut().remove(name);
        if !allowed {
            self.denied.borrow_mut().insert(name, client, now);
            return false;
        }
        let mut begun = self.orders_started.borrow_mut();
        begun.retain(|_, at| now.duration_since(*at) < MINUTE);
        let fits = begun.has_room(client);
        if fits {
            begun.insert(name, client, now);
        }
        fits
    }
}

/// Handles a client's request for a name. The name is sent to `allowed` if the platform allows it.
pub(super) fn handle_requested_name(
    shared: &Rc<ManagerState>,
    name: String,
    client: QuotaClient,
    allowed: &mpsc::UnboundedSender<String>,
) {
    let fits = names::check_name(&name).is_ok()
        && !names::needs_local_authority(&name)
        && !name.starts_with('*');
    let begun = match fits {
        true => shared.on_demand.begin_check(&name, client, Instant::now()),
        false => Err(NameDenied),
    };
    match begun {
        Ok(true) => {}
        Ok(false) => return,
        Err(NameDenied) => return shared.report_not_ordered(name),
    }
    let (shared, allowed) = (shared.clone(), allowed.clone());
    tokio::task::spawn_local(async move {
        let answer = check_permission(&shared, &name).await;
        let allows = answer.is_ok();
        if shared
            .on_demand
            .end_check(&name, client, allows, Instant::now())
        {
            let _ = allowed.send(name);
            return;
        }
        if let Err(failure) = answer {
            shared.log(format!("{}: {name}: {failure}", failure.name()));
        }
        shared.report_not_ordered(name);
    });
}

/// Asks the platform whether a name that is not configured may have a certificate.
///
/// # Errors
/// Fails with [`AcmeFailure::OnDemandDenied`].
pub(super) async fn check_permission(shared: &ManagerState, name: &str) -> Result<(), AcmeFailure> {
    let settings = shared.settings();
    if settings.names.iter().any(|own| own == name) {
        return Ok(());
    }
    let denied = |why: String| AcmeFailure::OnDemandDenied { why };
    let Some(url) = &settings.ask else {
        return Err(denied(
            "certificates are not ordered on demand any more".to_owned(),
        ));
    };
    let separator = if url.contains('?') { '&' } else { '?' };
    let question = format!("{url}{separator}domain={name}");
    match shared.client.status(&question).await {
        Ok(200..=299) => Ok(()),
        Ok(status) => Err(denied(format!("{question} returned status {status}"))),
        Err(why) => Err(denied(format!("{question}: {why}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> QuotaClient {
        Some(std::net::IpAddr::from([192, 0, 2, last]))
    }

    fn name(n: usize) -> String {
        format!("{n}.example.org")
    }

    #[test]
    fn checks_and_new_names_are_limited() {
        let demand = OnDemandLimits::default();
        let (start, one) = (Instant::now(), client(1));
        let begin = |n: usize, now| demand.begin_check(&name(n), one, now);
        for n in 0..MAX_SIMULTANEOUS_CHECKS / 2 {
            assert_eq!(begin(n, start), Ok(true));
            assert_eq!(begin(n, start), Ok(false), "it is being asked");
        }
        assert_eq!(begin(MAX_SIMULTANEOUS_CHECKS, start), Err(NameDenied));
        for n in 0..MAX_SIMULTANEOUS_CHECKS / 2 {
            assert!(!demand.end_check(&name(n), one, false, start));
        }
        assert_eq!(begin(0, start), Err(NameDenied), "it was denied just now");
        assert_eq!(begin(0, start + DENIAL_DURATION), Ok(true));
        for n in 0..MAX_NEW_NAMES_PER_MINUTE / 2 {
            assert!(demand.end_check(&name(n), one, true, start));
        }
        assert!(!demand.end_check("sixth.example.org", one, true, start));
        assert!(demand.end_check("another.example.org", client(2), true, start));
        assert!(demand.end_check("later.example.org", one, true, start + MINUTE));
    }

    #[test]
    fn on_demand_flood_of_one_client_does_not_block_others() {
        let demand = OnDemandLimits::default();
        let now = Instant::now();
        let mut asked = 0;
        for n in 0..2 * MAX_REMEMBERED_DENIALS {
            if demand.begin_check(&name(n), client(1), now) == Ok(true) {
                demand.end_check(&name(n), client(1), false, now);
                asked += 1;
            }
        }
        assert_eq!(asked, MAX_REMEMBERED_DENIALS / 2);
        // Another client makes as many simultaneous requests as it can.
        for n in 0..MAX_SIMULTANEOUS_CHECKS {
            let _ = demand.begin_check(&format!("{n}.example.net"), client(2), now);
        }
        assert_eq!(
            demand.begin_check("shop.example.com", client(2), now),
            Err(NameDenied)
        );
        let others = demand.begin_check("shop.example.com", client(3), now);
        assert_eq!(others, Ok(true));
    }
}
