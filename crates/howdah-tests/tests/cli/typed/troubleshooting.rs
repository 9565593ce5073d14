//! Types every command of `docs/troubleshooting.md` at a server that has the trouble.

use std::os::unix::fs::PermissionsExt;

use howdah_tests::process::{Process, wait_until};
use howdah_tests::rig::is_root;

use super::{DEADLINE, Reader, Step, commands_of, contains, page_with_free_ports};

/// The files of the site. Together with the configurations, they cause every trouble of the page.
const SITE: &[(&str, &str)] = &[
    (
        "index.php",
        "<?php echo 'front ', $_SERVER['REQUEST_URI'], ' https=', $_SERVER['HTTPS'] ?? 'no', \
         ' addr=', $_SERVER['REMOTE_ADDR'], \"\\n\";",
    ),
    ("white.php", "<?php undefined_function();"),
    ("crash.php", "<?php posix_kill(getmypid(), 11);"),
    ("sleep.php", "<?php sleep(30);"),
    ("session.php", "<?php session_start(); echo 'hello';"),
    ("private/a.txt", "private"),
    ("backup.sql", "DROP TABLE x;"),
];

/// The server at which the commands of a section are typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// One site without a front controller.
    Plain,
    /// A site whose only process runs a long script.
    Busy,
    /// A site that is redirected to HTTPS.
    Redirected,
    /// The same, with the client as a trusted proxy.
    RedirectedBehindProxy,
    /// A site without HTTPS, behind a proxy that is not trusted.
    UnknownProxy,
    /// A site without HTTPS, behind a trusted proxy.
    KnownProxy,
    /// A site whose directory the server's user cannot enter. Only a server that root starts can have this problem.
    Locked,
}

/// The sections of the page that have commands, in the page's order. A section with several blocks is listed several
/// times.
const SECTIONS: &[(&str, Trouble)] = &[
    ("When something is wrong", Trouble::Plain),
    ("A white page", Trouble::Plain),
    ("404 on permalinks", Trouble::Plain),
    ("404 for a file that exists", Trouble::Plain),
    ("403 Forbidden", Trouble::Plain),
    ("502 Bad Gateway", Trouble::Plain),
    ("Too many redirects", Trouble::Redirected),
    ("Too many redirects", Trouble::RedirectedBehindProxy),
    ("Mixed content, or links with http", Trouble::UnknownProxy),
    ("Mixed content, or links with http", Trouble::KnownProxy),
    ("Pages are slow", Trouble::Busy),
    ("A page is not cached", Trouble::Plain),
    ("Permission denied", Trouble::Locked),
    ("The certificate is missing", Trouble::Redirected),
    ("The wrong site responds", Trouble::Plain),
];

#[test]
fn every_command_of_troubleshooting_shows_what_the_page_says() {
    let page = page_with_free_ports("docs/troubleshooting.md", &["8080", "8443"]);
    let port = |scheme: &str| {
        let at = page.find(scheme).expect("an address") + scheme.len();
        let port: String = page[at..]
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        port
    };
    let (http, https) = (port("http://127.0.0.1:"), port("https://localhost:"));
    let blocks = blocks_of(&page);
    let sections: Vec<&str> = blocks.iter().map(|(heading, _)| *heading).collect();
    let expected: Vec<&str> = SECTIONS.iter().map(|(heading, _)| *heading).collect();
    assert_eq!(sections, expected);

    for ((heading, steps), (_, trouble)) in blocks.iter().zip(SECTIONS) {
        if *trouble == Trouble::Locked && !is_root() {
            continue;
        }
        eprintln!("{heading}");
        let reader = Reader::new();
        for (name, text) in SITE {
            reader.scratch.write(format!("site/{name}"), text);
        }
        let config = config_of(*trouble, &http, &https);
        reader.scratch.write("howdah.toml", config);
        let mut server = None;
        if *trouble == Trouble::Locked {
            let mode = std::fs::Permissions::from_mode(0o700);
            std::fs::set_permissions(reader.scratch.join("site"), mode).expect("our own directory");
        } else {
            server = Some(start(&reader, *trouble));
        }
        let long = (*trouble == Trouble::Busy).then(|| {
            let command = format!("curl -s http://127.0.0.1:{http}/sleep.php");
            Process::start("curl", &mut reader.command(&command))
        });
        let here = reader.scratch.path().display().to_string();
        for step in steps {
            let Step::Type { command, output } = step else {
                unreachable!("a block of commands");
            };
            let lines = output.iter().map(|line| line.replace("/srv", &here));
            reader.check(command, &lines.collect::<Vec<_>>());
        }
        drop((long, server));
    }
}

fn config_of(trouble: Trouble, http: &str, https: &str) -> String {
    let user = if is_root() {
        "user = \"www-data\"\n"
    } else {
        ""
    };
    let log = "[log]\nerror = \"error.log\"\n";
    let proxy = "[trusted_proxies]\nnetworks = [\"127.0.0.1\"]\n";
    let plain = format!("listen = \"127.0.0.1:{http}\"\n{user}{log}");
    let tls = format!(
        "listen = [\"127.0.0.1:{http}\", \"127.0.0.1:{https} tls\"]\n{user}{log}[acme]\npath = \"certificates\"\n"
    );
    let site = "[[site]]\nroot = \"site\"\n";
    let redirected = format!("{site}hosts = [\"localhost\"]\nhttps_redirect = true\n");
    match trouble {
        Trouble::Plain | Trouble::Locked => {
            format!("{plain}{site}deny = [\"/private/**\"]\ncache = \"on\"\n")
        }
        // Otherwise the stop would wait for the long script, which would delay the test.
        Trouble::Busy => {
            format!("{plain}[timeouts]\nstop = \"0ms\"\n[pool.www]\nmax_children = 1\n{site}")
        }
        Trouble::Redirected => format!("{tls}{redirected}"),
        Trouble::RedirectedBehindProxy => format!("{tls}{proxy}{redirected}"),
        Trouble::UnknownProxy => format!("{plain}{site}"),
        Trouble::KnownProxy => format!("{plain}{proxy}{site}"),
    }
}

fn start(reader: &Reader, trouble: Trouble) -> Process {
    let mut command = reader.command("howdah serve --config howdah.toml");
    let server = Process::start("the server", &mut command);
    let mut expected = vec!["howdah: listening on …".to_owned()];
    if matches!(
        trouble,
        Trouble::Redirected | Trouble::RedirectedBehindProxy
    ) {
        expected = vec!["howdah: listening on https:…".to_owned()];
    }
    wait_until("the server to listen", DEADLINE, || {
        contains(&server.log(), &expected)
    });
    if matches!(trouble, Trouble::Redirected) {
        let issued = vec!["howdah: localhost: certificate issued by local, …".to_owned()];
        wait_until("the certificate", DEADLINE, || {
            contains(&server.log(), &issued)
        });
    }
    server
}

/// Returns the blocks of commands of the page, each with the heading before it.
fn blocks_of(page: &str) -> Vec<(&str, Vec<Step>)> {
    let mut blocks = Vec::new();
    let mut heading = "";
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.starts_with('#') {
            heading = line.trim_start_matches('#').trim_start();
        } else if line.starts_with("```") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if line == "```console" {
                blocks.push((heading, commands_of(&block)));
            }
        }
    }
    blocks
}
