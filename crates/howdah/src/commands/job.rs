//! `howdah job`: background jobs of a running server.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use howdah_server::admin::jobs::{self, JobStatus};

use super::client::{ResponseWait, send_request};
use crate::exit;
use crate::jobs::settings;
use crate::master::control::ControlRequest;
use howdah_config::arguments::{JobArguments, JobCommand, JobTarget};

/// How long the master may take for a response that needs no further work.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs `howdah job …`.
pub fn run(job: JobArguments) -> ExitCode {
    match job.command {
        JobCommand::List(list) => {
            let question = ControlRequest::Jobs { ask: None };
            let answer = match send_request(
                &list.target,
                &question,
                ResponseWait::AtMost(RESPONSE_TIMEOUT),
            ) {
                Ok(answer) => answer,
                Err(why) => {
                    eprintln!("howdah: {why}");
                    return exit::no_server();
                }
            };
            if list.json {
                return super::print_output(&serde_json::json!(answer.jobs).to_string());
            }
            super::print_output(&format_jobs(&answer.jobs))
        }
        JobCommand::Run(JobTarget { target, name }) => super::print_outcome(send_request(
            &target,
            &job_request(settings::JobControlCommand::Run { job: name }),
            ResponseWait::WhileMasterLives,
        )),
        JobCommand::Stop(JobTarget { target, name }) => super::print_outcome(send_request(
            &target,
            &job_request(settings::JobControlCommand::Stop { job: name }),
            ResponseWait::WhileMasterLives,
        )),
    }
}

fn job_request(command: settings::JobControlCommand) -> ControlRequest {
    ControlRequest::Jobs { ask: Some(command) }
}

fn format_jobs(all: &[JobStatus]) -> String {
    if all.is_empty() {
        return "there are no jobs".to_owned();
    }
    let mut text = String::new();
    jobs::append_text(&mut text, all, jobs::unix_seconds(SystemTime::now()));
    text.trim_end().to_owned()
}
