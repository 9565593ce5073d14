//! A fleet in the status, as text and as metrics.

use std::fmt::Write;

use howdah_fleet::FleetStatus;

use super::format::MetricsText;

/// Appends the fleet's part of the status page as text.
pub(super) fn append_text(out: &mut String, fleet: &FleetStatus) {
    let lease = match fleet.lease_left > 0.0 {
        true => format!(
            "stored pages may be served for another {:.1} s",
            fleet.lease_left
        ),
        false => "no stored pages are served".to_owned(),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "  fleet: member {} of {}, connected through {}; {lease}; {} writes, {} of them unconfirmed",
        fleet.member, fleet.members, fleet.valkey, fleet.writes, fleet.let_go
    );
    if !fleet.others.is_empty() {
        let _ = writeln!(out, "    other members: {}", fleet.others.join(", "));
    }
    if !fleet.silent.is_empty() {
        let _ = writeln!(out, "    silent members: {}", fleet.silent.join(", "));
    }
    let renders = fleet.renders.iter().filter(|(_, n)| *n > 0);
    let renders: Vec<String> = renders.map(|(name, n)| format!("{n} {name}")).collect();
    if !renders.is_empty() {
        let _ = writeln!(out, "    renders shared: {}", renders.join(", "));
    }
    if !fleet.trouble.is_empty() {
        let _ = writeln!(out, "    {}", fleet.trouble);
    }
}

pub(super) fn append_metrics(m: &mut MetricsText, fleet: &FleetStatus) {
    m.single("howdah_fleet_members", fleet.members);
    m.single("howdah_fleet_members_silent", fleet.silent.len());
    m.single("howdah_fleet_lease_seconds", fleet.lease_left);
    m.family("howdah_fleet_confirmation_seconds")
        .histogram(&fleet.confirmations, fleet.confirmation_seconds);
    m.single("howdah_fleet_unheard_writes_total", fleet.let_go);
    m.single("howdah_fleet_applied_total", fleet.applied);
    let mut renders = m.family("howdah_fleet_renders_total");
    for (name, n) in &fleet.renders {
        renders.add(&[name], n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_names_members_renders_and_trouble() {
        let mut fleet = FleetStatus {
            member: "m1".to_owned(),
            valkey: "redis://v".to_owned(),
            members: 3,
            lease_left: 1.25,
            writes: 7,
            let_go: 2,
            ..FleetStatus::default()
        };
        let text = |fleet: &FleetStatus| {
            let mut out = String::new();
            append_text(&mut out, fleet);
            out
        };
        let first = "  fleet: member m1 of 3, connected through redis://v; stored pages may be served for another 1.2 s; 7 writes, 2 of them unconfirmed\n";
        assert_eq!(text(&fleet), first);
        fleet.lease_left = 0.0;
        fleet.others = vec!["m2".to_owned(), "m3".to_owned()];
        fleet.silent = vec!["m3".to_owned()];
        fleet.renders = vec![("Taken".to_owned(), 4), ("Given".to_owned(), 0)];
        fleet.trouble = "no route".to_owned();
        assert_eq!(
            text(&fleet),
            "  fleet: member m1 of 3, connected through redis://v; no stored pages are served; 7 writes, 2 of them unconfirmed\n    other members: m2, m3\n    silent members: m3\n    renders shared: 4 Taken\n    no route\n"
        );
    }
}
