//! Starts each rival stack that is installed: it serves the pages, reports its usage, and leaves nothing behind.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use howdah_lab::LabError;
use howdah_lab::fixture::mariadb::Mariadb;
use howdah_lab::fixture::pages::SmallPages;
use howdah_lab::fixture::wordpress;
use howdah_lab::folder::RunFolder;
use howdah_lab::ini::PhpIniFile;
use howdah_lab::process::RunAs;
use howdah_lab::stack::{STACKS, Stack, StackJob};

/// Returns the complete response to a GET on a connection of its own.
fn get(address: SocketAddr, host: &str, path: &str) -> String {
    // The request is written at once, because some servers hang up on a request that arrives in pieces.
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn folder() -> (tempfile::TempDir, RunFolder) {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    // The user of the stacks must be able to reach the files.
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).unwrap();
    let folder = RunFolder::create(directory.path().join("run"), RunAs::choose().unwrap()).unwrap();
    (directory, folder)
}

fn job(folder: &RunFolder, root: PathBuf) -> StackJob {
    StackJob {
        root,
        front_controller: None,
        worker: None,
        children: 2,
        clients: 50,
        server_name: "localhost".to_owned(),
        environment: Vec::new(),
        ini: PhpIniFile::write(folder, true, &[]).unwrap(),
        ini_without_opcache: PhpIniFile::write(folder, false, &[]).unwrap(),
        howdah: PathBuf::from("howdah"),
        h2c: false,
    }
}

fn rivals() -> impl Iterator<Item = &'static Stack> {
    STACKS
        .iter()
        .filter(|stack| !stack.name.starts_with("howdah-"))
}

#[test]
fn installed_rivals_serve_the_pages_and_leave_nothing() {
    let (_directory, folder) = folder();
    let pages = SmallPages::write(&folder, None).unwrap();
    let job = job(&folder, pages.root);
    let mut served = Vec::new();
    for stack in rivals() {
        let mut running = match stack.start(&job, &folder) {
            Ok(running) => running,
            Err(LabError::NotHere { what, install }) => {
                eprintln!("{}: not here: {what}: {install}", stack.name);
                continue;
            }
            Err(error) => panic!("{}: {error}", stack.name),
        };
        let address = running.address;
        let (path, expected) = match stack.name {
            "nginx-static" | "go" => ("/tiny.html", "<h1>Hello World!</h1>"),
            "swoole" => ("/", "Hello Swoole."),
            // The only script of these stacks responds to every request.
            "roadrunner" | "frankenphp-worker" => ("/hello.php", "<h1>Hello World!</h1>"),
            _ => ("/foreach_test.php", "500500"),
        };
        let answer = get(address, "localhost", path);
        assert!(
            answer.starts_with("HTTP/1.1 200"),
            "{}: {answer}",
            stack.name
        );
        assert!(answer.contains(expected), "{}: {answer}", stack.name);
        running.check_alive().unwrap();
        let usage = running.usage();
        assert!(usage.processes >= 1, "{}", stack.name);
        assert!(usage.memory > 1 << 20, "{}: {usage:?}", stack.name);
        drop(running);
        assert!(
            TcpStream::connect(address).is_err(),
            "{} still listens",
            stack.name
        );
        served.push(stack.name);
    }
    // These stacks are installed by `scripts/setup-debian.sh`, so they must be among those that were tested.
    for name in [
        "nginx-fpm-unix",
        "nginx-fpm-tcp-kept",
        "nginx-php-cgi-ports",
        "apache-mod-fcgid",
        "varnish",
        "apache-mod-php",
        "apache-proxy-fcgi",
        "apache-cgi",
        "php-builtin",
    ] {
        assert!(served.contains(&name), "{name} is not among {served:?}");
    }
}

#[test]
fn opcode_cache_is_on_or_off_as_the_stack_declares() {
    let (_directory, folder) = folder();
    let pages = SmallPages::write(&folder, None).unwrap();
    folder
        .write(
            "pages/opcache.php",
            "<?php var_dump((bool) (opcache_get_status(false)['opcache_enabled'] ?? false));\n",
        )
        .unwrap();
    let job = job(&folder, pages.root);
    for (name, expected) in [
        ("nginx-fpm-unix", "bool(true)"),
        ("nginx-fpm-unix-no-opcache", "bool(false)"),
        ("apache-mod-php", "bool(true)"),
        ("apache-mod-php-no-opcache", "bool(false)"),
        ("frankenphp", "bool(true)"),
    ] {
        let running = match Stack::find(name).unwrap().start(&job, &folder) {
            // The project's own set-up has no package for FrankenPHP.
            Err(error @ LabError::NotHere { .. }) if name == "frankenphp" => {
                eprintln!("{name}: {error}");
                continue;
            }
            started => started.unwrap_or_else(|error| panic!("{name}: {error}")),
        };
        let answer = get(running.address, "localhost", "/opcache.php");
        assert!(answer.contains(expected), "{name}: {answer}");
    }
}

#[test]
fn page_caches_respond_from_memory() {
    let (_directory, folder) = folder();
    let pages = SmallPages::write(&folder, None).unwrap();
    let job = job(&folder, pages.root);
    for name in ["nginx-fastcgi-cache", "varnish"] {
        let running = match Stack::find(name).unwrap().start(&job, &folder) {
            Ok(running) => running,
            Err(error @ LabError::NotHere { .. }) => {
                eprintln!("{name}: {error}");
                continue;
            }
            Err(error) => panic!("{name}: {error}"),
        };
        get(running.address, "localhost", "/hello.php");
        let second = get(running.address, "localhost", "/hello.php");
        assert!(second.contains("X-Cache: HIT"), "{name}: {second}");
    }
}

#[test]
fn wordpress_and_the_database_page_are_served() {
    let (_directory, folder) = folder();
    let mut mariadb = Mariadb::start(&folder).unwrap();
    let pages = SmallPages::write(&folder, Some(&mariadb)).unwrap();
    let small = job(&folder, pages.root);
    let blog = StackJob {
        root: wordpress::install(&folder, &mariadb).unwrap().root,
        front_controller: Some("/index.php".to_owned()),
        worker: None,
        ..small.clone()
    };
    let fpm = Stack::find("nginx-fpm-unix").unwrap();
    let running = fpm.start(&small, &folder).unwrap();
    let answer = get(running.address, "localhost", "/mysql_test.php");
    assert!(answer.contains("20 Elephant 20<br>"), "{answer}");
    let answer = get(running.address, "localhost", "/heavy.php");
    assert_eq!(answer.matches("<li>").count(), 150, "{answer}");
    drop(running);
    let running = fpm.start(&blog, &folder).unwrap();
    let answer = get(running.address, wordpress::HOST, "/");
    assert!(answer.contains("Day 9"), "{answer}");
    assert!(answer.contains(wordpress::HOME_PAGE_TEXT), "{answer}");
    mariadb.check_alive().unwrap();
}

#[test]
fn stack_that_cannot_start_shows_its_log() {
    let (_directory, folder) = folder();
    let pages = SmallPages::write(&folder, None).unwrap();
    let mut job = job(&folder, pages.root);
    job.ini.file = folder.write("bad.conf", "").unwrap();
    // A line break in the root breaks Apache's configuration, and Apache's own message reports it.
    job.root = folder.join("no\nsuch root");
    let error = Stack::find("apache-mod-php")
        .unwrap()
        .start(&job, &folder)
        .unwrap_err();
    assert_eq!(error.name(), "DoesNotStart");
    assert!(error.to_string().contains("    | "), "{error}");
}
