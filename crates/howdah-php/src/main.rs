//! `howdah-php`: the PHP process of a pool. The front starts it as a *zygote*, which performs PHP's module startup once
//! and then forks *children*. A child takes one script request at a time from shared memory and runs it. This process
//! knows no HTTP, opens no sockets and reads no configuration file: the front decides, and this process runs PHP. The
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

use std::io::Read;
use std::process::ExitCode;

use howdah_os::output::write_stderr_line;

use arguments::Invocation;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
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
            ExitCode::SUCCESS
        }
        Ok(Invocation::Serve(options)) => zygote::run(options),
        Ok(Invocation::TryStart(options, seconds)) => zygote::try_start(options, seconds),
        Err(why) => {
            write_stderr_line(&format!("howdah-php: {why}"));
            ExitCode::from(2)
        }
    }
}

/// Returns the output of `--version`: one fact per line, as `name value`.
fn version() -> String {
    format!(
        "howdah-php {}\nphp {}\nshm {}\nthread-safety NTS",
        env!("CARGO_PKG_VERSION"),
        ffi::php_version(),
        howdah_proto::shm::VERSION
    )
}
