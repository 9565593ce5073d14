//! Complete authentications: files, users, groups, and changes while the server runs.

use super::*;
use std::fs;
use std::task::Poll;
use std::time::{Duration, SystemTime};

const ANN: &str = "ann:$2y$04$abcdefghijklmnopqrstuuyvPXIbu7xe6/CED2DzX8z6Si09MlzlW\n";

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    // The time is far enough in the past to differ from other times.
    let file = fs::File::options().append(true).open(path).unwrap();
    let length = text.len() as u64;
    let past = SystemTime::now() - Duration::from_secs(60 + length);
    file.set_modified(past).unwrap();
}

fn basic(pair: &str) -> String {
    use base64::Engine;
    let token = base64::engine::general_purpose::STANDARD.encode(pair);
    format!("Basic {token}")
}

async fn ask(demand: &Authentication, pair: &str) -> Result<String, NotAuthenticated> {
    let field = basic(pair);
    let user = demand.authenticate(Some(field.as_bytes()), None).await?;
    Ok(String::from_utf8(user.into()).unwrap())
}

fn any(names: &[&str]) -> Vec<Box<[u8]>> {
    names.iter().map(|name| name.as_bytes().into()).collect()
}

#[tokio::test]
async fn authentication_names_the_user_and_a_changed_file_counts_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let users = dir.path().join("users");
    write(&users, ANN);
    let demand = Authentication::new("r", &users, None, AdmittedUsers::ValidUser);
    let none = demand.authenticate(None, None).await;
    assert_eq!(none, Err(NotAuthenticated::NoCredentials));
    for _ in 0..2 {
        assert_eq!(ask(&demand, "ann:pw").await, Ok("ann".to_owned()));
        for wrong in ["ann:px", "ann:", "bob:pw", ":pw", "ann:pw:"] {
            let answer = ask(&demand, wrong).await;
            assert_eq!(answer, Err(NotAuthenticated::WrongPassword), "{wrong}");
        }
    }
    // The password has changed: the old one is no longer accepted.
    write(&users, "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n");
    assert_eq!(
        ask(&demand, "ann:pw").await,
        Err(NotAuthenticated::WrongPassword)
    );
    assert_eq!(ask(&demand, "ann:open sesame").await, Ok("ann".to_owned()));
    write(&users, "");
    assert_eq!(
        ask(&demand, "ann:open sesame").await,
        Err(NotAuthenticated::WrongPassword)
    );
    fs::remove_file(&users).unwrap();
    let gone = ask(&demand, "ann:open sesame").await;
    assert!(
        matches!(gone, Err(NotAuthenticated::Unreadable(_))),
        "{gone:?}"
    );
}

#[tokio::test]
async fn authentication_admits_by_users_and_groups() {
    let dir = tempfile::tempdir().unwrap();
    let (users, groups) = (dir.path().join("users"), dir.path().join("groups"));
    write(&users, ANN);
    write(&groups, "staff: ann bob\n");
    let staff = || AdmittedUsers::Groups(any(&["staff"]));
    for (admission, admitted) in [
        (AdmittedUsers::ValidUser, true),
        (AdmittedUsers::Users(any(&["bob", "ann"])), true),
        (AdmittedUsers::Users(any(&["an"])), false),
        (staff(), true),
        (AdmittedUsers::Groups(any(&["admins"])), false),
        (
            AdmittedUsers::Any(vec![AdmittedUsers::Users(any(&["bob"])), staff()]),
            true,
        ),
        (
            AdmittedUsers::All(vec![AdmittedUsers::Users(any(&["bob"])), staff()]),
            false,
        ),
        (
            AdmittedUsers::All(vec![
                AdmittedUsers::ValidUser,
                AdmittedUsers::Not(staff().into()),
            ]),
            false,
        ),
    ] {
        let case = format!("{admission:?}");
        let demand = Authentication::new("r", &users, Some(groups.clone()), admission);
        let expected = match admitted {
            true => Ok("ann".to_owned()),
            false => Err(NotAuthenticated::NotAdmitted),
        };
        assert_eq!(ask(&demand, "ann:pw").await, expected, "{case}");
    }
    let demand = Authentication::new("r", &users, Some(groups.clone()), staff());
    write(&groups, "staff: bob\n");
    assert_eq!(
        ask(&demand, "ann:pw").await,
        Err(NotAuthenticated::NotAdmitted)
    );
    fs::remove_file(&groups).unwrap();
    assert!(matches!(
        ask(&demand, "ann:pw").await,
        Err(NotAuthenticated::Unreadable(_))
    ));
}

#[tokio::test]
async fn client_with_too_many_unfinished_password_checks_is_busy_until_they_end() {
    let dir = tempfile::tempdir().unwrap();
    let users = dir.path().join("users");
    write(&users, ANN);
    let demand = Authentication::new("r", &users, None, AdmittedUsers::ValidUser);
    let client = Some(IpAddr::from([203, 0, 113, 1]));
    // No test has verified this password, so it must be checked.
    let field = basic("ann:guess");
    let ask = || demand.authenticate(Some(field.as_bytes()), client);
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = Arc::new(std::sync::Mutex::new(wait));
    let mut checks = Vec::new();
    loop {
        assert!(checks.len() < 100, "the client has no limit");
        let wait = wait.clone();
        let mut check = Box::pin(blocking::check_password(client, move || {
            // The end of the channel is the permission to continue.
            let _ = wait.lock().unwrap().recv();
        }));
        match std::future::poll_fn(|cx| Poll::Ready(check.as_mut().poll(cx))).await {
            Poll::Pending => checks.push(check),
            Poll::Ready(refused) => {
                refused.unwrap_err();
                break;
            }
        }
    }
    assert_eq!(ask().await, Err(NotAuthenticated::Busy));
    drop(go);
    for check in checks {
        check.await.unwrap();
    }
    assert_eq!(ask().await, Err(NotAuthenticated::WrongPassword));
}

#[test]
fn realm_cannot_break_out_of_its_quotes() {
    let demand = Authentication::new("a \"b\" \\ \r\nc", "/u", None, AdmittedUsers::ValidUser);
    let expected = "Basic realm=\"a \\\"b\\\" \\\\ c\", charset=\"UTF-8\"";
    assert_eq!(demand.challenge(), expected);
}
