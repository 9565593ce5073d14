//! Translates the certificates of a host, and client certificates.

use howdah_os::shell::shell_quoted;

use super::hosts::ApacheHost;
use super::site::HostTranslation;
use crate::directive::Directive;
use crate::rule_condition::RuleCondition;
use crate::stages::RuleStage;
use crate::target::TomlTable;

/// Translates `SSLCertificateFile` and similar directives.
pub fn translate_certificates(work: &mut HostTranslation<'_, '_>) {
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
        work.ledger.mark_carried(line.id);
        if let Some(key) = key {
            work.ledger.mark_carried(key.id);
        }
        if !work.host.tls {
            continue;
        }
        let mut table = TomlTable::default();
        let file = work.context.path(line.arg(0));
        table.set("file", file.as_str(), Some(&line.place));
        // The key may be in the same file.
        match key {
            Some(key) => table.set("key", work.context.path(key.arg(0)), Some(&key.place)),
            None => table.set("key", file.as_str(), Some(&line.place)),
        }
        work.site.certificates.push(table);
        // Apache sends the intermediate certificates from a separate file.
        if let Some(chain) = chains.last() {
            let above = work.context.path(chain.arg(0));
            let need = format!(
                "one file for both: cat {} {} > fullchain.pem, and name it as `file`",
                shell_quoted(&file),
                shell_quoted(&above)
            );
            work.ledger.mark_missing(chain.id, need);
        }
    }
    translate_client_certificates(work);
}

/// Howdah's setting for client certificates applies to all sites. If the hosts differ, a host that required
/// certificates stays closed until it is set.
fn translate_client_certificates(work: &mut HostTranslation<'_, '_>) {
    let of = |name: &str| work.host.lines.iter().rev().find(|d| d.name == name);
    let Some(verify) = of("sslverifyclient") else {
        return;
    };
    let ledger = work.ledger;
    let word = verify.arg(0).to_ascii_lowercase();
    if word == "none" {
        return ledger.mark_carried(verify.id);
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
        ledger.mark_carried(verify.id);
        return ledger.mark_carried(file.id);
    }
    if word == "require" {
        work.stages.push(
            RuleStage::InternalPaths,
            RuleCondition::default().rule("deny", 403, &verify.place),
        );
    }
    let need = "[tls] client_ca and verify_client hold for all sites; until they are set, this site is closed";
    ledger.mark_missing_protection(verify.id, need);
}

/// Returns whether all hosts with TLS request client certificates in the same way.
pub fn have_same_client_ca<'h, 'a: 'h>(hosts: impl Iterator<Item = &'h ApacheHost<'a>>) -> bool {
    let asked = |host: &ApacheHost<'_>| -> Vec<String> {
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
