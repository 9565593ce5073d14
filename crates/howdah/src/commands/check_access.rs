//! Checks whether the users that serve HTTP and run PHP may open the files of a site. A child process with the rights
//! of the user asks the system, so groups, access control lists and mount options count as they do for the server.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use howdah_config::ServeSettings;
use howdah_config::directory_access::{describe_closed, directories_to_enter};
use howdah_executor::PoolMode;
use howdah_os::account::Account;
use howdah_os::shell::shell_quoted;
use howdah_site::site::config::SiteConfig;

use crate::sys;

/// The maximum number of paths that one child process tests.
const PATHS_OF_A_CHILD: usize = 500;

/// What a user needs to do with a path.
#[derive(Clone, Copy)]
enum Need {
    /// Enter a directory.
    Enter,
    /// Read a file.
    Read,
}

/// A user whose rights matter, and what it does.
#[derive(Clone, PartialEq, Eq)]
struct UserOfSite {
    name: String,
    account: Account,
    gid: u32,
    /// Whether the user reads files that are sent; otherwise it reads scripts.
    sends_files: bool,
}

/// A user and the sites whose files it opens.
type SitesOfUser<'a> = (UserOfSite, Vec<&'a SiteConfig>);

/// What is wrong with the access to a site's files.
#[derive(Default)]
pub struct AccessFindings {
    /// Problems that keep the server from starting.
    pub mistakes: Vec<String>,
    /// Problems that make requests fail.
    pub advice: Vec<String>,
}

/// Finds the files that the server's users cannot open. Finds nothing if this process may not change its user.
pub fn check_access(settings: &ServeSettings) -> AccessFindings {
    let mut found = AccessFindings::default();
    if !sys::may_change_user() {
        return found;
    }
    let mut all: Vec<SitesOfUser<'_>> = Vec::new();
    for site in &settings.sites {
        for user in users(settings, site) {
            match all.iter_mut().find(|(other, _)| *other == user) {
                Some((_, sites)) => sites.push(site),
                None => all.push((user, vec![site])),
            }
        }
    }
    for (user, sites) in &all {
        check_user(user, sites, &mut found);
    }
    found
}

/// Returns the user that serves HTTP, and the user that runs the site's scripts.
fn users(settings: &ServeSettings, site: &SiteConfig) -> Vec<UserOfSite> {
    let user = |name: Option<&str>, group: Option<&str>, sends_files: bool| {
        let account = sys::find_user(name?)?;
        let gid = group.and_then(sys::find_group);
        Some(UserOfSite {
            name: name?.to_owned(),
            gid: gid.unwrap_or(account.gid),
            account,
            sends_files,
        })
    };
    let http = user(settings.user.as_deref(), settings.group.as_deref(), true);
    let pool = settings.pools.iter().find(|pool| pool.name() == site.pool);
    let group = match pool {
        Some(PoolMode::Embed(config)) => config.group.as_deref(),
        Some(PoolMode::Cgi(config)) => config.identity.group.as_deref(),
        Some(PoolMode::Pool(config)) => config.identity.group.as_deref(),
        _ => None,
    };
    let scripts = user(pool.and_then(PoolMode::user), group, false);
    http.into_iter().chain(scripts).collect()
}

fn check_user(user: &UserOfSite, sites: &[&SiteConfig], found: &mut AccessFindings) {
    let directories: Vec<Vec<PathBuf>> = sites
        .iter()
        .map(|site| directories_to_enter(&site.root))
        .collect();
    let Some(closed) = refused(user, Need::Enter, directories.iter().flatten()) else {
        return;
    };
    let mut files: Vec<(&SiteConfig, PathBuf)> = Vec::new();
    for (site, directories) in sites.iter().zip(&directories) {
        match directories
            .iter()
            .find(|directory| closed.contains(*directory))
        {
            Some(first) => report_closed(site, user, first, found),
            None => files.extend(
                files_of(site, user.sends_files)
                    .into_iter()
                    .map(|file| (*site, file)),
            ),
        }
    }
    let unreadable = refused(user, Need::Read, files.iter().map(|(_, file)| file));
    let unreadable = unreadable.unwrap_or_default();
    for (site, file) in files.iter().filter(|(_, file)| unreadable.contains(file)) {
        let path = file.display().to_string();
        found.advice.push(format!(
            "site `{}`: Unreadable: the user `{}` cannot read {path}, so requests for it get a 403; run: chmod o+r {}",
            site.name,
            user.name,
            shell_quoted(&path)
        ));
    }
}

fn report_closed(
    site: &SiteConfig,
    user: &UserOfSite,
    directory: &Path,
    found: &mut AccessFindings,
) {
    let about = format!(
        "DirectoryUnreadable: site `{}`: {}",
        site.name,
        describe_closed(&user.name, directory)
    );
    if found.mistakes.contains(&about) || found.advice.contains(&about) {
        // The same user serves HTTP.
        return;
    }
    let is_root = site.root.canonicalize().is_ok_and(|root| root == directory);
    match user.sends_files && !is_root {
        // The server opens its roots when it starts.
        true => found.mistakes.push(about),
        false => found.advice.push(about),
    }
}

/// Returns the files that a site needs, as far as they exist: those that are sent, or the scripts.
fn files_of(site: &SiteConfig, sent: bool) -> Vec<PathBuf> {
    let is_script = |name: &str| site.php_extensions.iter().any(|end| name.ends_with(&**end));
    let controller = site.front_controller.as_ref();
    let names = site
        .index
        .iter()
        .chain(site.error_pages.iter().map(|(_, page)| page))
        .chain(controller.map(|controller| &controller.script));
    let wanted = names.filter(|name| is_script(name) != sent);
    // The child that tests the files is in another directory.
    let root = std::path::absolute(&site.root).unwrap_or_else(|_| site.root.clone());
    let mut files: Vec<PathBuf> = wanted
        .map(|name| root.join(name.trim_start_matches('/')))
        .filter(|file| file.is_file())
        .collect();
    files.dedup();
    files
}

/// Returns the paths that a user cannot use as needed, according to test(1) running as that user. Returns `None` if it
/// cannot run.
fn refused<'a>(
    user: &UserOfSite,
    need: Need,
    paths: impl Iterator<Item = &'a PathBuf>,
) -> Option<BTreeSet<&'a PathBuf>> {
    const SCRIPT: &str =
        "need=$1; shift; n=0; for path; do test \"$need\" \"$path\" || echo $n; n=$((n+1)); done";
    let flag = match need {
        Need::Enter => "-x",
        Need::Read => "-r",
    };
    let paths: BTreeSet<&PathBuf> = paths.collect();
    let paths: Vec<&PathBuf> = paths.into_iter().collect();
    let mut found = BTreeSet::new();
    for some in paths.chunks(PATHS_OF_A_CHILD) {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh", flag]);
        command.args(some.iter().map(|path| OsStr::new(path.as_os_str())));
        // The current directory may be closed to the user.
        command
            .current_dir("/")
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let account = Some((&user.account, user.gid));
        howdah_os::descriptors::run_as(&mut command, account).ok()?;
        let output = command
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        let said = String::from_utf8_lossy(&output.stdout);
        let numbers = said.lines().filter_map(|line| line.parse::<usize>().ok());
        found.extend(numbers.filter_map(|number| some.get(number).copied()));
    }
    Some(found)
}
