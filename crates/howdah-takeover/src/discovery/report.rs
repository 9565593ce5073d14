//! The table that `howdah takeover plan` prints.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use howdah_os::output::counted;

use super::servers::kind_name;
use crate::plan::{
    Finding, ListenAddress, Plan, PlannedSite, RunningServer, Severity, SiteAddress,
};

/// The maximum number of different notes that are printed. All of them are in the file.
const MAX_NOTES: usize = 25;
/// The maximum number of different findings of the other severities that are printed.
const MAX_FINDINGS: usize = 100;
/// The maximum number of addresses of a server that are printed.
const MAX_ADDRESSES: usize = 8;
/// The maximum width of a column of the table of sites.
const MAX_COLUMN: usize = 44;

/// Formats a plan for the terminal.
pub fn format(plan: &Plan, directory: &Path) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "Servers ({})\n", plan.servers.len());
    for server in &plan.servers {
        write_server(&mut out, server);
    }
    let _ = writeln!(out, "\nSites ({})\n", plan.sites.len());
    write_sites(&mut out, &plan.sites);
    write_findings(&mut out, &plan.findings);
    let directory = directory.display();
    let blocks = plan
        .findings
        .iter()
        .filter(|found| found.severity == Severity::Blocks)
        .count();
    let next = match blocks {
        0 => format!("Next: howdah takeover try --dir {directory}"),
        _ => "Remove the causes of the findings that block the switch, then make the plan again."
            .to_owned(),
    };
    let _ = writeln!(
        out,
        "\nThe plan and the configuration are in {directory}. {next}"
    );
    // File names and names of hosts may contain any character, and control characters could change the terminal.
    out.replace(|c: char| c.is_control() && c != '\n', "?")
}

fn write_server(out: &mut String, server: &RunningServer) {
    let unit = server
        .unit
        .as_ref()
        .map(|unit| format!(", {unit}"))
        .unwrap_or_default();
    let listeners = server.listeners.iter().take(MAX_ADDRESSES);
    let mut addresses: Vec<String> = listeners.map(|listener| shown(&listener.address)).collect();
    if server.listeners.len() > MAX_ADDRESSES {
        addresses.push(format!(
            "and {} more",
            server.listeners.len() - MAX_ADDRESSES
        ));
    }
    let _ = writeln!(
        out,
        "  {} (process {}{unit}): {}",
        kind_name(server.kind),
        server.pid,
        server.configuration.display()
    );
    let _ = writeln!(out, "      listens on {}", addresses.join(", "));
    if let Some(notes) = &server.loaded.notes {
        let counts = server.loaded.directives;
        let _ = writeln!(
            out,
            "      {}: {} carried over ({} with a difference), {} without a meaning in Howdah, {} not carried over ({} of them denied or limited access): {}",
            counted(
                counts.carried + counts.irrelevant + counts.missing,
                "directive"
            ),
            counts.carried,
            counts.different,
            counts.irrelevant,
            counts.missing,
            counts.missing_protections,
            notes.display()
        );
    }
}

fn shown(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Tcp(address) => address.to_string(),
        ListenAddress::Unix(path) => path.display().to_string(),
    }
}

/// Writes the table of sites, with columns as wide as their longest text.
fn write_sites(out: &mut String, sites: &[PlannedSite]) {
    let header = ["SITE", "SERVED BY", "AT", "PHP", "ROOT"].map(str::to_owned);
    let row = |site: &PlannedSite| {
        let mut addresses: Vec<String> = site.addresses.iter().map(short_address).collect();
        addresses.dedup();
        [
            site.name.clone(),
            kind_name(site.served_by).to_owned(),
            addresses.join(", "),
            site.php.clone(),
            site.root.display().to_string(),
        ]
    };
    let rows: Vec<[String; 5]> = std::iter::once(header)
        .chain(sites.iter().map(row))
        .collect();
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0).min(MAX_COLUMN)
    };
    let widths = [0, 1, 2, 3].map(width);
    for [name, server, addresses, php, root] in &rows {
        let line = format!(
            "  {name:<0$}  {server:<1$}  {addresses:<2$}  {php:<3$}  {root}",
            widths[0], widths[1], widths[2], widths[3]
        );
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// Returns an address as it fits into a column: `*:443 tls` for all addresses of IPv4 or IPv6.
fn short_address(site: &SiteAddress) -> String {
    let tls = if site.tls { " tls" } else { "" };
    match site.address.ip().is_unspecified() {
        true => format!("*:{}{tls}", site.address.port()),
        false => format!("{}{tls}", site.address),
    }
}

/// Findings with the same text, or the same remedy, are one entry with several places.
type FindingGroup<'f> = (&'f Finding, Vec<&'f Finding>);

fn group<'f>(findings: &[&'f Finding]) -> Vec<FindingGroup<'f>> {
    let mut groups: Vec<FindingGroup<'_>> = Vec::new();
    let mut known: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for found in findings {
        let same = match (found.severity, found.remedy.as_str()) {
            (Severity::Blocks, _) | (_, "") => found.message.as_str(),
            (_, remedy) => remedy,
        };
        let at = *known.entry((&found.name, same)).or_insert(groups.len());
        match groups.get_mut(at) {
            Some((_, all)) => all.push(found),
            None => groups.push((found, vec![found])),
        }
    }
    groups
}

fn write_findings(out: &mut String, findings: &[Finding]) {
    for (severity, title, most) in [
        (
            Severity::Blocks,
            "These findings block the switch",
            MAX_FINDINGS,
        ),
        (Severity::Risk, "Risks", MAX_FINDINGS),
        (Severity::Note, "Notes", MAX_NOTES),
    ] {
        let of_this: Vec<&Finding> = findings
            .iter()
            .filter(|found| found.severity == severity)
            .collect();
        if of_this.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n{title} ({})", of_this.len());
        let groups = group(&of_this);
        for (found, all) in groups.iter().take(most) {
            write_group(out, found, all);
        }
        if groups.len() > most {
            let _ = writeln!(out, "\n  {} more are in plan.json", groups.len() - most);
        }
    }
}

fn write_group(out: &mut String, found: &Finding, all: &[&Finding]) {
    let site = found
        .site
        .as_ref()
        .map(|site| format!("  site {site}"))
        .unwrap_or_default();
    let place = found
        .place
        .as_ref()
        .map(|place| format!("  {place}"))
        .unwrap_or_default();
    let more = match all.len() {
        1 => String::new(),
        many => format!("  and {} more", many - 1),
    };
    let _ = writeln!(out, "\n  {}{site}{place}{more}", found.name);
    let _ = writeln!(out, "      {}", found.message);
    if !found.remedy.is_empty() {
        let _ = writeln!(out, "      {}", found.remedy);
    }
}
