//! `howdah php` as a member of a fleet, on a machine where no server runs. It has no pages, so the invalidations of
//! other members change nothing here. It publishes what a server would publish when it receives the script's reports.
//!
//! It joins when the script first reports a write, which is before the write, and publishes at each report. So pages
//! are invalidated on all servers half a second after the script's writes can be read, and again when the command
//! exits. A running server guarantees no more than that. A write that cannot be published does not delay the script as
//! it would delay a server's response, because PHP does not wait. A script that writes for longer than `forget_after`
//! without Valkey is not stopped either; an error is printed at the end.
//!
//! A process that is killed is a silent member until it is forgotten, because the last writes of its script may not
//! have been published. The script is killed with it.

use std::path::Path;
use std::sync::Arc;

use howdah_fleet::{Fleet, FleetConfig};
use howdah_server::cache::admin::{self, AdminCommand};
use howdah_server::cache::fleet::publish_everything;
use howdah_server::cache::{CacheProcessState, PageCache, PageCacheConfig};
use howdah_site::site::{Site, Sites};

use howdah_config::arguments::ServeArguments;
use howdah_config::{self, ConfigSource, Validation};

/// The size of the store for pages, in bytes. There are no pages.
const PAGE_STORE_BYTES: u64 = 1 << 20;

/// The membership in a fleet while a script runs.
pub struct ScriptMember {
    fleet: Arc<Fleet>,
    sites: Sites,
    /// `None` if the configuration has no site with a page cache. In that case, the rules of the sites are unknown.
    cache: Option<PageCache>,
}

impl ScriptMember {
    /// Joins the fleet that this file or the environment names. Returns `None` if neither names one.
    pub fn join(file: Option<&Path>) -> Result<Option<ScriptMember>, String> {
        let source = file.map(ConfigSource::read).transpose()?;
        if !howdah_config::names_fleet(source.as_ref()) {
            return Ok(None);
        }
        let said = |mistakes: Vec<String>| mistakes.join("\n");
        // Users, keys and PHP only concern the server.
        let loaded = howdah_config::load(
            &ServeArguments::default(),
            source.as_ref(),
            Validation::Trusted,
        );
        let settings = loaded.settings.map_err(said)?;
        let Some(wanted) = &settings.fleet else {
            return Ok(None);
        };
        let sites = settings.open_sites_with(Site::open).map_err(said)?;
        let config = FleetConfig {
            member: name(&wanted.member),
            // This member renders no pages.
            key: None,
            ..wanted.clone()
        };
        // Events are ignored here; the reason of a failed write is read from the status when it is needed.
        let fleet = Fleet::start(
            &config,
            Box::new(|_| {}),
            Box::new(|_| {}),
            Box::new(|_, _| {}),
            Box::new(|_| "`howdah php` has no page cache".to_owned()),
        );
        let fleet = fleet.map_err(|error| format!("cannot join the fleet: {error}"))?;
        let config = PageCacheConfig {
            memory: PAGE_STORE_BYTES,
            disk: None,
            release: None,
            encoding: &settings.encoding,
        };
        let process = Arc::new(CacheProcessState {
            fleet: Some(fleet.clone()),
            ..CacheProcessState::default()
        });
        Ok(Some(ScriptMember {
            cache: PageCache::new(&sites, config, &process),
            fleet,
            sites,
        }))
    }

    /// Returns the member's name.
    pub fn unique_member_name(&self) -> &str {
        &self.fleet.config().member
    }

    /// Invalidates pages on all servers, and waits until they have confirmed, for two leases at most. Fails with the
    /// reason why they may not have received it.
    pub fn publish(&self, ask: &AdminCommand) -> Result<(), String> {
        let unheard = self.fleet.status().let_go;
        let done = match (&self.cache, ask) {
            (Some(cache), _) => admin::execute_command(&self.sites, Some(cache), ask).map(drop),
            (None, AdminCommand::Wrote { site, .. }) => {
                publish_everything(&self.fleet, site.as_deref());
                Ok(())
            }
            (None, _) => Ok(()),
        };
        let heard = self.fleet.block_until_confirmed(self.fleet.last_ticket());
        let status = self.fleet.status();
        if heard.is_ok() && status.let_go == unheard {
            return done;
        }
        let trouble = match status.trouble.as_str() {
            "" => "no response",
            trouble => trouble,
        };
        Err(format!(
            "FleetUnreachable: {}: {trouble}\nhowdah php: FleetWriteUnheard: no other server has been notified of the write",
            status.valkey
        ))
    }

    /// Leaves the fleet. Returns whether that succeeded within a lease.
    pub fn leave(&self) -> bool {
        self.fleet.leave_within(self.fleet.config().lease)
    }
}

/// Returns a name that no other process has and no server may have: `MEMBER/php/PID` and a random word, because
/// containers have equal process ids.
fn name(server: &str) -> String {
    let mut word = [0; 4];
    // Without a random word, the process id must suffice.
    let _ = rustix::rand::getrandom(&mut word, rustix::rand::GetRandomFlags::empty());
    let word = u32::from_ne_bytes(word);
    format!("{server}/php/{}-{word:x}", std::process::id())
}
