//! Runs the fuzz targets' checks over their seed corpora and over mutations of the seeds, so that
//! every test run exercises them without a nightly compiler. Mutations are random but reproducible:
//! a failure prints the bytes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

#[path = "../../../fuzz/access_checks.rs"]
mod access_checks;
#[path = "../../../fuzz/checks.rs"]
mod checks;
#[path = "../../../fuzz/edge_checks.rs"]
mod edge_checks;
#[path = "../../../fuzz/front_checks/mod.rs"]
mod front_checks;
#[path = "../../../fuzz/htaccess_checks.rs"]
mod htaccess_checks;
#[path = "../../../fuzz/trace_checks.rs"]
mod trace_checks;

/// xorshift64*. The quality of the numbers does not matter.
struct XorshiftNumbers(u64);

impl XorshiftNumbers {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() % n.max(1)
    }
}

fn mutate(numbers: &mut XorshiftNumbers, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[numbers.below(seeds.len())].clone();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(bytes.len());
        match numbers.below(6) {
            0 if !bytes.is_empty() => bytes[at] = numbers.next() as u8,
            1 if !bytes.is_empty() => bytes[at] ^= 1 << numbers.below(8),
            2 if !bytes.is_empty() => drop(bytes.remove(at)),
            3 => bytes.insert(at, b"\r\n \t:;0\0/*"[numbers.below(10)]),
            4 => bytes.truncate(at),
            _ => {
                let other = &seeds[numbers.below(seeds.len())];
                let (from, to) = (numbers.below(other.len()), numbers.below(other.len()));
                let part = other[from.min(to)..from.max(to)].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
    bytes
}

fn exercise(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let seeds: Vec<Vec<u8>> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    assert!(!seeds.is_empty());
    let run = |bytes: &[u8]| {
        if catch_unwind(AssertUnwindSafe(|| check(bytes))).is_err() {
            panic!("{target} fails on {}", bytes.escape_ascii());
        }
    };
    run(b"");
    seeds.iter().for_each(|seed| run(seed));
    let mut numbers = XorshiftNumbers(0x9e37_79b9_7f4a_7c15);
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        run(&mutate(&mut numbers, &seeds));
    }
}

#[test]
fn request_heads() {
    exercise("request_head", checks::request_head);
}

#[test]
fn http2_requests() {
    exercise("http2_request", checks::http2_request);
}

#[test]
fn http3_frames() {
    exercise("http3_frames", edge_checks::http3_frames);
}

#[test]
fn quic_packets() {
    exercise("quic_packets", edge_checks::quic_packets);
}

#[test]
fn chunked_bodies() {
    exercise("chunked_body", checks::chunked_body);
}

#[test]
fn proxy_headers() {
    exercise("proxy_header", checks::proxy_header);
}

#[test]
fn sql_statement() {
    exercise("sql_statement", checks::sql_statement);
}

#[test]
fn response_frames() {
    exercise("response_frames", checks::response_frames);
}

#[test]
fn url_paths() {
    exercise("url_path", checks::url_path);
}

#[test]
fn ranges() {
    exercise("range", checks::range);
}

#[test]
fn cgi_responses() {
    exercise("cgi_response", checks::cgi_response);
}

#[test]
fn fastcgi_records() {
    exercise("fastcgi_records", checks::fastcgi_records);
}

#[test]
fn zygote_messages() {
    exercise("zygote_messages", checks::zygote_messages);
}

#[test]
fn spawner_messages() {
    exercise("spawner_messages", checks::spawner_messages);
}

#[test]
fn received_requests() {
    exercise("received_request", checks::received_request);
}

#[test]
fn htaccess_files() {
    exercise("htaccess", htaccess_checks::htaccess);
}

#[test]
fn files_with_passwords() {
    exercise("password_file", access_checks::password_file);
}

#[test]
fn credentials() {
    exercise("credentials", access_checks::credentials);
}

#[test]
fn files_with_networks() {
    exercise("network_file", access_checks::network_file);
}

#[test]
fn conditions() {
    exercise("condition", access_checks::condition);
}

#[test]
fn trace_contexts() {
    exercise("trace_context", trace_checks::trace_context);
}

#[test]
fn the_whole_front() {
    exercise("whole_front", front_checks::whole_front);
}
