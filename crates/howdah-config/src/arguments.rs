//! The command line. This module only parses the arguments. Their values are checked together with the configuration,
//! by the same code and with the same messages.
//!
//! Each group of commands has a file of its own. This file has the list of commands, and the arguments that belong to
//! none of the groups.

mod cache;
mod cert;
mod check;
// Only the program `howdah-import` reads the values of most options.
#[allow(dead_code)]
#[path = "../../howdah-import/src/bin/howdah-import/arguments.rs"]
mod import;
mod init;
mod job;
mod php;
mod serve;
mod server;
// Only the program `howdah-takeover` reads the values.
#[allow(dead_code)]
#[path = "../../howdah-takeover/src/bin/howdah-takeover/arguments.rs"]
mod takeover;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use cache::{CacheArguments, CacheCommand};
pub use cert::{CertArguments, CertCommand, CertTarget};
pub use check::{CheckArguments, ExplainArguments, ModesArguments};
pub use import::{ImportArguments, ImportCommand};
pub use init::InitArguments;
pub use job::{JobArguments, JobCommand, JobTarget};
pub use php::{PhpArguments, RunArguments, WarmArguments};
pub use serve::{ChildArguments, ServeArguments, SpawnerArguments};
pub use server::{DashboardArguments, ServerTarget, StatusArguments, StopArguments};
pub use takeover::TakeoverArguments;

/// Serves PHP applications: static files, and PHP in isolated processes.
#[derive(Debug, Parser)]
#[command(
    name = "howdah",
    disable_version_flag = true,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    override_usage = "howdah <COMMAND>",
    max_term_width = 100,
    after_help = "Examples:\n  \
                  howdah serve /var/www/site --domain example.org\n  \
                  howdah init /var/www/site\n\n\
                  Exit codes: 0 done, 1 failed, 2 command line, 3 configuration, 4 PHP missing or not usable, \
                  5 address in use or not permitted, 6 no server to talk to, 7 howdah-bench, howdah-import or \
                  howdah-takeover missing"
)]
pub struct CommandLineArguments {
    /// Print the versions of Howdah and of PHP
    #[arg(short = 'V', long)]
    pub version: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Option<HowdahCommand>,
}

/// Options of other servers and of former versions, with what to use instead.
const OTHER_SERVERS_OPTIONS: &[(&[&str], &str)] = &[
    (
        &["--port", "-p", "-P"],
        "the port is part of the address: --listen 8080 (this machine only) or --listen :8080 (all addresses)",
    ),
    (
        &["--host", "--bind", "-b", "--address", "-l", "-S"],
        "use --listen for the address: --listen 127.0.0.1:8080",
    ),
    (
        &["--root", "--docroot", "--document-root", "-t", "--dir"],
        "write the directory without an option: howdah serve DIR",
    ),
    (&["--workers", "-w", "--processes"], "--children N"),
    (
        &["--ini", "-c"],
        "use --php-ini FILE for php.ini, or --config FILE for Howdah's own configuration",
    ),
    (
        &["--route"],
        "use howdah explain URL, which shows how a request is routed, and why",
    ),
    (
        &["--daemon", "--daemonize", "-D"],
        "howdah runs in the foreground; let a service manager start it (packaging/howdah.service)",
    ),
];

impl CommandLineArguments {
    /// Parses the command line. If it has a mistake, prints the mistake and exits.
    pub fn read() -> CommandLineArguments {
        CommandLineArguments::try_parse().unwrap_or_else(|mut error| {
            replace_tip(&mut error);
            error.exit()
        })
    }
}

/// Replaces clap's own tip, which would be how to pass the option as a value, or an option with a similar name.
fn replace_tip(error: &mut clap::Error) {
    use clap::error::{ContextKind, ContextValue};
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else {
        return;
    };
    let known = OTHER_SERVERS_OPTIONS
        .iter()
        .find(|(names, _)| names.contains(&given.as_str()));
    if let Some((_, meant)) = known {
        error.remove(ContextKind::SuggestedArg);
        let tip = ContextValue::StyledStrs(vec![(*meant).to_owned().into()]);
        error.insert(ContextKind::Suggested, tip);
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum HowdahCommand {
    /// Serve a directory, or the sites of a configuration file.
    #[command(after_help = "Examples:\n  \
        howdah serve public --listen :8080\n  \
        howdah serve /var/www/site --domain example.org\n  \
        howdah serve --config /etc/howdah/howdah.toml")]
    Serve(Box<ServeArguments>),
    /// Write a commented howdah.toml, and a unit for systemd, for the application in a directory.
    #[command(after_help = "Examples:\n  \
        howdah init\n  \
        howdah init /srv/shop\n  \
        howdah init /srv/shop -o /etc/howdah/sites.d/shop.toml\n\n\
        The command asks no questions and starts nothing. It prints what it found, what it wrote and the next command.")]
    Init(InitArguments),
    /// Run a script written for Swoole's HTTP server.
    #[command(after_help = "Example:\n  howdah run --listen :9501 server.php")]
    Run(RunArguments),
    /// Run PHP on the command line, and report its database writes to the server's page cache.
    #[command(
        after_help = "If no server is running, the command joins the [fleet] of --config when its script writes.\n\n\
        Examples:\n  howdah php wp-cron.php\n  \
        howdah php --config /etc/howdah/howdah.toml artisan queue:work"
    )]
    Php(Box<PhpArguments>),
    /// Compile an application's PHP files into opcache's file cache, for a container image.
    #[command(after_help = "Example:\n  \
        howdah warm /app -d opcache.file_cache=/var/cache/howdah/opcache")]
    Warm(WarmArguments),
    /// Check a configuration file and report all mistakes, or show what `serve DIR` would choose.
    #[command(after_help = "Examples:\n  \
        howdah check --config howdah.toml\n  \
        howdah check --explain queue_size")]
    Check(CheckArguments),
    /// Write a howdah.toml from the configuration of nginx and php-fpm, or compare two servers.
    #[command(after_help = "Examples:\n  \
        howdah import nginx /etc/nginx/nginx.conf -o howdah.toml\n  \
        howdah import --verify /var/log/nginx/access.log --old http://127.0.0.1:80 --host example.org")]
    Import(Box<ImportArguments>),
    /// Move this machine from nginx, Apache and php-fpm to Howdah: plan, try, switch, and roll back.
    #[command(after_help = "Examples:\n  \
        howdah takeover plan\n  \
        howdah takeover try")]
    Takeover(Box<TakeoverArguments>),
    /// Explain which rules match a request, in which order, and what produces the response. Runs no script.
    #[command(after_help = "Examples:\n  \
        howdah explain https://example.org/wp-login.php -X POST --from 198.51.100.7\n  \
        howdah explain /shop/ -H 'Cookie: lang=de' --config howdah.toml --json")]
    Explain(ExplainArguments),
    /// Show what the server and its PHP processes are doing.
    #[command(after_help = "Example:\n  howdah status --watch")]
    Status(StatusArguments),
    /// Show the live status in a browser, with buttons to purge pages and to reload.
    #[command(after_help = "Examples:\n  \
        howdah dashboard\n  \
        ssh -L 8090:127.0.0.1:8090 example.org howdah dashboard --listen 8090")]
    Dashboard(DashboardArguments),
    /// Load new code, php.ini and configuration without dropping a request.
    #[command(after_help = "Example, after a deployment:\n  howdah reload")]
    Reload(ServerTarget),
    /// Open the log files again, after they have been renamed.
    #[command(after_help = "Example, after a rotation of the logs:\n  howdah reopen")]
    Reopen(ServerTarget),
    /// Replace the running program with the one that is installed now, without dropping a request.
    #[command(after_help = "Example, after a new version has been installed:\n  howdah upgrade")]
    Upgrade(ServerTarget),
    /// Purge pages from the page cache, or explain why a page is not in the cache.
    #[command(after_help = "Example:\n  howdah cache purge --tag news")]
    Cache(CacheArguments),
    /// List, order, renew and remove the certificates that Howdah manages.
    #[command(after_help = "Example:\n  howdah cert list")]
    Cert(CertArguments),
    /// List background jobs, start and stop them.
    #[command(after_help = "Example:\n  howdah job list")]
    Job(JobArguments),
    /// Stop the server when its running requests are finished.
    #[command(after_help = "Example:\n  howdah stop --timeout 30s")]
    Stop(StopArguments),
    /// Compare Howdah with other servers on this machine, in benchmarks or with your own application.
    // This command and the next are only for the list: `howdah-bench` implements them (`commands::external`).
    Compare,
    /// Measure a web server, and report how reliable the figures are (takes ab's options).
    Bench,
    /// Show the modes in which Howdah can run PHP, and which of them work on this machine.
    #[command(after_help = "Example:\n  howdah modes")]
    Modes(ModesArguments),
    /// Print the versions of Howdah and of PHP.
    #[command(after_help = "Example:\n  howdah version")]
    Version,
    /// Print shell completions for this command line.
    #[command(after_help = "Example:\n  howdah completion bash > /etc/bash_completion.d/howdah")]
    Completion(CompletionArguments),
    /// Write the manual pages, for packages.
    #[command(name = "man", hide = true)]
    Man(ManArguments),
    /// The process that handles HTTP; started by the master.
    #[command(name = "front", hide = true)]
    Front(ChildArguments),
    /// The process that orders certificates; started by the master.
    #[command(name = "certificates", hide = true)]
    Certificates(ChildArguments),
    /// The process that runs background jobs; started by the master.
    #[command(name = "jobs", hide = true)]
    Jobs(ChildArguments),
    /// The process that starts a pool's external programs; started by the master.
    #[command(name = "spawner", hide = true)]
    Spawner(Box<SpawnerArguments>),
}

/// `howdah completion`
#[derive(Args, Debug)]
pub struct CompletionArguments {
    /// The shell.
    pub shell: clap_complete::Shell,
}

/// `howdah man`
#[derive(Args, Debug)]
pub struct ManArguments {
    /// The directory to write the pages to.
    pub directory: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::kind::OptionKind;
    use crate::options;

    #[test]
    fn help_names_every_word_an_option_takes() {
        let mut command = CommandLineArguments::command();
        let serve = command.find_subcommand_mut("serve").unwrap();
        let help = serve.render_help().to_string();
        let help: Vec<&str> = help.split_whitespace().collect();
        let help = help.join(" ");
        for (option, section, key) in [("--mode", "pool.*", "mode"), ("--cache", "site", "cache")] {
            let (_, rest) = help.split_once(&format!("{option} <")).unwrap();
            let (about, _) = rest.split_once("[default").unwrap();
            let Some(OptionKind::Word(words)) = options::find(section, key).map(|spec| spec.kind)
            else {
                panic!("{section} {key} takes words");
            };
            for word in words {
                assert!(about.contains(&format!("`{word}`")), "{word} in {about}");
            }
        }
    }

    #[test]
    fn help_of_every_command_has_an_example() {
        fn look(command: &clap::Command, name: &str, without: &mut Vec<String>) {
            for command in command
                .get_subcommands()
                .filter(|command| !command.is_hide_set())
            {
                let name = format!("{name} {}", command.get_name());
                let after = command.get_after_help().map(ToString::to_string);
                if !after.is_some_and(|after| after.contains(&format!("\n  {name}"))) {
                    without.push(name.clone());
                }
                look(command, &name, without);
            }
        }
        let mut without = Vec::new();
        look(&CommandLineArguments::command(), "howdah", &mut without);
        // These commands print the help of howdah-bench.
        without.retain(|name| !["howdah compare", "howdah bench"].contains(&name.as_str()));
        assert!(without.is_empty(), "{without:?}");
    }

    #[test]
    fn hint_names_our_option_for_one_of_another_server() {
        for (given, meant) in [
            ("--port", "--listen 8080"),
            ("-S", "--listen 127.0.0.1:8080"),
            ("--docroot", "howdah serve DIR"),
            ("--workers", "--children N"),
        ] {
            let mut error =
                CommandLineArguments::try_parse_from(["howdah", "serve", given, "8080"])
                    .unwrap_err();
            replace_tip(&mut error);
            let text = error.to_string();
            assert!(text.contains("tip: ") && text.contains(meant), "{text}");
            assert!(!text.contains("as a value"), "{text}");
        }
        let mut error =
            CommandLineArguments::try_parse_from(["howdah", "serve", "--chlidren"]).unwrap_err();
        replace_tip(&mut error);
        assert!(error.to_string().contains("'--children'"), "{error}");
    }
}
