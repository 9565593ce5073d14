//! Translates the configuration of another server. Writes the result, and beside it the list of the directives that
//! were not translated.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use howdah_http1::mime;
use howdah_import::ledger::{LedgerEntry, OutcomeKind};
use howdah_import::{ConfigFormat, EMPTY_ROOT, ImportRequest, ImportResult, import};
use howdah_os::account::web_user;
use howdah_os::new_files::{self, NewFile};
use howdah_os::output::counted;
use howdah_os::process::is_root;

use crate::arguments::{ImportCommand, ImportOutput, ImportServerArguments};
use crate::exit;

/// Runs `howdah-import nginx`, `howdah-import apache` or `howdah-import php-fpm`.
pub fn run(command: ImportCommand) -> ExitCode {
    let (format, server) = match command {
        ImportCommand::Nginx(server) => (ConfigFormat::Nginx, server),
        ImportCommand::Apache(server) => (ConfigFormat::Apache, server),
        ImportCommand::PhpFpm(fpm) => {
            let server = ImportServerArguments {
                paths: fpm.paths,
                php_fpm: Vec::new(),
                prefix: None,
                output: fpm.output,
            };
            (ConfigFormat::PhpFpm, server)
        }
    };
    let output = server.output;
    let list = list_beside(&output.file);
    if let Err(why) = new_files::refuse_existing(&[&output.file, &list], output.force) {
        eprintln!("howdah: {why}");
        return exit::failed();
    }
    let request = ImportRequest {
        format,
        paths: server.paths,
        prefix: server.prefix,
        root_prefix: None,
        defined: Vec::new(),
        php_fpm: server.php_fpm,
        list: list.display().to_string(),
        media_type: mime::media_type,
        // A server that root starts needs a user, but a file that configures a single site does not name one.
        user: is_root().then(|| web_user().map(str::to_owned)).flatten(),
    };
    let import = match import(&request) {
        Ok(import) => import,
        Err(problem) => {
            eprintln!("{problem}");
            return exit::configuration();
        }
    };
    if let Err(why) = write(&output, &list, &import) {
        eprintln!("howdah: {why}");
        return exit::failed();
    }
    crate::print_output(&match output.json {
        true => json(&output.file, &list, &import),
        false => summary(&output.file, &list, &import),
    })
}

/// Returns the path of the list, such as `howdah.toml.notes`.
fn list_beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".notes");
    name.into()
}

fn write(output: &ImportOutput, list: &Path, import: &ImportResult) -> Result<(), String> {
    if import.needs_empty_root {
        let beside = output.file.parent().unwrap_or(Path::new(""));
        let root = beside.join(EMPTY_ROOT);
        fs::create_dir_all(&root)
            .map_err(|error| format!("cannot write {}: {error}", root.display()))?;
    }
    // The configuration is written last, so the list always exists if the configuration does.
    let files: [NewFile<'_>; 2] = [(list, &import.list), (&output.file, &import.configuration)];
    new_files::write(&files, None, output.force)
}

fn summary(file: &Path, list: &Path, import: &ImportResult) -> String {
    let counts = import.counts;
    let mut text = format!(
        "{}: {} and {}\n{} directives: {} carried over ({} with a difference), {} without a meaning in Howdah, {} not carried over\n",
        file.display(),
        counted(import.sites, "site"),
        counted(import.pools, "pool"),
        counts.total(),
        counts.carried,
        counts.different,
        counts.irrelevant,
        counts.missing,
    );
    if counts.missing_protections > 0 {
        text += &format!(
            "{} of these denied or limited access: replace them before you go live\n",
            counts.missing_protections
        );
    }
    text + &format!(
        "read {}, then run: howdah check --config {}\n",
        list.display(),
        file.display()
    )
}

fn json(file: &Path, list: &Path, import: &ImportResult) -> String {
    let entry = |entry: &LedgerEntry| {
        let outcome = &entry.outcome;
        let (word, notes): (_, Vec<&str>) = match outcome.kind() {
            OutcomeKind::Carried => ("carried", Vec::new()),
            OutcomeKind::Different => ("different", borrowed(&outcome.remarks)),
            OutcomeKind::Missing => ("listed", borrowed(&outcome.needs)),
            OutcomeKind::Irrelevant => ("moot", outcome.irrelevant.into_iter().collect()),
        };
        serde_json::json!({
            "file": &*entry.place.file,
            "line": entry.place.line,
            "directive": entry.text,
            "outcome": word,
            "protects": outcome.protects,
            "notes": notes,
        })
    };
    let counts = import.counts;
    let value = serde_json::json!({
        "configuration": file,
        "notes": list,
        "sites": import.sites,
        "pools": import.pools,
        "carried": counts.carried,
        "different": counts.different,
        "moot": counts.irrelevant,
        "listed": counts.missing,
        "protecting": counts.missing_protections,
        "directives": import.entries.iter().map(entry).collect::<Vec<_>>(),
    });
    format!("{value:#}")
}

fn borrowed(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}
