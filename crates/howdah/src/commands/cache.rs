//! `howdah cache purge`, `howdah cache forget` and `howdah cache explain`.

use std::process::ExitCode;
use std::time::Duration;

use howdah_server::cache::admin::AdminCommand;

use super::client::{ResponseWait, send_request};
use crate::exit;
use crate::master::control::ControlRequest;
use howdah_config::arguments::{CacheArguments, CacheCommand, ServerTarget};

/// Runs `howdah cache …`.
pub fn run(cache: CacheArguments) -> ExitCode {
    match cache.command {
        CacheCommand::Purge(purge) => request_and_print(
            &purge.target,
            AdminCommand::Purge {
                site: purge.site,
                all: purge.all,
                urls: purge.urls,
                tags: purge.tag,
                soft: purge.soft,
            },
        ),
        CacheCommand::Forget(forget) => request_and_print(
            &forget.target,
            AdminCommand::Forget {
                member: forget.member,
            },
        ),
        CacheCommand::Explain(explain) => request_and_print(
            &explain.target,
            AdminCommand::Explain {
                url: explain.url,
                fields: explain.header,
                json: explain.json,
            },
        ),
    }
}

fn request_and_print(target: &ServerTarget, question: AdminCommand) -> ExitCode {
    let question = ControlRequest::Cache { ask: question };
    let answer = match send_request(
        target,
        &question,
        ResponseWait::AtMost(Duration::from_secs(10)),
    ) {
        Ok(answer) => answer,
        Err(why) => {
            eprintln!("howdah: {why}");
            return exit::no_server();
        }
    };
    let word = |key: &str| Some(answer.status.as_ref()?.get(key)?.as_str()?.to_owned());
    if let Some(text) = word("cache") {
        return super::print_output(text.trim_end());
    }
    let why = word("mistake").unwrap_or(answer.message);
    eprintln!("howdah: {why}");
    exit::failed()
}
