//! `howdah cert`: certificates that Howdah orders by itself.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use howdah_acme::manager::human_duration;
use howdah_acme::store::{CertificateStore, StoredState};
use howdah_acme::{NameStatus, local, system_time, unix_seconds};

use super::client::{ResponseWait, send_request};
use crate::exit;
use crate::master::control::{ControlRequest, ControlResponse};
use howdah_config::arguments::{CertArguments, CertCommand, CertTarget};
use howdah_config::{self, ConfigSource};

/// How long the master may take for a response that needs no further work.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs `howdah cert …`.
pub fn run(cert: CertArguments) -> ExitCode {
    match cert.command {
        CertCommand::List(list) => {
            let question = ControlRequest::Certificates { ask: None };
            let all = match send_request(
                &list.target,
                &question,
                ResponseWait::AtMost(RESPONSE_TIMEOUT),
            ) {
                Ok(answer) => statuses(&answer),
                // The certificates in the directory can be listed without a server.
                Err(_) => stored_statuses(&CertificateStore::new(&directory(
                    list.target.config.as_deref(),
                ))),
            };
            match list.json {
                true => super::print_output(&serde_json::json!(all).to_string()),
                false if all.is_empty() => {
                    super::print_output("Howdah has not ordered any certificates")
                }
                false => super::print_output(&status_lines(&all, SystemTime::now()).join("\n")),
            }
        }
        CertCommand::Order(target) | CertCommand::Renew(target) => {
            let CertTarget { target, name } = target;
            let command = howdah_acme::CertificateCommand::Order { name };
            let question = ControlRequest::Certificates { ask: Some(command) };
            super::print_outcome(send_request(
                &target,
                &question,
                ResponseWait::WhileMasterLives,
            ))
        }
        CertCommand::Remove(target) => {
            let Some(name) = target.name else {
                eprintln!("howdah: name the host whose certificate should be removed");
                return exit::failed();
            };
            let command = howdah_acme::CertificateCommand::Remove { name };
            let question = ControlRequest::Certificates { ask: Some(command) };
            super::print_outcome(send_request(
                &target.target,
                &question,
                ResponseWait::WhileMasterLives,
            ))
        }
        CertCommand::Root { config } => {
            let path = local::root_path(&directory(config.as_deref()));
            match path.exists() {
                true => super::print_output(&path.display().to_string()),
                false => {
                    eprintln!(
                        "howdah: there is no local authority yet ({}): `howdah serve --domain localhost` creates it",
                        path.display()
                    );
                    exit::failed()
                }
            }
        }
    }
}

/// Returns the directory that a configuration names, or the default one.
fn directory(file: Option<&std::path::Path>) -> std::path::PathBuf {
    let source = file.and_then(|file| ConfigSource::read(file).ok());
    let named = source.and_then(|source| howdah_config::configured_path(&source, "acme", "path"));
    named.unwrap_or_else(howdah_config::acme::default_directory)
}

fn stored_statuses(store: &CertificateStore) -> Vec<NameStatus> {
    let names = store.names().into_iter();
    names
        .map(|name| {
            let record = store.record(&name);
            let certificate = match store.load(&name) {
                StoredState::Good(stored) => Some(stored),
                StoredState::None | StoredState::Broken(_) => None,
            };
            NameStatus {
                not_after: certificate.map(|stored| unix_seconds(stored.validity.not_after)),
                authority: record.authority,
                renew_at: record.renew_at,
                ordering: false,
                trouble: record.trouble,
                name,
            }
        })
        .collect()
}

/// Returns the status of each name from the master's response.
pub fn statuses(answer: &ControlResponse) -> Vec<NameStatus> {
    serde_json::from_value(answer.certificates.clone()).unwrap_or_default()
}

/// Returns a line for each name, and another one for its problem, if it has one.
pub fn status_lines(all: &[NameStatus], now: SystemTime) -> Vec<String> {
    let mut lines = Vec::new();
    for one in all {
        let away = |at: u64| system_time(at).duration_since(now).ok().map(human_duration);
        let mut line = format!("{}: {}", one.name, one.state(now));
        if let Some(authority) = &one.authority {
            line += &format!(", by {authority}");
        }
        if let Some(left) = one.not_after.and_then(away) {
            line += &format!(", expires in {left}");
        }
        if let Some(at) = one.renew_at {
            let when = away(at).map_or("now".to_owned(), |left| format!("in {left}"));
            line += &format!(", will be renewed {when}");
        }
        if one.ordering {
            line += ", an order is in progress";
        }
        lines.push(line);
        if let Some(trouble) = &one.trouble {
            let since = now
                .duration_since(system_time(trouble.since))
                .unwrap_or_default();
            let next = away(trouble.next).map_or("now".to_owned(), |left| format!("in {left}"));
            lines.push(format!(
                "  {}: {}; {} attempts in {}, the next one {next}",
                trouble.name,
                trouble.message,
                trouble.attempts,
                human_duration(since)
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use howdah_acme::store::{FailedAttempts, RenewalRecord};

    use super::*;

    #[test]
    fn status_lines_of_a_failing_name_show_the_failure_and_the_next_attempt() {
        let now = system_time(1_000_000);
        let one = NameStatus {
            name: "a.org".to_owned(),
            authority: Some("letsencrypt".to_owned()),
            not_after: Some(1_000_000 + 30 * 86400),
            renew_at: Some(1_000_000 - 60),
            ordering: false,
            trouble: Some(FailedAttempts {
                name: "ChallengeFailed".to_owned(),
                message: "no".to_owned(),
                since: 1_000_000 - 7200,
                attempts: 3,
                next: 1_000_000 + 900,
            }),
        };
        assert_eq!(
            status_lines(&[one], now),
            [
                "a.org: valid, by letsencrypt, expires in 30 days, will be renewed now",
                "  ChallengeFailed: no; 3 attempts in 2 h, the next one in 15 min",
            ]
        );
    }

    #[test]
    fn stored_statuses_are_those_of_the_directory_without_a_server() {
        let directory = tempfile::tempdir().unwrap();
        let store = CertificateStore::new(directory.path());
        store.prepare().unwrap();
        let record = RenewalRecord {
            authority: Some("letsencrypt".to_owned()),
            renew_at: Some(5),
            ..RenewalRecord::default()
        };
        store.save_record("a.org", &record).unwrap();
        let broken = directory.path().join("certificates/a.org.pem");
        std::fs::write(broken, "not a certificate").unwrap();
        let expected = NameStatus {
            name: "a.org".to_owned(),
            authority: record.authority,
            not_after: None,
            renew_at: Some(5),
            ordering: false,
            trouble: None,
        };
        let found = stored_statuses(&store);
        assert_eq!(format!("{found:?}"), format!("{:?}", [expected]));
    }
}
