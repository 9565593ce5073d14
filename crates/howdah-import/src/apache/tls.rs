//! Certificates of a host, and those of clients.

use super::hosts::Host;
use super::site::Work;
use crate::directive::{Directive, quoted};
use crate::stages::Stage;
use crate::target::Table;
use crate::when::When;

/// `SSLCertificateFile` and its kin.
pub fn certificates(work: &mut Work<'_, '_>) {
    let own: Vec<&Directive> = work.host.lines.iter().collect();
    let of = |name: &str| {
        own.iter()
            .copied()
            .filter(|d| d.name == name)
            .collect::<Vec<_>>()
    };
    let (files, keys, chains) = (
        of("sslcertificatefile"),
        of("sslcertificatekeyfile"),
        of("sslcertificatechainfile"),
    );
    for (number, line) in files.iter().enumerate() {
        let key = keys.get(number).or(keys.last());
        work.ledger.carried(line.id);
        if let Some(key) = key {
            work.ledger.carried(key.id);
        }
        if !work.host.tls {
            continue;
        }
        let mut table = Table::default();
        let file = work.context.path(line.arg(0));
        table.set("file", file.as_str(), Some(&line.place));
        // The key may be in the same file.
        match key {
            Some(key) => table.set("key", work.context.path(key.arg(0)), Some(&key.place)),
            None => table.set("key", file.as_str(), Some(&line.place)),
        }
        work.site.certificates.push(table);
        // Apache sends the certificates above it from a file of their own.
        if let Some(chain) = chains.last() {
            let above = work.context.path(chain.arg(0));
            let need = format!(
                "one file for both: cat {} {} > fullchain.pem, and name it as `file`",
                quoted(&file),
                quoted(&above)
            );
            work.ledger.list(chain.id, need);
        }
    }
    clients(work);
}

/// Whoever has no certificate is refused for all sites, or for none: what closed one site stays closed.
fn clients(work: &mut Work<'_, '_>) {
    let of = |name: &str| work.host.lines.iter().rev().find(|d| d.name == name);
    let Some(verify) = of("sslverifyclient") else {
        return;
    };
    let ledger = work.ledger;
    let word = verify.arg(0).to_ascii_lowercase();
    if word == "none" {
        return ledger.carried(verify.id);
    }
    let authorities = of("sslcacertificatefile");
    if let (Some(file), true) = (
        authorities,
        work.context.one_client_ca && matches!(word.as_str(), "require" | "optional"),
    ) {
        let path = work.context.path(file.arg(0));
        let table = work.context.config.section("tls");
        table.set("client_ca", path, Some(&file.place));
        table.set(
            "verify_client",
            if word == "require" { "on" } else { "optional" },
            Some(&verify.place),
        );
        ledger.carried(verify.id);
        return ledger.carried(file.id);
    }
    if word == "require" {
        work.stages.push(
            Stage::Inside,
            When::default().rule("deny", 403, &verify.place),
        );
    }
    let need = "[tls] client_ca and verify_client hold for all sites; until they are set, this site is closed";
    ledger.list_protection(verify.id, need);
}

/// Whether all hosts with TLS ask for clients' certificates in the same way.
pub fn is_one_for_all<'h, 'a: 'h>(hosts: impl Iterator<Item = &'h Host<'a>>) -> bool {
    let asked = |host: &Host<'_>| -> Vec<String> {
        let lines = host
            .lines
            .iter()
            .filter(|d| matches!(d.name.as_str(), "sslverifyclient" | "sslcacertificatefile"));
        lines
            .map(|line| format!("{} {}", line.name, line.arg(0)))
            .collect()
    };
    let mut secure = hosts.filter(|host| host.tls).map(asked);
    let first = secure.next();
    secure.all(|other| Some(&other) == first.as_ref())
}
