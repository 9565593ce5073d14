//! Measures what a request costs besides time: system calls, context switches, memory, and PHP's CPU time by opcache
//! settings. Run it with `cargo run --release -p howdah-tests --bin serving_costs -- --help`. Rates and latencies
//! compared with rivals are measured by `howdah compare` (`benchmarks/hello.toml`, `cache.toml` …).

mod cost;
mod memory;
mod opcache;
mod options;

use howdah_tests::rig::{Server, ServerKind, Site};
use howdah_tests::scratch::Scratch;

use options::Options;

const BODY: &str = "Hello, elephant riders!\n";

fn main() {
    let options = Options::read();
    let scratch = Scratch::new("serving-costs");
    scratch.write(
        "site/hello.php",
        format!("<?php echo \"{}\\n\";", BODY.trim_end()),
    );
    if options.wants("cost") {
        cost::measure(&options, &scratch);
    }
    if options.wants("opcache") {
        opcache::measure(&options, &scratch);
    }
    if options.wants("memory") {
        memory::measure(&options, &scratch);
    }
}

fn start(kind: ServerKind, options: &Options, scratch: &Scratch) -> Box<dyn Server> {
    let site = Site::new(scratch.join("site"))
        .children(options.children)
        .ini("opcache.revalidate_freq", "2");
    kind.start(&site)
}
