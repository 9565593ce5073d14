//! `howdah`: the server's program. It contains the commands, the configuration, the master process, and the code that
//! connects the parts of the front. The other crates do the serving.
//!
//! - [`arguments`]: the command line; [`commands`]: the commands, many of which communicate with a running server.
//! - [`config`]: from text to typed settings.
//! - [`master`]: `howdah serve`; [`front`]: the process it starts; [`link`]: the channel between them.
//! - [`certificates`]: the process that orders certificates, based on `howdah_acme`.
//! - [`jobs`]: the process that runs background jobs; [`effects`]: the database writes of PHP on the command line;
//!   [`error_log`]: the logs as each process opens them.
//! - [`spawner`]: the process that starts external programs, based on `howdah_executor::programs`.
//! - [`php`]: finds `howdah-php`; [`installed`]: the locations of our programs; [`exit`]: exit codes; [`sys`]: calls to
//!   the operating system.

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

/// Counts the allocated memory, so the memory of the front can be limited; see [`howdah_http::memory`].
#[global_allocator]
static ALLOCATOR: howdah_http::memory::Counting = howdah_http::memory::Counting;

fn main() -> ExitCode {
    // The front and the spawners are executed as /proc/self/exe. Without this, they would be named `exe` in top, ps and
    // pgrep.
    let _ = rustix::thread::set_name(c"howdah");
    if let Some(arguments) = commands::external::arguments(std::env::args_os().skip(1).collect()) {
        return commands::external::run(arguments);
    }
    let Some(command) = Arguments::read().command else {
        // `--version` was given; without any argument, clap prints the help.
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
