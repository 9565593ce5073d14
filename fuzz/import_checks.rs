//! Invariants for arbitrary text in a configuration of nginx, Apache or php-fpm: the text is either understood or
//! refused at a line, every directive is accounted for, and the output is TOML. Used by the fuzz target, and by the
//! test that replays its corpus (`crates/howdah-import/tests/fuzz_corpus.rs`).

use howdah_import::{ConfigFormat, import_text};
use toml::de::DeTable;

/// Checks the invariants of this file.
pub fn import_configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // The outcome must not depend on this machine's files.
    if text.to_ascii_lowercase().contains("include") {
        return;
    }
    for format in [
        ConfigFormat::Nginx,
        ConfigFormat::Apache,
        ConfigFormat::PhpFpm,
    ] {
        let import = match import_text(format, text) {
            Ok(import) => import,
            Err(problem) => {
                let line = problem.place.line;
                assert!(line >= 1 && line <= text.lines().count().max(1) + 1);
                continue;
            }
        };
        if let Err(error) = DeTable::parse(&import.configuration) {
            panic!("{error}\n{}", import.configuration);
        }
        let counts = import.counts;
        assert_eq!(counts.total(), import.entries.len());
        let settled = import.entries.iter().all(|entry| {
            let outcome = &entry.outcome;
            outcome.carried || outcome.irrelevant.is_some() || !outcome.needs.is_empty()
        });
        assert!(settled, "{}", import.list);
    }
}
