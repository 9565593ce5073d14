//! Reads the configuration of each server with `howdah_import`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use howdah_http1::mime;
use howdah_import::directive::{Directive, SourceLine};
use howdah_import::ledger;
use howdah_import::report::format_list;
use howdah_import::target::{TomlTable, TomlValue};
use howdah_import::{ConfigFormat, ImportError, ImportParts, ImportRequest, import_parts};
use howdah_os::account::web_user;

use super::findings::{Findings, finding};
use super::php::HostedPhp;
use super::servers::FoundServer;
use crate::plan::{DirectiveCounts, Finding, LoadedConfiguration, ServerKind, Severity};

/// The configuration of a server, translated for Howdah.
#[derive(Debug)]
pub struct ServerImport {
    /// The index of the server among those that were found.
    pub server: usize,
    /// What the import has found.
    pub parts: ImportParts,
    /// The user that the server's workers run as.
    pub user: String,
    /// The list of the directives that are not carried over: its file name and its text.
    pub notes: (PathBuf, String),
}

/// Reads the configurations of all web servers, and records in each server what it has loaded. A configuration that
/// cannot be read is a finding that prevents the switch.
pub fn import_all(
    servers: &mut [FoundServer],
    php: &HostedPhp,
    findings: &mut Findings,
) -> Vec<ServerImport> {
    let mut imports = Vec::new();
    for number in 0..servers.len() {
        let found = &servers[number];
        let format = match found.server.kind {
            ServerKind::Nginx => ConfigFormat::Nginx,
            ServerKind::Apache => ConfigFormat::Apache,
            ServerKind::PhpFpm => {
                record_fpm(&mut servers[number]);
                continue;
            }
        };
        let is_first = !imports
            .iter()
            .any(|other: &ServerImport| servers[other.server].server.kind == found.server.kind);
        let notes = notes_name(format, found.server.pid, is_first);
        match import_one(number, found, format, php, notes) {
            Ok(import) => {
                let pid_file = pid_file(&import.parts.tree, found);
                servers[number].set_loaded(loaded(&import), pid_file.as_ref());
                imports.push(import);
            }
            Err(error) => findings.push(unreadable(found, &error)),
        }
    }
    imports
}

fn unreadable(found: &FoundServer, error: &ImportError) -> Finding {
    let message = format!(
        "the configuration of {} cannot be read: {}",
        found.display(),
        error.message
    );
    let remedy = "Correct the file, or convert this server by hand with `howdah import`.";
    finding(Severity::Blocks, "ConfigurationUnreadable", message, remedy).at(&error.place)
}

fn notes_name(format: ConfigFormat, pid: u32, is_first: bool) -> PathBuf {
    match is_first {
        true => format!("{}.notes", format.name()).into(),
        false => format!("{}-{pid}.notes", format.name()).into(),
    }
}

fn import_one(
    number: usize,
    found: &FoundServer,
    format: ConfigFormat,
    php: &HostedPhp,
    notes: PathBuf,
) -> Result<ServerImport, ImportError> {
    let user = found.server.user.clone();
    let user = user
        .or_else(|| web_user().map(str::to_owned))
        .unwrap_or_else(|| "root".to_owned());
    let request = ImportRequest {
        format,
        paths: vec![found.paths.file.clone()],
        prefix: found.paths.prefix.clone(),
        root_prefix: found.paths.root_prefix.clone(),
        defined: found.paths.defined.clone(),
        php_fpm: php.configurations(),
        list: notes.display().to_string(),
        media_type: mime::media_type,
        user: Some(user.clone()),
    };
    let mut parts = import_parts(&request)?;
    remove_unused_pools(&mut parts);
    let list = format_list(&request, &parts.entries, ledger::counts(&parts.entries));
    Ok(ServerImport {
        server: number,
        parts,
        user,
        notes: (notes, list),
    })
}

/// Removes the lines of the pools that no site of this server uses: another server may use them.
fn remove_unused_pools(parts: &mut ImportParts) {
    let is_used = |name: &str| parts.config.pools.iter().any(|(used, ..)| used == name);
    let unused = parts.pools.iter().filter(|pool| !is_used(&pool.name));
    let lines = unused.flat_map(|pool| {
        let lines = pool.lines.iter().map(|line| &line.place);
        lines.chain(std::iter::once(&pool.place))
    });
    let lines: HashSet<&SourceLine> = lines.collect();
    parts.entries.retain(|entry| !lines.contains(&entry.place));
}

/// Adds a finding for each pool of php-fpm that no site of any server uses.
pub fn report_unused_pools(imports: &[ServerImport], findings: &mut Findings) {
    let Some(first) = imports.first() else {
        return;
    };
    for pool in &first.parts.pools {
        let uses = |import: &ServerImport| {
            let mut pools = import.parts.config.pools.iter();
            pools.any(|(name, ..)| *name == pool.name)
        };
        if !imports.iter().any(uses) {
            findings.push(
                finding(
                    Severity::Note,
                    "PoolWithoutSite",
                    format!(
                        "no site uses the pool {} of php-fpm, so it is not carried over",
                        pool.name
                    ),
                    "",
                )
                .at(&pool.place),
            );
        }
    }
}

fn loaded(import: &ServerImport) -> LoadedConfiguration {
    let counts = ledger::counts(&import.parts.entries);
    LoadedConfiguration {
        files: import.parts.files.clone(),
        directives: DirectiveCounts {
            carried: counts.carried,
            different: counts.different,
            irrelevant: counts.irrelevant,
            missing: counts.missing,
            missing_protections: counts.missing_protections,
        },
        notes: Some(import.notes.0.clone()),
        ..LoadedConfiguration::default()
    }
}

/// Records the files of a php-fpm server. Its directives are counted with those of the web servers that use its pools.
fn record_fpm(found: &mut FoundServer) {
    let ledger = ledger::ImportLedger::default();
    let file = found.paths.file.clone();
    // The import of a web server reports a file that cannot be read.
    let _ = howdah_import::fpm::read_pools(std::slice::from_ref(&file), &ledger);
    let pid_file = fpm_pid_file(&file);
    let loaded = LoadedConfiguration {
        files: ledger.files(),
        ..LoadedConfiguration::default()
    };
    found.set_loaded(loaded, pid_file.as_ref());
}

/// Returns the `pid` of `[global]`, which is at the beginning of the main file.
fn fpm_pid_file(file: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(file).ok()?;
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let mut values = lines.filter(|(key, _)| key.trim() == "pid");
    let (_, value) = values.next()?;
    let path = value.split(';').next()?.trim().trim_matches('"');
    Some(PathBuf::from(path)).filter(|path| path.is_absolute())
}

fn pid_file(tree: &[Directive], found: &FoundServer) -> Option<PathBuf> {
    let line = tree.iter().rev().find(|line| line.name == "pidfile")?;
    let root = found.paths.prefix.as_deref().unwrap_or(Path::new("/"));
    Some(root.join(line.arg(0)))
}

/// Returns a value of a table that is a string.
pub fn text<'t>(table: &'t TomlTable, key: &str) -> Option<&'t str> {
    match table.get(key)? {
        TomlValue::Text(text) => Some(text),
        _ => None,
    }
}

/// Returns a value of a table that is a list of strings; empty if there is none.
pub fn texts<'t>(table: &'t TomlTable, key: &str) -> &'t [String] {
    match table.get(key) {
        Some(TomlValue::Texts(texts)) => texts,
        _ => &[],
    }
}
