//! `howdah cache purge`, `howdah cache forget` and `howdah cache explain`.

use std::process::ExitCode;
use std::time::Duration;

use howdah_server::cache::admin::AdminCommand;

use super::client::{Wait, ask};
use crate::arguments::{Cache, CacheCommand, Target};
use crate::exit;
use crate::master::control::Ask;

/// Runs `howdah cache …`.
pub fn run(cache: Cache) -> ExitCode {
    match cache.command {
        CacheCommand::Purge(purge) => ask_and_print(
            &purge.target,
            AdminCommand::Purge {
                site: purge.site,
                all: purge.all,
                urls: purge.urls,
                tags: purge.tag,
                soft: purge.soft,
            },
        ),
        CacheCommand::Forget(forget) => ask_and_print(
            &forget.target,
            AdminCommand::Forget {
                member: forget.member,
            },
        ),
        CacheCommand::Explain(explain) => ask_and_print(
            &explain.target,
            AdminCommand::Explain {
                url: explain.url,
                fields: explain.header,
                json: explain.json,
            },
        ),
    }
}

fn ask_and_print(target: &Target, question: AdminCommand) -> ExitCode {
    let question = Ask::Cache { ask: question };
    let answer = match ask(target, &question, Wait::AtMost(Duration::from_secs(10))) {
        Ok(answer) => answer,
        Err(why) => {
            eprintln!("howdah: {why}");
            return exit::no_server();
        }
    };
    let word = |key: &str| Some(answer.status.as_ref()?.get(key)?.as_str()?.to_owned());
    if let Some(text) = word("cache") {
        return super::answer(text.trim_end());
    }
    let why = word("mistake").unwrap_or(answer.message);
    eprintln!("howdah: {why}");
    exit::failed()
}
