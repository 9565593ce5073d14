//! `howdah`: the server's program. Commands, the configuration, the master process, and the wiring of
//! the front. What serves is in the other crates.
//!
//! - [`arguments`]: the command line; [`commands`]: what talks to a running server.
//! - [`config`]: from text to typed settings.
//! - [`master`]: `howdah serve`; [`front`]: the process it starts; [`link`]: the line between them.
//! - [`certificates`]: the process that orders certificates, around `howdah_acme`.
//! - [`jobs`]: the process that runs background jobs; [`effects`]: what PHP on a command line does to
//!   databases; [`error_log`]: logs as processes open them.
//! - [`spawner`]: the process that starts external programs, around `howdah_executor::programs`.
//! - [`php`]: finding `howdah-php`; [`installed`]: where programs of ours are;
//!   [`exit`]: exit codes; [`sys`]: the module with `unsafe`.

#![forbid(unsafe_code)]

mod arguments;
mod certificates;
mod child;
mod commands;
mod config;
mod effects;
mod error_log;
mod exit;
mod front;
mod installed;
mod jobs;
mod link;
mod master;
mod php;
mod spawner;
mod sys;

use std::process::ExitCode;

use arguments::{Arguments, Command};

/// Counts, so that the front can be bounded; see [`howdah_http::memory`].
#[global_allocator]
static ALLOCATOR: howdah_http::memory::Counting = howdah_http::memory::Counting;

fn main() -> ExitCode {
    // Front and spawners are executed as /proc/self/exe: they would be `exe` in top, ps and pgrep.
    let _ = rustix::thread::set_name(c"howdah");
    if let Some(arguments) = commands::external::arguments(std::env::args_os().skip(1).collect()) {
        return commands::external::run(arguments);
    }
    let Some(command) = Arguments::read().command else {
        // `--version`: nothing at all is answered with help.
        return commands::version();
    };
    match command {
        Command::Serve(serve) => master::serve(*serve),
        Command::Front(front) => front::run(front.link),
        Command::Certificates(arguments) => certificates::run(arguments.link),
        Command::Jobs(arguments) => jobs::run(arguments.link),
        Command::Spawner(arguments) => spawner::run(*arguments),
        Command::Init(init) => commands::init::run(&init),
        Command::Run(run) => commands::run::run(&run),
        Command::Php(php) => commands::command_line::run(&php),
        Command::Warm(warm) => commands::warm::run(&warm),
        Command::Check(check) => commands::check::run(&check),
        Command::Import(import) => commands::import::run(*import),
        Command::Explain(explain) => commands::explain::run(&explain),
        Command::Status(status) => commands::status::run(&status),
        Command::Dashboard(dashboard) => commands::dashboard::run(&dashboard),
        Command::Cache(cache) => commands::cache::run(cache),
        Command::Cert(cert) => commands::cert::run(cert),
        Command::Job(job) => commands::job::run(job),
        Command::Reload(target) => commands::lifecycle::reload(&target),
        Command::Upgrade(target) => commands::lifecycle::upgrade(&target),
        Command::Stop(stop) => commands::lifecycle::stop(&stop),
        Command::Compare => commands::external::run(["compare"]),
        Command::Bench => commands::external::run(["bench"]),
        Command::Modes(modes) => commands::modes::run(&modes),
        Command::Version => commands::version(),
        Command::Completion(completion) => commands::shell::complete(&completion),
        Command::Man(man) => commands::shell::manual(&man),
    }
}
