//! Translates the certificates of a host, and client certificates.

use howdah_os::shell::shell_quoted;

use super::host::ApacheHost;
use super::server::ServerContext;
use crate::directive::SourceLine;
use crate::rule_condition::RuleCondition;
use crate::target::TomlTable;

/// The certificates of a host.
#[derive(Debug, Default)]
pub struct HostCertificates {
    /// The `[[site.certificate]]` tables.
    pub certificates: Vec<TomlTable>,
    /// The authority of client certificates, if Howdah's setting for all sites has the same effect.
    pub client_authority: Option<ClientAuthority>,
    /// A rule that closes the site.
    pub denial: Option<TomlTable>,
}

/// The authority of client certificates.
#[derive(Debug)]
pub struct ClientAuthority {
    file: (String, SourceLine),
    verify: (&'static str, SourceLine),
}

impl ClientAuthority {
    /// Writes the options of `[tls]`.
    pub fn write(&self, table: &mut TomlTable) {
        let (file, place) = &self.file;
        table.set("client_ca", file.as_str(), Some(place));
        let (verify, place) = &self.verify;
        table.set("verify_client", *verify, Some(place));
    }
}

/// Translates `SSLCertificateFile` and similar directives.
pub fn translate_certificates(
    host: &ApacheHost<'_>,
    server: &ServerContext<'_>,
) -> HostCertificates {
    let ledger = server.ledger;
    let mut found = HostCertificates::default();
    let of = |name: &str| {
        let lines = host.lines.iter().filter(|d| d.name == name);
        lines.collect::<Vec<_>>()
    };
    let (files, keys, chains) = (
        of("sslcertificatefile"),
        of("sslcertificatekeyfile"),
        of("sslcertificatechainfile"),
    );
    for (number, line) in files.iter().enumerate() {
        let key = keys.get(number).or(keys.last());
        ledger.mark_carried(line.id);
        if let Some(key) = key {
            ledger.mark_carried(key.id);
        }
        if !host.tls {
            continue;
        }
        let mut table = TomlTable::default();
        let file = server.path(line.arg(0));
        table.set("file", file.as_str(), Some(&line.place));
        // The key may be in the same file.
        match key {
            Some(key) => table.set("key", server.path(key.arg(0)), Some(&key.place)),
            None => table.set("key", file.as_str(), Some(&line.place)),
        }
        found.certificates.push(table);
        // Apache sends the intermediate certificates from a separate file.
        if let Some(chain) = chains.last() {
            let above = server.path(chain.arg(0));
            let need = format!(
                "put both into one file (cat {} {} > fullchain.pem), and name that file in `file`",
                shell_quoted(&file),
                shell_quoted(&above)
            );
            ledger.mark_missing(chain.id, need);
        }
    }
    translate_client_certificates(host, server, &mut found);
    found
}

/// Translates client certificates. Howdah's setting for them applies to all sites. If the hosts differ, the site of a
/// host that required certificates denies all requests until an administrator makes the setting and removes the rule.
fn translate_client_certificates(
    host: &ApacheHost<'_>,
    server: &ServerContext<'_>,
    found: &mut HostCertificates,
) {
    let of = |name: &str| host.lines.iter().rev().find(|d| d.name == name);
    let Some(verify) = of("sslverifyclient") else {
        return;
    };
    let ledger = server.ledger;
    let word = verify.arg(0).to_ascii_lowercase();
    if word == "none" {
        return ledger.mark_carried(verify.id);
    }
    let authorities = of("sslcacertificatefile");
    if let (Some(file), true) = (
        authorities,
        server.one_client_ca && matches!(word.as_str(), "require" | "optional"),
    ) {
        let on = if word == "require" { "on" } else { "optional" };
        found.client_authority = Some(ClientAuthority {
            file: (server.path(file.arg(0)), file.place.clone()),
            verify: (on, verify.place.clone()),
        });
        ledger.mark_carried(verify.id);
        return ledger.mark_carried(file.id);
    }
    if word == "require" {
        found.denial = Some(RuleCondition::default().rule("deny", 403, &verify.place));
    }
    let need = "`client_ca` and `verify_client` in [tls] apply to all sites; until they are set, access to this site is denied";
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
