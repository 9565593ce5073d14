//! Measures how much memory a PHP child and an idle connection cost.

use howdah_machine::php;
use howdah_tests::http;
use howdah_tests::process_tree;
use howdah_tests::rig::{Server, ServerKind};
use howdah_tests::scratch::Scratch;
use howdah_tests::wrk::{self, WrkLoad};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Options, start};

const CONNECTIONS: usize = 10_000;

/// Returns the memory of every process below this one that runs `program`, in KiB each.
fn sizes(program: &str, field: &str) -> Vec<u64> {
    process_tree::below(std::process::id().cast_signed())
        .iter()
        .filter(|e| e.program == program)
        .filter_map(|e| process_tree::memory(e.pid, field))
        .collect()
}

/// Prints both figures.
pub fn measure(options: &Options, scratch: &Scratch) {
    println!("\nmemory");
    for (kind, program) in [
        (ServerKind::Howdah, "howdah-php"),
        (
            ServerKind::NginxFpm,
            &*php::expand_placeholders("php-fpm{php}"),
        ),
    ] {
        let server = start(kind, options, scratch);
        let load = WrkLoad {
            target: "/hello.php".into(),
            connections: 50,
            seconds: 2,
        };
        wrk::run(server.address(), &load);
        let each = |field| {
            let all = sizes(program, field);
            all.iter().sum::<u64>() / all.len().max(1) as u64
        };
        println!(
            "  {:<10} {} PHP processes (parent included): each {} KiB proportional, {} KiB resident, {} KiB private dirty",
            kind.name(),
            sizes(program, "Pss").len(),
            each("Pss"),
            each("Rss"),
            each("Private_Dirty"),
        );
    }
    let server = start(ServerKind::Howdah, options, scratch);
    idle_connections(server.as_ref());
}

fn idle_connections(server: &dyn Server) {
    raise_file_limit();
    let front = || sizes("howdah", "Rss").iter().sum::<u64>();
    let before = front();
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        match http::Connection::open(server.address()) {
            Ok(connection) => held.push(connection),
            Err(error) => {
                println!("  stopped at {} connections: {error}", held.len());
                break;
            }
        }
    }
    // Every connection serves one request before it is idle, as a real idle connection has done.
    for connection in &mut held {
        connection
            .send("GET /hello.php HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .expect("an idle connection takes a request");
        connection.read_response("GET").expect("and answers it");
    }
    println!(
        "  howdah     {} idle connections, each served once: {:.2} KiB each in the server's processes",
        held.len(),
        front().saturating_sub(before) as f64 / held.len().max(1) as f64
    );
}

/// Raises the limit of open files: ten thousand connections need as many descriptors here as in the server.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        eprintln!("cannot raise the limit of open files: {error}");
    }
}
