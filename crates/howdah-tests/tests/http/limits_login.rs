//! `limit = "login"` with a real application: a client that guesses passwords is slowed down, and other clients are not
//! affected.

use howdah_tests::fixture::{TRUSTED_PROXIES, from};
use howdah_tests::http::{self, Response};
use howdah_tests::rig::{Howdah, Server, howdah_check};
use howdah_tests::scratch::Scratch;
use howdah_tests::wordpress_home::{HOST, WordpressHome};

const GUESSER: &str = "198.51.100.66";
const OWNER: &str = "192.0.2.1";

#[track_caller]
fn refused(answer: &Response) {
    assert_eq!(answer.status(), 429, "{}", answer.text());
    assert_eq!(answer.header("Howdah-Error"), Some("ClientLimited"));
    let seconds = answer.header("Retry-After").expect("Retry-After");
    assert!((1..=6).contains(&seconds.parse::<u32>().expect("seconds")));
}

#[test]
fn guessing_wordpress_passwords_is_slow_and_its_owner_logs_in() {
    let home = WordpressHome::prepare();
    let mut site = home.site();
    let root = site.root.display().to_string();
    // Howdah refuses to run as root behind a proxy unless the configuration says so explicitly.
    let user = match rustix::process::geteuid().is_root() {
        true => "user = \"root\"\n",
        false => "",
    };
    let config =
        |lines: &str| format!("{user}{TRUSTED_PROXIES}[[site]]\nroot = \"{root}\"\n{lines}");
    let dir = Scratch::new("limits-wordpress");
    let advice = |config: String| howdah_check(&dir.write("howdah.toml", config)).1;
    let said = advice(config("recognise = true\n"));
    let expected = "site `site1`: nothing limits how fast a client can guess passwords of WordPress; add a [[site.rule]] with limit = \"login\"";
    assert!(said.contains(expected), "{said}");
    let limited = config(
        "recognise = true\n[[site.rule]]\nlimit = \"login\"\nnot = { from = \"10.0.0.0/8\" }\n",
    );
    let said = advice(limited.clone());
    assert!(!said.contains("guesses"), "{said}");

    site.howdah_config = Some(limited);
    let server = Howdah::start(&site);
    let log_in = |address: &str, password: &str, way: &str| {
        let form = format!("log=owner&pwd={password}&wp-submit=Log+In");
        let request = format!(
            "POST {way} HTTP/1.1\r\nHost: {HOST}\r\n{}Content-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{form}",
            from(address),
            form.len()
        );
        http::exchange(server.address(), request.as_bytes()).expect("a response")
    };
    let is_in = |answer: &Response| answer.status() == 302;
    let mut heard = 0;
    for n in 0..40 {
        let ways = [
            "/wp-login.php",
            "//wp-login.php",
            "/wp-login.php/x",
            "/xmlrpc.php",
        ];
        let answer = log_in(GUESSER, &format!("guess{n}"), ways[n % 4]);
        match answer.status() {
            429 => refused(&answer),
            _ => heard += 1,
        }
        assert!(!is_in(&answer));
    }
    // Twenty-one guesses are checked at once, and one more every six seconds that the test takes.
    assert!((21..30).contains(&heard), "{heard} guesses were checked");
    // The right password no longer helps this client, but it works for every other client.
    refused(&log_in(GUESSER, "carry+the+howdah", "/wp-login.php"));
    assert!(is_in(&log_in(OWNER, "carry+the+howdah", "/wp-login.php")));
    // The exempted office may continue to guess.
    for n in 0..25 {
        assert_eq!(
            log_in("10.0.0.1", &n.to_string(), "/wp-login.php").status(),
            200
        );
    }
    // The page itself is shown to every client.
    let page = format!(
        "GET /wp-login.php HTTP/1.1\r\nHost: {HOST}\r\n{}Connection: close\r\n\r\n",
        from(GUESSER)
    );
    let page = http::exchange(server.address(), page.as_bytes()).unwrap();
    assert_eq!(page.status(), 200);
}
