//! `howdah modes`: shows the modes in which PHP can be run, with their requirements, cost and isolation, and whether
//! this machine meets the requirements. It only checks files and sockets, and starts PHP to find out whether Howdah's
//! PHP library loads.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use crate::exit;
use howdah_config::arguments::ModesArguments;
use howdah_config::php::{self, PhpUse};
use howdah_config::programs;

/// A mode, and whether it works on this machine.
#[derive(Debug, Serialize)]
struct ModeRow {
    mode: &'static str,
    /// A description in one sentence.
    what: &'static str,
    needs: &'static str,
    costs: &'static str,
    isolates: &'static str,
    /// Whether this machine meets the requirements.
    runs: bool,
    /// What was found, or what is missing.
    here: String,
    /// The command that installs what is missing, on Debian.
    install: Option<&'static str>,
    /// The command that selects the mode.
    command: &'static str,
}

/// Whether a requirement is met, with an explanation.
struct Availability {
    runs: bool,
    here: String,
}

/// Runs `howdah modes`.
pub fn run(arguments: &ModesArguments) -> ExitCode {
    let rows = rows(&howdah_php(), &php_cgi(), &php_fpm(Path::new("/run")));
    if arguments.json {
        match serde_json::to_string_pretty(&rows) {
            Ok(text) => super::print_output(&text),
            Err(error) => {
                eprintln!("howdah: {error}");
                exit::failed()
            }
        }
    } else {
        super::print_output(&table(&rows))
    }
}

fn howdah_php() -> Availability {
    let found = php::find(None, PhpUse::Serve).and_then(|program| {
        let version = php::version(&program)?;
        Ok(format!("PHP {} ({})", version.php, program))
    });
    match found {
        Ok(here) => Availability { runs: true, here },
        Err(why) => Availability {
            runs: false,
            here: why.to_string(),
        },
    }
}

fn php_cgi() -> Availability {
    match programs::find_executable("php-cgi") {
        Some(path) => Availability {
            runs: true,
            here: path.display().to_string(),
        },
        None => Availability {
            runs: false,
            here: "there is no php-cgi in PATH".to_owned(),
        },
    }
}

/// Looks for php-fpm's sockets in the directories that distributions use.
fn php_fpm(run: &Path) -> Availability {
    let directories = [run.join("php"), run.join("php-fpm"), run.to_owned()];
    let entries = directories.iter().filter_map(|d| std::fs::read_dir(d).ok());
    let sockets: Vec<PathBuf> = entries
        .flatten()
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.contains("php") || name.contains("fpm")
        })
        .collect();
    let answering: Vec<String> = sockets
        .iter()
        .filter(|path| std::os::unix::net::UnixStream::connect(path).is_ok())
        .map(|path| format!("unix:{}", path.display()))
        .collect();
    let here = match (answering.is_empty(), sockets.first()) {
        (false, _) => answering.join(", "),
        (true, Some(path)) => format!(
            "{} exists, but no process accepts connections",
            path.display()
        ),
        (true, None) => format!(
            "there is no php-fpm socket below {}; you can name a socket in another directory",
            run.display()
        ),
    };
    Availability {
        runs: !answering.is_empty(),
        here,
    }
}

fn rows(embed: &Availability, cgi: &Availability, fpm: &Availability) -> Vec<ModeRow> {
    let row = |mode, found: &Availability, install| ModeRow {
        mode,
        what: "",
        needs: "",
        costs: "",
        isolates: "",
        runs: found.runs,
        here: found.here.clone(),
        install: (!found.runs).then_some(install),
        command: "",
    };
    const CGI: &str = "apt install php-cgi";
    vec![
        ModeRow {
            what: "PHP in processes that Howdah forks, one request at a time in each",
            needs: "php-fpm, php-cgi or php on this machine; no PHP service has to run",
            costs: "the least of all modes except worker: requests are passed in shared memory",
            isolates: "a crash or a hang affects only one request; each pool has its own user, php.ini and opcache",
            command: "howdah serve DIR",
            ..row("embed", embed, CGI)
        },
        ModeRow {
            what: "like embed, but the application stays in memory between requests",
            needs: "the same as embed, and a worker script (Symfony, Laravel Octane, FrankenPHP's interface)",
            costs: "memory for the loaded application, but no time to start it for each request",
            isolates: "processes are isolated as in embed; visitors share what the application keeps in memory",
            command: "howdah serve --worker SCRIPT DIR",
            ..row("worker", embed, CGI)
        },
        ModeRow {
            what: "a script written for Swoole's HTTP server",
            needs: "the same as embed",
            costs: "the same as worker",
            isolates: "the same as worker",
            command: "howdah run SCRIPT",
            ..row("swoole", embed, CGI)
        },
        ModeRow {
            what: "PHP in a FastCGI server that you run: php-fpm, php-cgi or another",
            needs: "the server's address",
            costs: "each request is passed over a socket, and wakes two processes",
            isolates: "as php-fpm is configured; it may run on another machine",
            command: "howdah serve --mode fastcgi --fastcgi unix:/run/php/php-fpm.sock DIR",
            ..row("fastcgi", fpm, "apt install php-fpm")
        },
        ModeRow {
            what: "FastCGI programs that Howdah starts and supervises, like mod_fcgid",
            needs: "php-cgi, or another program that speaks FastCGI",
            costs: "the same as fastcgi",
            isolates: "each process runs one request at a time; the processes share one opcache (`processes = \"shared\"`), or each has one of its own (`\"independent\"`)",
            command: "howdah serve --mode pool DIR",
            ..row("pool", cgi, CGI)
        },
        ModeRow {
            what: "a process for each request: PHP, Perl, Python, C, shell",
            needs: "php-cgi for PHP; nothing for other programs",
            costs: "a process is started for each request, which takes tens of milliseconds for PHP",
            isolates: "nothing remains after a request",
            command: "howdah serve --mode cgi DIR",
            ..row("cgi", cgi, CGI)
        },
    ]
}

fn table(rows: &[ModeRow]) -> String {
    let mut out = String::new();
    for row in rows {
        let state = if row.runs { "yes" } else { "no " };
        out += &format!("{state}  {:<8} {}\n", row.mode, row.what);
        for (name, text) in [
            ("needs", row.needs),
            ("costs", row.costs),
            ("isolates", row.isolates),
            ("here", &*row.here),
            ("install", row.install.unwrap_or_default()),
            ("use", row.command),
        ] {
            if !text.is_empty() {
                out += &format!("       {name:<9} {text}\n");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(runs: bool) -> Availability {
        Availability {
            runs,
            here: "found".to_owned(),
        }
    }

    #[test]
    fn modes_name_the_command_that_installs_what_is_missing() {
        let rows = rows(&found(true), &found(false), &found(false));
        let install = |mode: &str| rows.iter().find(|row| row.mode == mode).unwrap().install;
        assert_eq!(install("embed"), None);
        assert_eq!(install("pool"), Some("apt install php-cgi"));
        assert_eq!(install("fastcgi"), Some("apt install php-fpm"));
        let text = table(&rows);
        assert!(text.contains("no   pool "), "{text}");
        assert!(text.contains("yes  embed"), "{text}");
    }

    #[test]
    fn modes_count_a_php_fpm_socket_only_if_it_accepts_connections() {
        let directory = std::env::temp_dir().join(format!("howdah-modes-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("php")).unwrap();
        assert!(!php_fpm(&directory).runs);
        let path = directory.join("php/php8.2-fpm.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let found = php_fpm(&directory);
        assert!(
            found.runs && found.here.contains("php8.2-fpm.sock"),
            "{}",
            found.here
        );
        // Closing it is not enough, because a program that another test starts has all our descriptors until its exec.
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        assert!(
            php_fpm(&directory)
                .here
                .ends_with("no process accepts connections")
        );
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
