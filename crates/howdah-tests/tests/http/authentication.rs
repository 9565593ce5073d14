//! Basic authentication by a site's rule or by `.htaccess`: files, scripts, the page cache, files that a script names,
//! and password files that change, are malformed, or lie below the root.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::http::{self, Response};
use howdah_tests::http2;

/// `ann:pw`, `bob:pw`, `eve:open sesame`, as `htpasswd` and crypt(3) write them, and a password in plain text.
const USERS: &str = "ann:$2y$04$6uIEqby2HLR.PpVdSTz2A.IS3XhKY6C8qujo6HuutCnYrJaR6x.4C\n\
    bob:$2b$04$abcdefghijklmnopqrstuuyvPXIbu7xe6/CED2DzX8z6Si09MlzlW\n\
    eve:$apr1$rPwSdDye$xsOgsKPmph4qMCOxofDPl0\n\
    tom:plain\n";
const ANN: &str = "YW5uOnB3";
const BOB: &str = "Ym9iOnB3";
const EVE: &str = "ZXZlOm9wZW4gc2VzYW1l";
const TOM: &str = "dG9tOnBsYWlu";
/// `ann:px`
const WRONG: &str = "YW5uOnB4";

const RULE: &str = "[[site.rule]]\nprefix = \"/staging\"\nauth_basic = \"Staging\"\n\
    auth_basic_user_file = \"ROOT/users\"\n";

fn staging(name: &str) -> Builder {
    Fixture::named(name)
        .file("users", USERS)
        .file("groups", "staff: ann\nguests: eve\n")
        .file("staging/plan.txt", "the plan")
        .file("open.txt", "open")
        .script(
            "staging/who.php",
            "<?php header('Cache-Control: max-age=600'); echo $_SERVER['REMOTE_USER'], ' ', $_SERVER['AUTH_TYPE'], ' ', $_SERVER['PHP_AUTH_USER'];",
        )
        .script("send.php", "<?php header('X-Accel-Redirect: /staging/plan.txt');")
        .script("staging/send.php", "<?php header('X-Accel-Redirect: /staging/plan.txt');")
}

fn ask(fixture: &Fixture, path: &str, token: &str) -> Response {
    let field = match token {
        "" => String::new(),
        token => format!("Authorization: Basic {token}\r\n"),
    };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\n{field}Connection: close\r\n\r\n",
        fixture.address()
    );
    http::exchange(fixture.address(), request.as_bytes())
        .unwrap_or_else(|broken| panic!("{path}: {broken}\n{}", fixture.howdah.process.log()))
}

fn status(fixture: &Fixture, path: &str, token: &str) -> (u16, String) {
    let answer = ask(fixture, path, token);
    let name = answer.header("Howdah-Error").unwrap_or_default().to_owned();
    (answer.status(), name)
}

#[test]
fn password_is_asked_for_before_anything_is_answered_and_names_the_user() {
    let fixture = staging("authentication")
        .site("cache = \"on\"")
        .site(RULE)
        .h2c()
        .start();
    assert_eq!(ask(&fixture, "/open.txt", "").text(), "open");
    let no = ask(&fixture, "/staging/plan.txt", "");
    assert_eq!(
        (
            no.status(),
            no.header("Howdah-Error"),
            no.header("WWW-Authenticate")
        ),
        (
            401,
            Some("NotAuthenticated"),
            Some("Basic realm=\"Staging\", charset=\"UTF-8\"")
        )
    );
    // The second request is answered from the remembered result of the password check, and could come from the page
    // cache.
    for _ in 0..2 {
        assert_eq!(ask(&fixture, "/staging/plan.txt", ANN).text(), "the plan");
        assert_eq!(
            ask(&fixture, "/staging/who.php", ANN).text(),
            "ann Basic ann"
        );
        assert_eq!(
            ask(&fixture, "/staging/who.php", EVE).text(),
            "eve Basic eve"
        );
        for path in [
            "/staging/plan.txt",
            "/staging/who.php",
            "/staging/none",
            "/staging/",
        ] {
            for token in ["", WRONG, TOM, "!", "YW5u"] {
                let answer = status(&fixture, path, token);
                assert_eq!(
                    answer,
                    (401, "NotAuthenticated".to_owned()),
                    "{path} {token}"
                );
            }
        }
        assert_eq!(status(&fixture, "/staging/none", ANN).0, 404);
    }
    // Each stream of HTTP/2 is a separate request.
    let mut client = http2::Http2TestClient::open(fixture.address()).unwrap();
    let request = http2::Http2Request::get("/staging/plan.txt");
    assert_eq!(client.ask(&request).unwrap().status(), 401);
    let field = format!("Basic {ANN}");
    let known = request.header("authorization", field.as_bytes());
    assert_eq!(client.ask(&known).unwrap().status(), 200);
    assert_eq!(
        client
            .ask(&http2::Http2Request::get("/staging/plan.txt"))
            .unwrap()
            .status(),
        401
    );
    fixture.wait("the user in the access log", |fixture| {
        let log = fixture.access_log();
        log.iter().any(|line| line.contains(" - ann ["))
    });
    fixture.still_serves();
}

#[test]
fn password_files_and_files_behind_a_password_stay_closed_to_scripts() {
    let fixture = staging("authentication-files")
        .site("expose = [\"users\"]")
        .site(RULE)
        .start();
    let by_script = status(&fixture, "/send.php", ANN);
    assert_eq!(by_script, (403, "NotAuthorized".to_owned()));
    assert_eq!(ask(&fixture, "/staging/send.php", ANN).text(), "the plan");
    assert_eq!(status(&fixture, "/staging/send.php", "").0, 401);
    for path in ["/users", "/%75sers", "/./users"] {
        assert_eq!(
            status(&fixture, path, ""),
            (404, "NotFound".to_owned()),
            "{path}"
        );
    }
    fixture.still_serves();
}

#[test]
fn stranger_cannot_tell_the_password_file_from_a_file_that_is_not_there() {
    let fixture = staging("authentication-hidden")
        .config("[log]\nlevel = \"info\"")
        .site(RULE)
        .start();
    let what_a_stranger_sees = |path: &str, accept: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n",
            fixture.address()
        );
        let response = http::exchange(fixture.address(), request.as_bytes()).unwrap();
        // The request number and the time differ for every request.
        let digits = |c: char| c.is_ascii_digit();
        response.text().replace(digits, "") + response.header("Howdah-Error").unwrap_or_default()
    };
    for accept in ["text/html", "application/json", "*/*"] {
        assert_eq!(
            what_a_stranger_sees("/users", accept),
            what_a_stranger_sees("/usery", accept)
        );
    }
    fixture.wait_for_log(&["PasswordFile", "/users"]);
    fixture.still_serves();
}

#[test]
fn users_and_groups_are_admitted_by_name() {
    let fixture = staging("authentication-groups")
        .site(&format!(
            "{RULE}auth_basic_group_file = \"ROOT/groups\"\n\
             auth_basic_require = [\"user bob\", \"group staff\"]"
        ))
        .start();
    for (token, expected) in [(ANN, 200), (BOB, 200), (EVE, 401)] {
        assert_eq!(
            status(&fixture, "/staging/plan.txt", token).0,
            expected,
            "{token}"
        );
    }
    fixture.write("site/groups", "staff: eve\n");
    for (token, expected) in [(ANN, 401), (BOB, 200), (EVE, 200)] {
        assert_eq!(
            status(&fixture, "/staging/plan.txt", token).0,
            expected,
            "{token}"
        );
    }
}

#[test]
fn changed_password_file_counts_at_once_and_a_missing_one_admits_nobody() {
    let fixture = staging("authentication-changes").site(RULE).start();
    let users = fixture.path("site/users");
    assert_eq!(status(&fixture, "/staging/plan.txt", ANN).0, 200);
    // The file is changed in place, and by replacing it with another file, as `htpasswd` and editors do.
    fixture.write("site/users", USERS.replace("ann:", "amy:"));
    assert_eq!(status(&fixture, "/staging/plan.txt", ANN).0, 401);
    let other = fixture.write("site/users.new", USERS);
    fs::rename(other, &users).unwrap();
    assert_eq!(status(&fixture, "/staging/plan.txt", ANN).0, 200);
    fs::remove_file(&users).unwrap();
    let gone = status(&fixture, "/staging/plan.txt", ANN);
    assert_eq!(gone, (500, "PasswordFileUnreadable".to_owned()));
    fixture.wait_for_log(&["PasswordFileUnreadable", "No such file"]);
    fs::create_dir(&users).unwrap();
    assert_eq!(status(&fixture, "/staging/plan.txt", ANN).0, 500);
    fs::remove_dir(&users).unwrap();
    fixture.write("site/users", USERS);
    assert_eq!(status(&fixture, "/staging/plan.txt", ANN).0, 200);
    fixture.reload();
    assert_eq!(status(&fixture, "/staging/plan.txt", ANN).0, 200);
    // Root can read every file, so only another user can test this.
    if !rustix::process::geteuid().is_root() {
        fs::set_permissions(&users, fs::Permissions::from_mode(0o0)).unwrap();
        assert_eq!(status(&fixture, "/staging/plan.txt", ANN).0, 500);
    }
    fixture.still_serves();
}

/// Under `htaccess = "deny"`, the default, the lines about passwords apply to a directory and to a single file.
#[test]
fn htaccess_file_demands_a_password_where_files_only_refuse() {
    let lines = |root: &str| {
        format!(
            "AuthType Basic\nAuthName \"The Staff\"\nAuthUserFile {root}/users\nRequire user ann\n"
        )
    };
    let fixture = staging("authentication-htaccess")
        .script(
            "index.php",
            "<?php header('Cache-Control: public, max-age=600'); echo $_SERVER['REMOTE_USER'] ?? 'nobody', ' ', $_SERVER['REQUEST_URI'];",
        )
        .site("cache = \"on\"\nfront_controller = \"/index.php\"")
        .site("[[site.rule]]\nprefix = \"/staging/old\"\nrewrite = \"/new\"\n")
        .start();
    let root = fixture.path("site");
    fs::write(
        root.join("staging/.htaccess"),
        lines(&root.display().to_string()),
    )
    .unwrap();
    let no = ask(&fixture, "/staging/plan.txt", "");
    assert_eq!(
        (
            no.status(),
            no.header("Howdah-Error"),
            no.header("WWW-Authenticate")
        ),
        (
            401,
            Some("HtaccessPassword"),
            Some("Basic realm=\"The Staff\"")
        )
    );
    assert_eq!(
        status(&fixture, "/staging/plan.txt", WRONG),
        (401, "HtaccessPassword".to_owned())
    );
    assert_eq!(
        status(&fixture, "/staging/plan.txt", BOB),
        (401, "HtaccessPassword".to_owned())
    );
    assert_eq!(ask(&fixture, "/staging/plan.txt", ANN).text(), "the plan");
    assert_eq!(
        ask(&fixture, "/staging/who.php", ANN).text(),
        "ann Basic ann"
    );
    // A page for one user is never served to another user, although the script allows it to be stored.
    assert_eq!(ask(&fixture, "/staging/x", ANN).text(), "ann /staging/x");
    assert_eq!(status(&fixture, "/staging/x", "").0, 401);
    assert_eq!(status(&fixture, "/staging/who.php", "").0, 401);
    // The lines apply to the path that the client has requested, even if a rule rewrites it.
    assert_eq!(status(&fixture, "/staging/old", "").0, 401);
    assert_eq!(
        ask(&fixture, "/staging/old", ANN).text(),
        "ann /staging/old"
    );
    assert_eq!(status(&fixture, "/staging/old", "").0, 401);
    // A script cannot ask for a password, so a file that it names stays closed.
    assert_eq!(status(&fixture, "/send.php", ANN).0, 403);
    // The index file of a directory requires a password of its own.
    fs::remove_file(root.join("staging/.htaccess")).unwrap();
    let own = format!(
        "<Files index.php>\n{}</Files>\n",
        lines(&root.display().to_string())
    );
    fs::write(root.join(".htaccess"), own).unwrap();
    assert_eq!(status(&fixture, "/", "").0, 401);
    assert_eq!(ask(&fixture, "/", ANN).text(), "ann /");
    assert_eq!(status(&fixture, "/any/page", "").0, 401);
    assert_eq!(ask(&fixture, "/any/page", ANN).text(), "ann /any/page");
    assert_eq!(ask(&fixture, "/open.txt", "").text(), "open");
    // A password file that a line names is never sent: the front controller handles the request.
    assert_eq!(ask(&fixture, "/users", ANN).text(), "ann /users");
}
