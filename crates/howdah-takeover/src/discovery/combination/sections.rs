//! The settings that apply to all sites of Howdah.

use howdah_import::target::{TargetConfig, TomlValue};
use howdah_os::account::{find_group, find_user};

use super::super::findings::{Findings, finding};
use super::super::imports::{text, texts};
use super::super::servers::FoundServer;
use crate::plan::Severity;

/// Merges the lines before the first section. The first server's apply; the others get theirs in their sites and pools.
pub fn merge_top(
    all: &mut TargetConfig,
    config: &mut TargetConfig,
    server: &FoundServer,
    findings: &mut Findings,
) {
    let Some(user) = text(&all.top, "user").map(str::to_owned) else {
        all.top = config.top.clone();
        return;
    };
    let own = text(&config.top, "user").unwrap_or_default().to_owned();
    if is_same_user(&own, &user) {
        return;
    }
    for (_, table, _) in &mut config.pools {
        if text(table, "mode") == Some("embed") && table.get("user").is_none() {
            table.set("user", own.as_str(), None);
        }
    }
    findings.push(finding(
        Severity::Risk,
        "UserDiffers",
        format!(
            "{} runs as {own}; Howdah reads the files of all sites as {user}, and runs PHP as before",
            server.display()
        ),
        &format!("Let {user} read the files of these sites, for example by adding it to the group of {own}."),
    ));
}

/// Returns whether two texts of the form `USER` or `USER:GROUP` name the same user and group.
fn is_same_user(one: &str, other: &str) -> bool {
    let ids = |text: &str| {
        let (user, group) = text
            .split_once(':')
            .map_or((text, None), |(user, group)| (user, Some(group)));
        let account = find_user(user)?;
        Some((account.uid, group.map_or(Some(account.gid), find_group)?))
    };
    one == other || ids(one).is_some_and(|one| Some(one) == ids(other))
}

/// Merges the sections. A value that is known remains, and one that differs from it is a finding.
pub fn merge_sections(
    all: &mut TargetConfig,
    config: &TargetConfig,
    server: &FoundServer,
    findings: &mut Findings,
) {
    let is_first = all.sites.is_empty();
    for (section, table) in &config.sections {
        for (key, value, place) in &table.pairs {
            let known = all.section(section).get(key).cloned();
            if known.as_ref() == Some(value) {
                continue;
            }
            let lines = &mut all.section(section).pairs;
            match (*section, &known) {
                ("trusted_proxies", Some(TomlValue::Texts(networks))) if key == "networks" => {
                    let mut both = networks.clone();
                    both.extend(texts(table, key).iter().cloned());
                    both.sort();
                    both.dedup();
                    all.section(section).set(key, TomlValue::Texts(both), None);
                }
                (_, None) => lines.push((key.clone(), value.clone(), place.clone())),
                _ => {}
            }
            if !is_first {
                report(section, key, place.as_deref(), server, findings);
            }
        }
    }
    if !is_first && !config.sections.contains_key("tls") && all.sections.contains_key("tls") {
        report("tls", "verify_client", None, server, findings);
    }
}

/// Adds the finding about a setting in which two servers differ.
fn report(
    section: &str,
    key: &str,
    place: Option<&str>,
    server: &FoundServer,
    findings: &mut Findings,
) {
    let server = server.display();
    let (severity, name, message, remedy) = match section {
        "tls" => (
            Severity::Blocks,
            "ClientCertificatesDiffer",
            format!(
                "{server} and another server have different rules for client certificates, but `{key}` of [tls] applies to all sites"
            ),
            "Take over one of the servers later: name the others with --server when you make the plan.",
        ),
        "trusted_proxies" => (
            Severity::Risk,
            "TrustedProxiesDiffer",
            format!(
                "{server} and another server do not trust the same proxies; Howdah trusts those of both, for all sites"
            ),
            "In [trusted_proxies], remove the networks whose clients must not be able to report another address.",
        ),
        _ => (
            Severity::Note,
            "SettingDiffers",
            format!(
                "{server} and another server differ in `{key}` of [{section}], which has one value for all sites"
            ),
            "",
        ),
    };
    let mut found = finding(severity, name, message, remedy);
    found.place = place.map(str::to_owned);
    findings.push(found);
}
