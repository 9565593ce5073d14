//! The oracle: the same requests go to Howdah, nginx + php-fpm and Apache + mod_php, which serve the same scripts with
//! the same `php.ini`. Every difference must be in the tables of `docs/differences.md`, and every difference in the
//! tables must still exist.

use std::collections::BTreeMap;

use howdah_tests::differences::{self, Ledger};
use howdah_tests::oracle::{Probe, ProbedServer, ResponseProperties, compare};
use howdah_tests::rig::{ServerKind, Site};
use howdah_tests::scratch::{Scratch, copy_tree, repository};

use crate::oracle_requests;

#[test]
fn answers_differ_only_where_the_docs_say_so() {
    let page = repository().join("docs/differences.md");
    let text = std::fs::read_to_string(&page)
        .unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    let names = [ServerKind::NginxFpm.name(), ServerKind::ModPhp.name()];
    let accepted = differences::parse(&text, &names)
        .unwrap_or_else(|mistakes| panic!("docs/differences.md:\n{}", mistakes.join("\n")));

    let scratch = Scratch::new("oracle");
    copy_tree(&repository().join("tests/probes"), &scratch.join("site"));
    // There is only one child, so each request finds whatever the previous one has left behind.
    let site = Site::new(scratch.join("site"))
        .children(1)
        .environment("PROBE_SETTING", "from the site");

    let subject = ServerKind::chosen();
    let probes = oracle_requests::all();
    let ours = testimony(subject, &site, &probes);
    let mut ledger = Ledger::new(accepted);
    let mut asked = Vec::new();
    for rival in [ServerKind::NginxFpm, ServerKind::ModPhp]
        .into_iter()
        .filter(|rival| *rival != subject)
    {
        let theirs = testimony(rival, &site, &probes);
        for probe in &probes {
            for found in compare(&probe.name, &ours[&probe.name], &theirs[&probe.name]) {
                ledger.enter(subject.name(), rival.name(), &found);
            }
        }
        asked.push(rival.name());
    }
    ledger.close("docs/differences.md", &asked);
}

/// Returns one server's responses to all probes.
fn testimony(
    kind: ServerKind,
    site: &Site,
    probes: &[Probe],
) -> BTreeMap<String, ResponseProperties> {
    let server = kind.start(site);
    let mut witness = ProbedServer::new(server.address(), &site.root.display().to_string());
    let mut answers = BTreeMap::new();
    for probe in probes {
        let before = answers.insert(probe.name.clone(), witness.ask(probe));
        assert!(before.is_none(), "two probes are called {}", probe.name);
    }
    answers
}

/// opcache runs only under SAPI names that it knows, so another name would disable it silently.
#[test]
fn opcache_is_on_in_a_request_and_scripts_share_it() {
    let scratch = Scratch::new("opcache");
    copy_tree(&repository().join("tests/probes"), &scratch.join("site"));
    let site = Site::new(scratch.join("site")).children(2);
    let server = ServerKind::chosen().start(&site);
    let mut witness = ProbedServer::new(server.address(), &site.root.display().to_string());
    let probe = Probe::get("functions", "/functions.php");
    for _ in 0..2 {
        let facts = witness.ask(&probe);
        assert_eq!(
            facts.get("opcache.enabled").map(String::as_str),
            Some("true"),
            "{facts:?}"
        );
    }
    let facts = witness.ask(&probe);
    assert_eq!(
        facts.get("opcache.this_script").map(String::as_str),
        Some("true"),
        "{facts:?}"
    );
}
