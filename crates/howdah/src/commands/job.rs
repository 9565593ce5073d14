//! `howdah job`: background jobs of a running server.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use howdah_server::admin::jobs::{self, JobStatus};

use super::client::{Wait, ask};
use crate::arguments::{Job, JobCommand, JobTarget};
use crate::exit;
use crate::jobs::settings;
use crate::master::control::Ask;

/// How long the master may take for a response that needs no further work.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs `howdah job …`.
pub fn run(job: Job) -> ExitCode {
    match job.command {
        JobCommand::List(list) => {
            let question = Ask::Jobs { ask: None };
            let answer = match ask(&list.target, &question, Wait::AtMost(PATIENCE)) {
                Ok(answer) => answer,
                Err(why) => {
                    eprintln!("howdah: {why}");
                    return exit::no_server();
                }
            };
            if list.json {
                return super::answer(&serde_json::json!(answer.jobs).to_string());
            }
            super::answer(&shown(&answer.jobs))
        }
        JobCommand::Run(JobTarget { target, name }) => super::tell(ask(
            &target,
            &wanted(settings::JobCommand::Run { job: name }),
            Wait::WhileItLives,
        )),
        JobCommand::Stop(JobTarget { target, name }) => super::tell(ask(
            &target,
            &wanted(settings::JobCommand::Stop { job: name }),
            Wait::WhileItLives,
        )),
    }
}

fn wanted(command: settings::JobCommand) -> Ask {
    Ask::Jobs { ask: Some(command) }
}

fn shown(all: &[JobStatus]) -> String {
    if all.is_empty() {
        return "there are no jobs".to_owned();
    }
    let mut text = String::new();
    jobs::text(&mut text, all, jobs::seconds(SystemTime::now()));
    text.trim_end().to_owned()
}
