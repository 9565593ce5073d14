//! `howdah-php`: the PHP process of a pool. Started by the front as a *zygote*, which does PHP's
//! module startup once and then forks *children*; a child runs one script request at a time that
//! it takes from shared memory. No HTTP, no sockets, no configuration file here: the front
//! decides, this process runs PHP. The exceptions are [`run`] and [`cli`], which have no front.
//!
//! - [`arguments`]: the command line of a zygote; [`command_line`]: that of [`run`] and [`cli`].
//! - [`zygote`]: module startup, then a loop: fork, reap, signal, trace.
//! - [`child`]: claim, run, sleep; [`worker`]: a child that boots a script once for many requests.
//! - [`current_request`]: the response and the body of the request being run.
//! - [`identity`]: the user a pool runs as.
//! - [`cli`]: PHP as on a command line, for `howdah php`.
//! - [`run`]: scripts written for Swoole's HTTP server, which accept connections themselves.
//! - [`ffi`]: the border to the C shim (`shim/*.c`), which owns everything of PHP.
//! - [`sys`]: system calls. These two are the modules with `unsafe`, and their like in [`run`].

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

use howdah_os::output::line_to_stderr;

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
        Ok(Invocation::Try(options, seconds)) => zygote::try_start(options, seconds),
        Err(why) => {
            line_to_stderr(&format!("howdah-php: {why}"));
            ExitCode::from(2)
        }
    }
}

/// What `--version` says: one fact a line, `name value`.
fn version() -> String {
    format!(
        "howdah-php {}\nphp {}\nshm {}\nthread-safety NTS",
        env!("CARGO_PKG_VERSION"),
        ffi::php_version(),
        howdah_proto::shm::VERSION
    )
}
