//! `howdah-php`: the PHP process of a pool, as a library that is loaded into a PHP program of the machine
//! (`LD_PRELOAD`, `shim/core/host.c`). The front starts it as a *zygote*, which performs PHP's module startup once and
//! then forks *children*. A child takes one script request at a time from shared memory and runs it. This process knows
//! no HTTP, opens no sockets and reads no configuration file: the front decides, and this process runs PHP. The
//! exceptions are [`run`] and [`cli`], which have no front.
//!
//! - [`command_line`]: the parser of all command lines; [`arguments`]: the command line of a zygote.
//! - [`zygote`]: module startup, then a loop that forks, reaps, signals and traces children.
//! - [`child`]: claims a request, runs it, sleeps; [`worker`]: a child that boots a script once for many requests.
//! - [`current_request`]: the response and the body of the request being run.
//! - [`identity`]: the user that a pool runs as.
//! - [`cli`]: PHP as on a command line, for `howdah php`.
//! - [`run`]: scripts written for Swoole's HTTP server, which accept connections themselves.
//! - [`ffi`]: the boundary to the C shim (`shim/*/*.c`), which contains everything that touches PHP.
//! - [`sys`]: system calls. [`ffi`], [`sys`] and their counterparts in [`run`] are the only modules with `unsafe`.

#![deny(unsafe_code)]

mod arguments;
mod child;
mod cli;
mod command_line;
mod current_request;
mod ffi;
mod identity;
mod run;
mod shared_cache;
mod sys;
mod worker;
mod zygote;

use std::ffi::OsString;
use std::io::Read;

use howdah_os::output::write_stderr_line;

use arguments::Invocation;

/// The exit status of a process.
type ExitStatus = u8;

/// Runs in place of the `main` of the PHP program that loaded this library (`shim/core/host.c`). Returns the exit
/// status.
fn main(arguments: Vec<OsString>) -> ExitStatus {
    let mut arguments = arguments.into_iter().skip(1).peekable();
    if arguments.next_if(|first| first == "run").is_some() {
        return run::run(arguments);
    }
    if arguments.next_if(|first| first == "php").is_some() {
        return cli::run(arguments);
    }
    let stdin = || {
        let mut text = Vec::new();
        std::io::stdin().lock().read_to_end(&mut text).map(|_| text)
    };
    match arguments::parse(arguments, stdin) {
        Ok(Invocation::Version) => {
            println!("{}", version());
            0
        }
        Ok(Invocation::Serve(options)) => zygote::run(options),
        Ok(Invocation::TryStart(options, seconds)) => zygote::try_start(options, seconds),
        Err(why) => {
            write_stderr_line(&format!("howdah-php: {why}"));
            2
        }
    }
}

/// The name of this library in packages, by which `howdah` finds it for a PHP program.
const LIBRARY_NAME: &str = concat!("howdah-php-", env!("HOWDAH_PHP_BUILD"), ".so");

/// Returns the output of `--version`: one fact per line, as `name value`.
fn version() -> String {
    format!(
        "howdah-php {}\nlibrary {LIBRARY_NAME}\nshm {}",
        env!("CARGO_PKG_VERSION"),
        howdah_proto::shm::VERSION
    )
}
