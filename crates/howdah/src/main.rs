//! `howdah`: the server's program. It contains the commands, the master process, and the code that connects the parts
//! of the front. `howdah-config` reads the command line and the configuration; the other crates do the serving.
//!
//! - [`commands`]: the commands, many of which communicate with a running server.
//! - [`master`]: `howdah serve`; [`front`]: the process it starts; [`process_channel`]: the channel between them.
//! - [`certificates`]: the process that orders certificates, based on `howdah_acme`.
//! - [`jobs`]: the process that runs background jobs; [`effects`]: the database writes of PHP on the command line;
//!   [`error_log`]: the logs as each process opens them.
//! - [`spawner`]: the process that starts external programs, based on `howdah_executor::programs`.
//! - [`exit`]: exit codes; [`sys`]: calls to the operating system.

#![forbid(unsafe_code)]

mod certificates;
mod child;
mod commands;
mod effects;
mod error_log;
mod exit;
mod front;
mod jobs;
mod master;
mod process_channel;
mod spawner;
mod sys;

use std::process::ExitCode;

use howdah_config::arguments::{CommandLineArguments, HowdahCommand};

/// Counts the allocated memory, so the memory of the front can be limited; see [`howdah_http::memory`].
#[global_allocator]
static ALLOCATOR: howdah_http::memory::CountingAllocator = howdah_http::memory::CountingAllocator;

fn main() -> ExitCode {
    // The front and the spawners are executed as /proc/self/exe. Without this, they would be named `exe` in top, ps and
    // pgrep.
    let _ = rustix::thread::set_name(c"howdah");
    if let Some(arguments) = commands::external::arguments(std::env::args_os().skip(1).collect()) {
        return commands::external::BENCH.execute(arguments);
    }
    let Some(command) = CommandLineArguments::read().command else {
        // `--version` was given; without any argument, clap prints the help.
        return commands::version();
    };
    match command {
        HowdahCommand::Serve(serve) => master::serve(*serve),
        HowdahCommand::Front(front) => front::run(front.link),
        HowdahCommand::Certificates(arguments) => certificates::run(arguments.link),
        HowdahCommand::Jobs(arguments) => jobs::run(arguments.link),
        HowdahCommand::Spawner(arguments) => spawner::run(*arguments),
        HowdahCommand::Init(init) => commands::init::run(&init),
        HowdahCommand::Run(run) => commands::run::run(&run),
        HowdahCommand::Php(php) => commands::command_line::run(&php),
        HowdahCommand::Warm(warm) => commands::warm::run(&warm),
        HowdahCommand::Check(check) => commands::check::run(&check),
        HowdahCommand::Takeover(_) => {
            commands::external::TAKEOVER.execute(std::env::args_os().skip(2))
        }
        HowdahCommand::Import(import) => commands::import::run(&import),
        HowdahCommand::Explain(explain) => commands::explain::run(&explain),
        HowdahCommand::Status(status) => commands::status::run(&status),
        HowdahCommand::Dashboard(dashboard) => commands::dashboard::run(&dashboard),
        HowdahCommand::Cache(cache) => commands::cache::run(cache),
        HowdahCommand::Cert(cert) => commands::cert::run(cert),
        HowdahCommand::Job(job) => commands::job::run(job),
        HowdahCommand::Reload(target) => commands::lifecycle::reload(&target),
        HowdahCommand::Reopen(target) => commands::lifecycle::reopen(&target),
        HowdahCommand::Upgrade(target) => commands::lifecycle::upgrade(&target),
        HowdahCommand::Stop(stop) => commands::lifecycle::stop(&stop),
        HowdahCommand::Compare => commands::external::BENCH.execute(["compare"]),
        HowdahCommand::Bench => commands::external::BENCH.execute(["bench"]),
        HowdahCommand::Modes(modes) => commands::modes::run(&modes),
        HowdahCommand::Version => commands::version(),
        HowdahCommand::Completion(completion) => commands::shell::complete(&completion),
        HowdahCommand::Man(man) => commands::shell::manual(&man),
    }
}
