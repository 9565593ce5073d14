//! The environment of a program (RFC 3875 §4.1), compared with Apache's own mod_cgid and mod_fcgid: the same program
//! handles the same request on each server. Every variable that differs has a row in the table of
//! `docs/differences.md`, and every row of the table describes an existing difference.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use howdah_tests::executable::make_executable;
use howdah_tests::fixture::Fixture;
use howdah_tests::http;
use howdah_tests::process::Process;
use howdah_tests::rig::{free_address, is_root, wait_for_listener};
use howdah_tests::scratch::{Scratch, repository};

/// A program that prints its environment. It is started for each request, or kept running as a FastCGI program.
const ENV: &str = r#"#!/usr/bin/perl
use FCGI;
my %params;
my $request = FCGI::Request(\*STDIN, \*STDOUT, \*STDERR, \%params);
while ($request->Accept() >= 0) {
    my $env = $request->IsFastCGI() ? \%params : \%ENV;
    read(STDIN, my $body, 5);
    print "Content-Type: text/plain\r\n\r\n", map { "$_=$env->{$_}\n" } sort keys %$env;
}
"#;

/// An Apache with both modules.
struct Apache {
    address: SocketAddr,
    _process: Process,
    _scratch: Scratch,
}

impl Apache {
    fn start(root: &Path) -> Apache {
        let scratch = Scratch::new("apache-cgi");
        let address = free_address();
        let place = scratch.path().display();
        let modules = ["mpm_event", "authz_core", "mime", "cgid", "fcgid"];
        let mut conf: String = modules
            .iter()
            .map(|m| format!("LoadModule {m}_module /usr/lib/apache2/modules/mod_{m}.so\n"))
            .collect();
        if is_root() {
            conf += "User www-data\nGroup www-data\n";
        }
        conf += &format!(
            "ServerName localhost\nListen {address}\nDocumentRoot {root}\nPidFile {place}/apache.pid\n\
             DefaultRuntimeDir {place}\nMutex file:{place}\nErrorLog /dev/stderr\nTypesConfig /etc/mime.types\n\
             ScriptSock {place}/cgid\nFcgidIPCDir {place}/sockets\nFcgidProcessTableFile {place}/table\n\
             <Directory {root}>\n    Require all granted\n    Options +ExecCGI\n</Directory>\n\
             AddHandler cgi-script .cgi\nAddHandler fcgid-script .fcgi\n",
            root = root.display(),
        );
        let file = scratch.write("apache.conf", conf);
        let mut command = Command::new("/usr/sbin/apache2");
        command.arg("-d").arg(scratch.path()).arg("-f").arg(&file);
        // cargo sets this variable for the test itself.
        command.arg("-DFOREGROUND").env_remove("LD_LIBRARY_PATH");
        let process = Process::start("apache2", &mut command);
        wait_for_listener("apache2", address);
        Apache {
            address,
            _process: process,
            _scratch: scratch,
        }
    }
}

/// Returns the program's variables, with each server's own address replaced by a word.
fn environment(address: SocketAddr, path: &str) -> BTreeMap<String, String> {
    let request = format!(
        "POST {path}/in%20fo?a=b&c HTTP/1.1\r\nHost: {address}\r\nUser-Agent: probe\r\nCookie: a=1\r\n\
         X-Twice: 1\r\nX-Twice: 2\r\nProxy: http://evil.example\r\nX_Under: 1\r\nAuthorization: Basic YW5uOnB3\r\n\
         Content-Type: text/plain\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
    );
    let answer = http::exchange(address, request.as_bytes())
        .unwrap_or_else(|broken| panic!("{path}: {broken}"));
    assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
    let port = address.port().to_string();
    let lines = answer.text();
    let pairs = lines.lines().filter_map(|line| line.split_once('='));
    pairs
        .filter(|(name, _)| *name != "REMOTE_PORT")
        .map(|(name, value)| (name.to_owned(), value.replace(&port, "PORT")))
        .collect()
}

/// Returns the names whose values differ, or that exist on one side only.
fn differing<'m>(
    ours: &'m BTreeMap<String, String>,
    theirs: &'m BTreeMap<String, String>,
) -> BTreeSet<&'m str> {
    let names = ours.keys().chain(theirs.keys());
    names
        .filter(|name| ours.get(*name) != theirs.get(*name))
        .map(String::as_str)
        .collect()
}

/// Returns the rows of the table: the variables, and the server from which they differ.
fn table() -> Vec<(String, String)> {
    let page = std::fs::read_to_string(repository().join("docs/differences.md")).unwrap();
    let from = page.find("| Variables | Against |").expect("the table");
    let rows = page[from..].lines().skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .flat_map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            assert!(cells.len() == 3 && cells[2].len() > 20, "a reason: {line}");
            let names: Vec<_> = cells[0].split(' ').map(|n| n.trim_matches('`')).collect();
            let all: Vec<_> = cells[1]
                .split(' ')
                .flat_map(|who| names.iter().map(move |n| ((*n).to_owned(), who.to_owned())))
                .collect();
            all
        })
        .collect()
}

#[test]
fn programs_find_what_they_find_under_apache_but_for_what_is_argued() {
    let fixture = Fixture::named("cgi-environment")
        .file("programs/env.cgi", ENV)
        .file("programs/env.fcgi", ENV)
        .pool("[pool.cgi]\nmode = \"cgi\"\n[pool.fcgi]\nmode = \"pool\"\ncommand = [\"ROOT/programs/env.fcgi\"]\nprocesses = \"independent\"\nmax_children = 1")
        .site("php_extensions = [\".php\", \".fcgi\"]\n[[site.rule]]\nglob = \"/programs/*.cgi/**\"\ncgi = \"cgi\"\n[[site.rule]]\nprefix = \"/programs/env.fcgi\"\npool = \"fcgi\"");
    for name in ["env.cgi", "env.fcgi"] {
        let file = fixture.scratch().join("site/programs").join(name);
        make_executable(&file);
    }
    let fixture = fixture.start();
    let apache = Apache::start(&fixture.path("site"));
    let told = table();
    let mut mistakes = String::new();
    for (who, path) in [
        ("mod_cgid", "/programs/env.cgi"),
        ("mod_fcgid", "/programs/env.fcgi"),
    ] {
        let ours = environment(fixture.address(), path);
        let theirs = environment(apache.address, path);
        let argued: BTreeSet<&str> = told
            .iter()
            .filter(|(_, against)| against == who)
            .map(|(name, _)| name.as_str())
            .collect();
        let found = differing(&ours, &theirs);
        for name in found.difference(&argued) {
            let (a, b) = (ours.get(*name), theirs.get(*name));
            mistakes += &format!("{who}: {name}: here {a:?}, there {b:?}, and no row\n");
        }
        for name in argued.difference(&found) {
            mistakes += &format!("{who}: {name}: a row, and no difference\n");
        }
    }
    assert!(mistakes.is_empty(), "docs/differences.md:\n{mistakes}");
}
