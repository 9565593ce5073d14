//! php-fpm's configuration: INI sections, `include`, arrays such as `php_value[name]`.

use std::path::{Path, PathBuf};

use howdah_os::file_patterns::{glob_files, is_pattern};

use crate::ImportError;
use crate::directive::SourceLine;
use crate::ledger::{EntryId, ImportLedger};
use crate::reasons::INCLUDED;
use crate::source::{IncludeChain, SourceReader, SourceText};

/// A line `key = value`, or `key[name] = value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FpmLine {
    /// The key, for example `pm.max_children`.
    pub key: String,
    /// The name in brackets.
    pub name: Option<String>,
    /// The value, without quotes.
    pub value: String,
    /// File and line.
    pub place: SourceLine,
    /// The line's entry in the ledger.
    pub id: EntryId,
}

/// A pool of php-fpm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FpmPool {
    /// Its name.
    pub name: String,
    /// File and line of the section header.
    pub place: SourceLine,
    /// The pool's entry in the ledger.
    pub id: EntryId,
    /// Its lines.
    pub lines: Vec<FpmLine>,
    /// The main file of the php-fpm that has the pool.
    pub main_file: PathBuf,
}

impl FpmPool {
    /// Returns the last value of a key.
    pub fn value(&self, key: &str) -> Option<&str> {
        let mut lines = self.lines.iter().rev();
        lines
            .find(|line| line.key == key)
            .map(|line| line.value.as_str())
    }

    /// Returns whether the pool listens on an address: a path, `HOST:PORT` or a port.
    pub fn listens_at(&self, address: &str) -> bool {
        let Some(listen) = self.value("listen") else {
            return false;
        };
        let port = |text: &str| {
            text.rsplit(':')
                .next()
                .and_then(|port| port.parse::<u16>().ok())
        };
        match listen.starts_with('/') || address.starts_with('/') {
            true => canonical_socket_path(listen) == canonical_socket_path(address),
            // `9000` and `[::]:9000` listen on all addresses.
            false => port(listen).is_some() && port(listen) == port(address),
        }
    }
}

/// Resolves links: Debian's `/run/php/php-fpm.sock` is a link to the socket of one PHP version, and `/var/run` is
/// `/run`.
fn canonical_socket_path(path: &str) -> PathBuf {
    let path = Path::new(path);
    std::fs::canonicalize(path).unwrap_or_else(|_| match path.strip_prefix("/var/run") {
        Ok(rest) => Path::new("/run").join(rest),
        Err(_) => path.to_owned(),
    })
}

/// Reads the pools of these files and of the files that they include. Each path is the main file of a php-fpm server of
/// its own, as on machines with several versions of PHP, where each version has a pool `www`. The second pool of a name
/// gets a number.
///
/// # Errors
/// Returns an error if a file or a line of it cannot be read.
pub fn read_pools(paths: &[PathBuf], ledger: &ImportLedger) -> Result<Vec<FpmPool>, ImportError> {
    let mut reader = FpmReader::new(ledger);
    let mut all: Vec<FpmPool> = Vec::new();
    for path in paths {
        reader.section.clear();
        reader.main_file.clone_from(path);
        reader.file(path, &IncludeChain::root(path))?;
        for mut pool in reader.pools.drain(..) {
            let numbered = (2..).map(|number| format!("{}_{number}", pool.name));
            let mut names = [pool.name.clone()].into_iter().chain(numbered);
            let is_free = |name: &String| !all.iter().any(|known| known.name == *name);
            pool.name = names.find(is_free).unwrap_or_default();
            all.push(pool);
        }
    }
    Ok(all)
}

/// Reads the pools of a text; `text.name` is its name in messages.
///
/// # Errors
/// Returns an error if a line of it, or a file that it includes, cannot be read.
pub fn parse_pools(text: &SourceText, ledger: &ImportLedger) -> Result<Vec<FpmPool>, ImportError> {
    let mut reader = FpmReader::new(ledger);
    reader.text(text, Path::new("/"), &IncludeChain::default())?;
    Ok(reader.pools)
}

struct FpmReader<'a> {
    files: SourceReader,
    ledger: &'a ImportLedger,
    pools: Vec<FpmPool>,
    section: String,
    main_file: PathBuf,
}

impl<'a> FpmReader<'a> {
    fn new(ledger: &'a ImportLedger) -> FpmReader<'a> {
        FpmReader {
            files: SourceReader::default(),
            ledger,
            pools: Vec::new(),
            section: String::new(),
            main_file: PathBuf::new(),
        }
    }

    fn file(&mut self, path: &Path, chain: &IncludeChain) -> Result<(), ImportError> {
        self.ledger.record_file(path);
        let text = self.files.read(path)?;
        self.text(&text, path, chain)
    }

    fn text(
        &mut self,
        text: &SourceText,
        path: &Path,
        chain: &IncludeChain,
    ) -> Result<(), ImportError> {
        for (number, line) in text.text.lines().enumerate() {
            let place = SourceLine {
                file: text.name.clone(),
                line: number + 1,
            };
            self.line(line.trim(), &place, path, chain)?;
        }
        Ok(())
    }

    fn line(
        &mut self,
        line: &str,
        place: &SourceLine,
        path: &Path,
        chain: &IncludeChain,
    ) -> Result<(), ImportError> {
        if line.is_empty() || line.starts_with([';', '#']) {
            return Ok(());
        }
        if let Some(name) = line.strip_prefix('[') {
            let Some((name, _)) = name.split_once(']') else {
                return Err(ImportError::at(place, "`[` is not closed by `]`"));
            };
            self.section = name.trim().to_owned();
            let known = self.pools.iter().any(|pool| pool.name == self.section);
            let id = self
                .ledger
                .enter(place.clone(), format!("[{}]", self.section));
            self.ledger.mark_carried(id);
            if self.section != "global" && !known {
                self.pools.push(FpmPool {
                    name: self.section.clone(),
                    place: place.clone(),
                    id,
                    lines: Vec::new(),
                    main_file: self.main_file.clone(),
                });
            }
            return Ok(());
        }
        let Some((key, value)) = line.split_once('=') else {
            return Err(ImportError::at(
                place,
                "`KEY = VALUE` or `[POOL]` is expected here",
            ));
        };
        let value = unquoted(value.trim()).replace("$pool", &self.section);
        let (key, name) = match key.trim().split_once('[') {
            Some((key, name)) => (key.trim(), Some(name.trim_end_matches(']').to_owned())),
            None => (key.trim(), None),
        };
        let id = self.ledger.enter(
            place.clone(),
            crate::directive::display_text(line, &[], false),
        );
        if key == "include" {
            return self.include(&value, id, place, path, chain);
        }
        let line = FpmLine {
            key: key.to_owned(),
            name,
            value,
            place: place.clone(),
            id,
        };
        match self.pools.iter_mut().find(|pool| pool.name == self.section) {
            Some(pool) => pool.lines.push(line),
            None => record_global_line(&line, self.ledger),
        }
        Ok(())
    }

    fn include(
        &mut self,
        pattern: &str,
        id: EntryId,
        place: &SourceLine,
        path: &Path,
        chain: &IncludeChain,
    ) -> Result<(), ImportError> {
        // Relative patterns are resolved against php-fpm's installation prefix: `/usr/local/etc/php-fpm.conf` includes
        // `etc/php-fpm.d/*.conf`.
        let bases = path.ancestors().skip(1);
        let mut found = bases.map(|base| match is_pattern(pattern) {
            true => glob_files(&base.join(pattern)),
            false => vec![base.join(pattern)]
                .into_iter()
                .filter(|path| path.exists())
                .collect(),
        });
        let paths = found.find(|paths| !paths.is_empty()).unwrap_or_default();
        if paths.is_empty() && !is_pattern(pattern) {
            let why = format!("{pattern} cannot be read: No such file");
            return Err(ImportError::at(place, why));
        }
        if paths.is_empty() {
            self.ledger.mark_missing(id, "there is no such file");
        }
        let section = self.section.clone();
        for path in paths {
            let chain = chain
                .push(&path)
                .map_err(|why| ImportError::at(place, why))?;
            self.file(&path, &chain)?;
        }
        self.section = section;
        self.ledger.mark_irrelevant(id, INCLUDED);
        Ok(())
    }
}

/// Removes the quotes around a value, or a trailing comment.
fn unquoted(value: &str) -> String {
    for quote in ['"', '\''] {
        if let Some(rest) = value.strip_prefix(quote)
            && let Some((inner, _)) = rest.split_once(quote)
        {
            return inner.to_owned();
        }
    }
    value
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Records the outcome of a line of `[global]`.
fn record_global_line(line: &FpmLine, ledger: &ImportLedger) {
    match line.key.as_str() {
        "pid" | "daemonize" | "systemd_interval" | "events.mechanism" | "syslog.facility"
        | "syslog.ident" | "log_limit" | "log_buffering" | "process.priority" => {
            ledger.mark_irrelevant(
                line.id,
                "php-fpm is not needed: Howdah runs PHP's processes itself",
            );
        }
        "error_log" | "log_level" => {
            ledger.mark_irrelevant(line.id, "PHP's messages go into Howdah's own log");
        }
        "emergency_restart_threshold"
        | "emergency_restart_interval"
        | "process_control_timeout" => {
            ledger.mark_irrelevant(
                line.id,
                "processes that die are replaced, and a pool that dies is started again",
            );
        }
        "process.max" => ledger.mark_missing(
            line.id,
            "each pool has its own max_children: choose values so that the machine can run all processes at the same time",
        ),
        "rlimit_files" | "rlimit_core" => {
            ledger.mark_missing(line.id, "use LimitNOFILE= and LimitCORE= in howdah.service")
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn pools_are_read_with_included_files() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let main = write("fpm.conf", "[global]\npid = /run/x\ninclude=*.pool\n");
        write(
            "a.pool",
            "[a]\nlisten = /run/$pool.sock\npm = static ; always\n",
        );
        write(
            "b.pool",
            "[b]\nlisten = 9001\nphp_admin_value[error_log] = \"/x;y\"\n",
        );
        let ledger = ImportLedger::default();
        let pools = read_pools(std::slice::from_ref(&main), &ledger).unwrap();
        assert_eq!(pools[0].value("listen"), Some("/run/a.sock"));
        assert_eq!(pools[0].value("pm"), Some("static"));
        assert!(pools[0].listens_at("/run/a.sock"));
        assert!(pools[1].listens_at("127.0.0.1:9001"));
        assert_eq!(pools[1].lines[1].name.as_deref(), Some("error_log"));
        assert_eq!(pools[1].lines[1].value, "/x;y");
        let bad = write("c.conf", "[a]\n\nlisten\n");
        let why = read_pools(&[bad], &ledger).unwrap_err().to_string();
        assert!(why.contains("c.conf:3: `KEY = VALUE`"), "{why}");
        let other = write("d.conf", "[a]\nlisten = /run/other.sock\n");
        let both = read_pools(&[main.clone(), other.clone()], &ledger).unwrap();
        let names = both.iter().map(|pool| pool.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["a", "b", "a_2"]);
        assert_eq!(both[0].value("listen"), Some("/run/a.sock"));
        assert_eq!(both[2].value("listen"), Some("/run/other.sock"));
        assert_eq!(both[2].main_file, other);
        write("a.pool", "include = fpm.conf\n");
        let why = read_pools(&[main], &ledger).unwrap_err().to_string();
        assert!(why.contains("a.pool:1: IncludeLoop"), "{why}");
    }
}
