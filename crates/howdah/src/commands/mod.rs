//! The commands that talk to a running server, or to nobody.

pub mod bench;
pub mod cache;
pub mod check;
mod client;
pub mod command_line;
pub mod compare;
mod compare_own;
mod interrupt;
pub mod modes;
pub mod run;
pub mod status;
pub mod steer;
mod watch;

use std::process::ExitCode;

use crate::{exit, php};

/// `howdah version`
pub fn version() -> ExitCode {
    println!("howdah {}", env!("CARGO_PKG_VERSION"));
    let found = php::find(None).and_then(|program| {
        let version = php::check(&program)?;
        Ok((program, version))
    });
    match found {
        Ok((program, version)) => {
            println!(
                "php {} {} ({})",
                version.php,
                version.thread_safety,
                program.display()
            );
            exit::done()
        }
        Err(why) => {
            eprintln!("howdah: {why}");
            exit::php()
        }
    }
}
