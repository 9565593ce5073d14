//! `howdah php` as a member of a fleet, on a machine where no server runs: it has no pages, so what others
//! publish changes nothing here, and publishes what a server would that hears its script's reports.
//!
//! It joins when the script first says that it writes, which is before it does, and publishes at each report:
//! what a script writes is old on all servers half a second after it can be read, and when the command is
//! through. So much is promised beside a server, too. What it cannot publish is not kept back, as a server
//! keeps its answer: PHP does not wait. Nor does a script stop that writes beyond `forget_after` without
//! Valkey; whoever runs it hears of that at the end.
//!
//! One that is killed is a silent member as long as nobody forgets it: what its script wrote last may be
//! unheard. The script is killed with it.

use std::path::Path;
use std::sync::Arc;

use howdah_fleet::{Fleet, FleetConfig};
use howdah_server::cache::admin::{self, AdminCommand};
use howdah_server::cache::fleet::publish_everything;
use howdah_server::cache::{PageCache, Stores};
use howdah_server::site::{Site, Sites};

use crate::arguments::Serve;
use crate::config::{self, Source, Validation};

/// Bytes for stored pages: there are none.
const NO_PAGES: u64 = 1 << 20;

/// A membership for as long as a script runs.
pub struct Member {
    fleet: Arc<Fleet>,
    sites: Sites,
    /// None: the configuration has no site with a page cache, and nothing is known of their rules.
    cache: Option<PageCache>,
}

impl Member {
    /// Joins the fleet of this file and of the environment; none: they name none.
    pub fn join(file: Option<&Path>) -> Result<Option<Member>, String> {
        let source = file.map(Source::read).transpose()?;
        if !config::names_fleet(source.as_ref()) {
            return Ok(None);
        }
        let said = |mistakes: Vec<String>| mistakes.join("\n");
        // Users, keys and PHP are the server's business.
        let loaded = config::load(&Serve::default(), source.as_ref(), Validation::Trusted);
        let settings = loaded.settings.map_err(said)?;
        let Some(wanted) = &settings.fleet else {
            return Ok(None);
        };
        let sites = settings.open_sites_by(Site::open).map_err(said)?;
        let config = FleetConfig {
            member: name(&wanted.member),
            // It renders nothing.
            key: None,
            ..wanted.clone()
        };
        // Why a write is not heard is asked for when it matters.
        let fleet = Fleet::start(
            &config,
            Box::new(|_| {}),
            Box::new(|_| {}),
            Box::new(|_, _| {}),
            Box::new(|_| "`howdah php` has no pages".to_owned()),
        );
        let fleet = fleet.map_err(|error| format!("cannot join the fleet: {error}"))?;
        let stores = Stores {
            memory: NO_PAGES,
            disk: None,
            closed_disk: None,
            carried: Arc::default(),
            fleet: Some(fleet.clone()),
            successor: Arc::default(),
            release: None,
        };
        Ok(Some(Member {
            cache: PageCache::new(&sites, stores, &settings.encoding),
            fleet,
            sites,
        }))
    }

    /// The member's name.
    pub fn name(&self) -> &str {
        &self.fleet.config().member
    }

    /// Makes pages old on all servers, and waits for them: two leases at most. An error says why they may not
    /// have heard of it.
    pub fn publish(&self, ask: &AdminCommand) -> Result<(), String> {
        let unheard = self.fleet.status().let_go;
        let done = match (&self.cache, ask) {
            (Some(cache), _) => admin::answer(&self.sites, Some(cache), ask).map(drop),
            (None, AdminCommand::Wrote { site, .. }) => {
                publish_everything(&self.fleet, site.as_deref());
                Ok(())
            }
            (None, _) => Ok(()),
        };
        let heard = self.fleet.wait(self.fleet.last());
        let status = self.fleet.status();
        if heard.is_ok() && status.let_go == unheard {
            return done;
        }
        let trouble = match status.trouble.as_str() {
            "" => "no answer",
            trouble => trouble,
        };
        Err(format!(
            "FleetUnreachable: {}: {trouble}\nhowdah php: FleetWriteUnheard: no other server has heard of it",
            status.valkey
        ))
    }

    /// Leaves the fleet; whether it has, within a lease.
    pub fn leave(&self) -> bool {
        self.fleet.leave_within(self.fleet.config().lease)
    }
}

/// A name that no other process has, and no server may have: `MEMBER/php/PID`, and a word, since containers
/// have the same process ids.
fn name(server: &str) -> String {
    let mut word = [0; 4];
    // Without it the process id has to do.
    let _ = rustix::rand::getrandom(&mut word, rustix::rand::GetRandomFlags::empty());
    let word = u32::from_ne_bytes(word);
    format!("{server}/php/{}-{word:x}", std::process::id())
}
