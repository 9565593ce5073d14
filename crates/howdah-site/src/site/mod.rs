//! Sites: selects the site for a host, the route that a request takes there, and the file or script that the route
//! leads to. Nothing in this module sends a response or runs a script.
//!
//! - [`config`]: the configuration of a site; [`check`], [`config_error`]: the mistakes in it.
//! - `access`: the one access check for everything that is sent or run, whatever named it.
//! - [`condition`]: the conditions of rules, in addition to the request's path.
//! - `sites`: selects a site by listener and host.
//! - [`script`]: the proof that a path names a script; `behind_script`: the routes that such a script may take from
//!   `PATH_INFO`.
//! - [`pattern`], [`template`]: what rules match and where they lead; `redirect_check`: mistakes in redirects.
//! - `router`, with `rules` and `search`: applies the rules, `try_files` and the front controller, and returns one
//!   [`Route`] for a request ([`route`]).
//! - [`login`]: the requests by which known applications receive passwords.
//! - [`accel`]: files that scripts ask the server to send.
//! - [`recognise`], with `placement` and [`subfolder`]: makes a configuration for a directory without one.
//! - [`htaccess`]: what Apache's `.htaccess` files deny, and which front controller they name.
//! - [`trace`]: the steps of a route, for `howdah explain`; [`description`]: actions and rules as text.

pub mod accel;
mod access;
pub mod application;
mod behind_script;
pub mod check;
pub mod condition;
pub mod config;
pub mod config_error;
mod denials;
pub mod description;
pub mod htaccess;
pub mod login;
pub mod pattern;
mod placement;
pub mod recognise;
mod redirect_check;
pub mod route;
mod router;
mod rules;
pub mod script;
mod search;
mod serve;
mod sites;
pub mod subfolder;
pub mod template;
pub mod trace;
pub mod visitor;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

pub use access::RefusedAccess;
pub use config::SiteConfig;
pub use config_error::ConfigError;
pub use route::{ProxyTarget, Route, RouteAction, RouteInfo, ScriptTarget};
pub use script::ScriptPath;
pub use sites::Sites;

use crate::docroot::path::UrlPath;
use crate::docroot::root::RootDir;

/// How often symbolic links in a site's root are checked. A deployment that moves a link takes effect by itself, at no
/// measurable cost, and PHP's caches see the new real paths.
const ROOT_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A site whose directories are open and which can route requests.
#[derive(Debug)]
pub struct Site {
    config: SiteConfig,
    number: u32,
    root: RwLock<Arc<RootDir>>,
    /// When the root was last checked, in milliseconds of [`monotonic`].
    root_checked_at: AtomicU64,
    front_controller: Option<UrlPath<'static>>,
    serving: serve::StaticServing,
    denials: denials::Denials,
    file_denials: denials::Denials,
    internal: Vec<accel::InternalRoot>,
    sendfile_roots: Vec<Arc<RootDir>>,
    htaccess: htaccess::HtaccessState,
    /// Numbers of the rules that require authentication or authorization before a response.
    guard_rules: Vec<usize>,
    /// Numbers of the rules that limit clients.
    limit_rules: Vec<usize>,
    /// Whether the result of some rule's conditions depends on who sends a request.
    depends_on_client: bool,
    /// Variables that are the same for all requests: `[site.env]`, then the server's own.
    constants: Vec<(String, String)>,
    /// URL paths of password files below the root, by the name in the configuration and by the real path.
    password_files: Vec<Vec<u8>>,
}

impl Site {
    /// Checks `config` and opens its directories. `number` is the site's position in the configuration, for caches that
    /// the PHP processes keep per site. Returns all mistakes at once.
    pub fn new(config: SiteConfig, number: u32) -> Result<Site, Vec<ConfigError>> {
        // This is checked early: otherwise the first visitor would discover a file that only root can read.
        let unreadable = Site::unreadable_files(&config);
        match Site::open(config, number) {
            Ok(_) if !unreadable.is_empty() => Err(unreadable),
            Err(mut errors) => {
                errors.extend(unreadable);
                Err(errors)
            }
            opened => opened,
        }
    }

    /// Returns the errors of password files and network lists that cannot be read.
    pub fn unreadable_files(config: &SiteConfig) -> Vec<ConfigError> {
        let passwords = config.authentications();
        let passwords = passwords.filter_map(|demand| demand.read().err());
        let networks = config.network_files().filter_map(|file| file.read().err());
        passwords
            .map(ConfigError::PasswordFile)
            .chain(networks.map(ConfigError::NetworkFile))
            .collect()
    }

    /// Like [`Site::new`], for callers that need not be able to read the password files and network lists.
    pub fn open(config: SiteConfig, number: u32) -> Result<Site, Vec<ConfigError>> {
        let mut errors = check::check(&config);
        errors.extend(config.rules.iter().flat_map(check::check_rule));
        let root = open(&config.root, &config, &mut errors);
        let front_controller = config.front_controller.as_ref();
        let front_controller = front_controller
            .and_then(|controller| UrlPath::from_decoded(controller.script.as_bytes()).ok());
        let internal = accel::open_internal(&config, &mut errors);
        let sendfile_roots = accel::open_sendfile_roots(&config, &mut errors);
        match root {
            Some(root) if errors.is_empty() => Ok(Site {
                number,
                root: RwLock::new(Arc::new(root)),
                root_checked_at: AtomicU64::new(monotonic().as_millis() as u64),
                front_controller,
                serving: serve::StaticServing::new(&config),
                denials: denials::Denials::new(&config.deny),
                file_denials: denials::Denials::new(&config.deny_files),
                internal,
                sendfile_roots,
                htaccess: htaccess::HtaccessState::default(),
                guard_rules: config.guards().collect(),
                limit_rules: config.limits().collect(),
                depends_on_client: config.rules.iter().any(|rule| rule.depends_on_client()),
                constants: [&config.env[..], &config.server_env].concat(),
                password_files: access::password_files(&config),
                config,
            }),
            _ => Err(errors),
        }
    }

    /// Returns the configuration of the site.
    pub fn config(&self) -> &SiteConfig {
        &self.config
    }

    /// Returns whether the conditions of some rule depend on who sends a request. If so, the URL alone does not
    /// determine the response.
    pub fn depends_on_client(&self) -> bool {
        self.depends_on_client
    }

    /// Returns new problems of the network lists. Each problem is returned once.
    pub fn new_network_file_problems(&self) -> Vec<String> {
        let may_have = self.depends_on_client || !self.limit_rules.is_empty();
        let files = may_have.then(|| self.config.network_files());
        let files = files.into_iter().flatten();
        files.filter_map(|file| file.take_new_problem()).collect()
    }

    /// Returns the number of the site: its position in the configuration, from 0.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the current root. The path of the root is checked again once a second. If a new root cannot be opened,
    /// the old one stays in use: its directory is held open, and a deployment in progress is no reason to refuse
    /// requests.
    pub fn root(&self) -> Arc<RootDir> {
        self.root_at(monotonic())
    }

    /// Like [`Site::root`]; `now` is a time of the clock of [`monotonic`].
    pub fn root_at(&self, now: Duration) -> Arc<RootDir> {
        let now = now.as_millis() as u64;
        let seen = self.root_checked_at.load(Ordering::Relaxed);
        let due = now >= seen.saturating_add(ROOT_CHECK_INTERVAL.as_millis() as u64);
        // One thread checks the root; the others use the current one meanwhile.
        if due
            && self
                .root_checked_at
                .compare_exchange(seen, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            let current = self.current_root();
            if current.is_at(&self.config.root) {
                return current;
            }
            if let Ok(next) = RootDir::open(&self.config.root, self.config.symlinks) {
                let next = Arc::new(next);
                *self.root.write().unwrap_or_else(PoisonError::into_inner) = next.clone();
                return next;
            }
            return current;
        }
        self.current_root()
    }

    /// Freezes the root until [`Site::unfreeze_root`]. This is used while the next configuration is being started, so
    /// that the next one is the first to show a new root.
    pub fn freeze_root(&self) {
        self.root_checked_at.store(u64::MAX, Ordering::Relaxed);
    }

    /// Resumes the regular checks of the root.
    pub fn unfreeze_root(&self) {
        self.root_checked_at.store(0, Ordering::Relaxed);
    }

    fn current_root(&self) -> Arc<RootDir> {
        self.root
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Returns the time of a monotonic clock that is exact to a few milliseconds and cheap to read.
pub fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn open(
    path: &std::path::Path,
    config: &SiteConfig,
    errors: &mut Vec<ConfigError>,
) -> Option<RootDir> {
    RootDir::open(path, config.symlinks)
        .map_err(|error| errors.push(ConfigError::Root(path.to_owned(), error)))
        .ok()
}

/// Returns a `Host` value without its port and without a trailing dot.
pub fn host_name(host: &[u8]) -> &[u8] {
    let name = if host.first() == Some(&b'[') {
        let end = host.iter().position(|b| *b == b']');
        end.map_or(host, |end| &host[..=end])
    } else {
        let colon = host.iter().position(|b| *b == b':');
        colon.map_or(host, |colon| &host[..colon])
    };
    name.strip_suffix(b".").unwrap_or(name)
}

#[cfg(test)]
#[path = "site_tests.rs"]
mod tests;
