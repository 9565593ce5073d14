//! `howdah takeover plan`: finds the servers of this machine, and writes Howdah's configuration for their sites.
//!
//! - [`processes`], [`sockets`], [`servers`], [`command`]: what runs, and with which configuration.
//! - [`imports`], [`php`], [`combination`], [`addresses`], [`unswitched`], [`proxied`]: one configuration of Howdah for
//!   all of it.
//! - [`sites`], [`denied`], [`files`]: what the other commands need to know of each site.
//! - [`findings`], [`check`]: what the owner of the machine should know.
//! - [`staging`], [`report`]: the directory of the takeover, and the table that is printed.
//!
//! Nothing on the machine is changed except the directory of the takeover.

pub mod addresses;
pub mod check;
pub mod combination;
pub mod command;
pub mod denied;
pub mod files;
pub mod findings;
pub mod imports;
pub mod php;
pub mod processes;
pub mod proxied;
pub mod report;
pub mod servers;
pub mod sites;
pub mod sockets;
pub mod staging;
pub mod unswitched;

use std::path::Path;
use std::time::SystemTime;

use howdah_import::EMPTY_ROOT;
use howdah_import::target::{SiteTable, TargetConfig, TomlValue};
use howdah_os::account::{find_group, find_user};
use howdah_os::process::is_root;

use self::combination::CombinedConfiguration;
use self::findings::Findings;
use self::imports::{ServerImport, text};
use self::php::HostedPhp;
use self::processes::Processes;
use self::servers::{FoundServer, unix_seconds};
use self::sites::SITES;
use self::sockets::ListeningSockets;
use self::staging::StagedDirectory;
use crate::plan::{CONFIGURATION, PLAN_FILE, Plan, PlannedSite, ServerKind};
use crate::switch::state::SwitchLock;

/// Makes the plan and writes it to a directory. `only` names the main processes of the servers that are taken over; if
/// it is empty, these are all servers that root or the user of this process has started.
///
/// # Errors
/// Returns a sentence for the user. Then the directory is unchanged.
pub fn plan(directory: &Path, only: &[u32]) -> Result<Plan, String> {
    staging::refuse_directory_in_use(directory)?;
    // No switch begins while the plan is made. Without a plan, none can.
    let _lock = match directory.join(PLAN_FILE).exists() {
        true => Some(lock(directory)?),
        false => None,
    };
    // A switch may have begun before the lock was taken.
    staging::refuse_directory_in_use(directory)?;
    let processes = Processes::read()
        .map_err(|error| format!("the processes in /proc cannot be read: {error}"))?;
    let sockets = ListeningSockets::read();
    let mut findings = Findings::default();
    let mut servers = servers::find(&processes, &sockets, only, &mut findings)?;
    if !servers
        .iter()
        .any(|found| found.server.kind != ServerKind::PhpFpm)
    {
        return Err(no_server(findings));
    }
    let php = HostedPhp::find(&servers, &mut findings);
    let imports = imports::import_all(&mut servers, &php, &mut findings);
    let imports =
        proxied::keep_backends(imports, &mut servers, &processes, &sockets, &mut findings);
    imports::report_unused_pools(&imports, &mut findings);
    let mut all = combination::combine(&imports, &servers, &php, &mut findings);
    unswitched::remove(&mut all, &sockets, &mut findings);
    let sites = sites::planned_sites(&all, &imports, &servers, &mut findings);
    findings::roots::report(&mut all, &imports, &mut findings);
    findings::changes::report(&servers, &mut findings);
    findings::certificates::report(&all, &mut findings);
    findings::backends::report(&all, &mut findings);
    findings::addresses::report(
        &all,
        &imports,
        &servers,
        &processes,
        &sockets,
        &mut findings,
    );
    findings::directives::report(&imports, &mut findings);
    report_tools(&all, &imports, &servers, &mut findings);
    write(directory, &all, &imports, servers, sites, findings)
}

fn lock(directory: &Path) -> Result<SwitchLock, String> {
    match SwitchLock::try_take(directory) {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => Err(format!(
            "SwitchInProgress: another command is switching or making a plan in {}; wait until it has ended",
            directory.display()
        )),
        Err(failure) => Err(format!("CannotWrite: {}", failure.message)),
    }
}

/// Adds the findings about the programs around the servers.
fn report_tools(
    all: &CombinedConfiguration,
    imports: &[ServerImport],
    servers: &[FoundServer],
    findings: &mut Findings,
) {
    let log = all.config.sections.get("log");
    let paths = ["access", "error"].into_iter();
    let logs: Vec<&Path> = paths
        .filter_map(|key| text(log?, key))
        .map(Path::new)
        .collect();
    let leaving = servers.iter().filter(|found| !found.stays);
    let kinds: Vec<ServerKind> = leaving.map(|found| found.server.kind).collect();
    findings::tools::report(Path::new("/"), &kinds, &logs, imports, findings);
}

/// Returns the message for a machine without a web server that could be taken over. A finding may say why.
fn no_server(findings: Findings) -> String {
    let mut message =
        "NoServerFound: no nginx or Apache that could be taken over is running here".to_owned();
    if !is_root() {
        message += "; run the command as root, who sees the processes of all users";
    }
    for found in findings.into_sorted() {
        message += &format!("; {}", found.message);
        if !found.remedy.is_empty() {
            message += &format!(". {}", found.remedy);
        }
    }
    message
}

/// Writes the directory of the takeover, and returns the plan.
fn write(
    directory: &Path,
    all: &CombinedConfiguration,
    imports: &[ServerImport],
    servers: Vec<FoundServer>,
    sites: Vec<PlannedSite>,
    mut findings: Findings,
) -> Result<Plan, String> {
    let staged = StagedDirectory::create(directory, group_of_front(&all.config))?;
    staged.make_directory(SITES)?;
    if all.config.needs_empty_root {
        staged.make_directory(EMPTY_ROOT)?;
    }
    for import in imports {
        let (name, text) = &import.notes;
        staged.write(name, text)?;
    }
    for (site, table) in sites.iter().zip(&all.config.sites) {
        staged.write(&site.file, &site_file(site, table))?;
    }
    staged.write(Path::new(CONFIGURATION), &main_file(&all.config, &servers))?;
    check::report(&staged, &mut findings);
    let leaving = servers.into_iter().filter(|found| !found.stays);
    let plan = Plan {
        made_at: unix_seconds(SystemTime::now()),
        servers: leaving.map(|found| found.server).collect(),
        sites,
        findings: findings.into_sorted(),
    };
    let json = serde_json::to_string_pretty(&plan).map_err(|error| error.to_string())?;
    staged.write(Path::new(PLAN_FILE), &(json + "\n"))?;
    staged.commit()?;
    Ok(plan)
}

/// Returns the group of the user that serves HTTP, which reads the configuration, too.
fn group_of_front(config: &TargetConfig) -> Option<u32> {
    let user = text(&config.top, "user").filter(|_| is_root())?;
    match user.split_once(':') {
        Some((_, group)) => find_group(group),
        None => Some(find_user(user)?.gid),
    }
}

/// Returns the text of the main file: everything except the sites.
fn main_file(config: &TargetConfig, servers: &[FoundServer]) -> String {
    let mut out = "# Made by `howdah takeover plan`. The comments name the file and line that a part comes from.\n".to_owned();
    for found in servers.iter().filter(|found| !found.stays) {
        let file = found.paths.file.display().to_string();
        out += &format!(
            "# {}: {}\n",
            found.display(),
            file.replace(char::is_control, "?")
        );
    }
    out.push('\n');
    let mut main = TargetConfig {
        sites: Vec::new(),
        ..config.clone()
    };
    let include = TomlValue::Texts(vec![format!("{SITES}/*.toml")]);
    main.top.set("include", include, None);
    main.write_tables(&mut out);
    out
}

/// Returns the text of a site's file.
fn site_file(site: &PlannedSite, table: &SiteTable) -> String {
    let kind = servers::kind_name(site.served_by);
    let mut out = format!("# Made by `howdah takeover plan`. {kind} serves this site now.\n");
    let only = TargetConfig {
        sites: vec![table.clone()],
        ..TargetConfig::default()
    };
    only.write_tables(&mut out);
    out
}
