//! The page cache of several servers (docs/fleet.md): the purges of this server are published as text, and those of
//! other members are carried out here. All members identify a site by its name.
//!
//! The agreement between the members is implemented by `howdah_fleet`.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use howdah_cache::generation::{Force, Purge, PurgeRelay};
use howdah_cache::{Millis, Pass};
use howdah_fleet::protocol::LogEntry;
use howdah_fleet::{EVERYTHING, Fenced, Fleet, InvalidationText};
use serde::Serialize;

use super::explain::explain_here;
use super::{PageCache, SiteCache, now};
use crate::failure::Failure;
use crate::script::pump::Confirmation;
use howdah_site::site::Sites;

/// What `howdah cache explain` reports about the fleet.
#[derive(Debug, Serialize)]
pub(super) struct FleetExplanation {
    /// This server's name.
    member: String,
    /// For how many seconds this server may continue to serve stored pages without Valkey; 0 if it may serve none.
    lease_left: f64,
    /// Members that are silent. While any member is silent, no member serves stored pages.
    silent: Vec<String>,
    /// What happens on the other members; `None` for a member that has not answered.
    answers: BTreeMap<String, Option<String>>,
    /// Why the other members could not be asked; `None` if they were.
    unasked: Option<String>,
    /// Why the last exchange with Valkey failed; empty if it succeeded.
    trouble: String,
}

impl FleetExplanation {
    /// Writes which members may serve stored pages.
    pub fn write_leases(&self, out: &mut String) {
        // Writing to a string cannot fail.
        let _ = match self.lease_left > 0.0 {
            true => writeln!(
                out,
                "fleet: {} serves stored pages, and continues for {:.1} s if Valkey fails",
                self.member, self.lease_left
            ),
            false => writeln!(
                out,
                "fleet: {} has no lease and renders every page: {}",
                self.member,
                Pass::NoLease
            ),
        };
        if !self.silent.is_empty() {
            let _ = writeln!(
                out,
                "  no member serves stored pages, because these members are silent: {}",
                self.silent.join(", ")
            );
        }
        if !self.trouble.is_empty() {
            let _ = writeln!(out, "  Valkey: {}", self.trouble);
        }
    }

    /// Writes what happens on the other members, each of which has pages of its own.
    pub fn write_answers(&self, out: &mut String) {
        if let Some(why) = &self.unasked {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "the other members could not be asked: {why}");
            return;
        }
        for (name, answer) in &self.answers {
            let answer = answer.as_deref().unwrap_or("does not respond");
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{name}: {answer}");
        }
    }
}

/// Publishes the purges of a site.
#[derive(Debug)]
struct FleetRelay {
    site: String,
    fleet: Arc<Fleet>,
}

impl PurgeRelay for FleetRelay {
    fn relay_purge(&self, what: &Purge, force: Force) {
        self.fleet.publish(purge_text(&self.site, what, force));
    }
}

/// Returns the text of a purge for the other members: force, kind, the key, tag or path in base64, and the site's name.
pub(super) fn purge_text(site: &str, what: &Purge, force: Force) -> InvalidationText {
    let force = match force {
        Force::Hard => "hard",
        Force::Soft { .. } => "soft",
    };
    let (kind, bytes): (_, &[u8]) = match what {
        Purge::All => ("all", b""),
        Purge::Url(key) => ("url", key),
        Purge::Tag(tag) => ("tag", tag),
        Purge::Path { text, exact: true } => ("path", text),
        Purge::Path { text, exact: false } => ("prefix", text),
    };
    format!("{force} {kind} {} {site}", STANDARD_NO_PAD.encode(bytes)).into()
}

/// Invalidates all pages of this site on all members. Without a site, all pages of all sites are invalidated; this is
/// for callers that do not know the sites' rules.
pub fn publish_everything(fleet: &Fleet, site: Option<&str>) {
    fleet.publish(match site {
        Some(site) => purge_text(site, &Purge::All, Force::Hard),
        None => EVERYTHING.into(),
    });
}

/// Parses the text of a purge; `None` if another version of Howdah has written it.
pub(super) fn parse_purge(text: &str, now: Millis) -> Option<(&str, Purge, Force)> {
    let mut words = text.splitn(4, ' ');
    let force = match words.next()? {
        "hard" => Force::Hard,
        "soft" => Force::Soft { at: now },
        _ => return None,
    };
    let kind = words.next()?;
    let bytes = STANDARD_NO_PAD.decode(words.next()?).ok()?;
    let what = match kind {
        "all" => Purge::All,
        "url" => Purge::Url(bytes),
        "tag" => Purge::Tag(bytes),
        "path" | "prefix" => Purge::Path {
            text: bytes,
            exact: kind == "path",
        },
        _ => return None,
    };
    Some((words.next()?, what, force))
}

/// Names of sites of other members that are not configured here. Each is logged once.
#[derive(Debug, Default)]
pub struct UnknownSites(Mutex<HashSet<String>>);

impl UnknownSites {
    /// The maximum number of names that are remembered.
    const MAX_REMEMBERED: usize = 1000;

    fn is_new(&self, site: &str) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.len() < UnknownSites::MAX_REMEMBERED && known.insert(site.to_owned())
    }
}

impl PageCache {
    /// Carries out a purge that another member has published. A purge for a site that is not configured here applies to
    /// all sites, since the site may be configured here under another name. The first such purge of a site returns the
    /// site's name.
    pub fn apply_fleet_entry(
        &self,
        sites: &Sites,
        entry: &LogEntry<InvalidationText>,
        unknown: &UnknownSites,
    ) -> Option<String> {
        let purge = match entry {
            LogEntry::Everything => None,
            LogEntry::Purge(text) => parse_purge(text, now()),
        };
        let Some((site, what, force)) = purge else {
            self.purge_all_sites();
            return None;
        };
        let named = sites
            .all()
            .iter()
            .filter(|known| known.config().name == site);
        let numbers: Vec<u32> = named.map(|known| known.number()).collect();
        if numbers.is_empty() {
            self.purge_all_sites();
            return unknown.is_new(site).then(|| site.to_owned());
        }
        for part in numbers
            .iter()
            .filter_map(|number| self.site_by_number(*number))
        {
            part.generations.purge_locally(&what, force);
        }
        None
    }

    /// Removes a member from the fleet; the administrator vouches that it no longer runs.
    pub(super) fn forget_member(&self, member: &str) -> Result<String, String> {
        let Some(fleet) = &self.process.fleet else {
            return Err("NoFleet: [fleet] is not configured".to_owned());
        };
        if fleet.status().member == member {
            return Err(format!("FleetMemberRuns: `{member}` is this server"));
        }
        fleet.forget(member);
        Ok(format!("no member waits for `{member}` any more"))
    }

    /// Asks the other members what would happen to a request there, and waits for them. `None` if there is no fleet.
    pub(super) fn explain_on_fleet(
        &self,
        url: &str,
        fields: &[String],
    ) -> Option<FleetExplanation> {
        let fleet = self.process.fleet.as_ref()?;
        let question = serde_json::json!((url, fields)).to_string();
        let (answers, unasked) = match fleet.ask_members(&question) {
            Ok(answers) => (answers, None),
            Err(why) => (BTreeMap::new(), Some(why)),
        };
        let status = fleet.status();
        let others = status.others.into_iter();
        Some(FleetExplanation {
            answers: others
                .map(|name| {
                    let answer = answers.get(&name).cloned();
                    (name, answer)
                })
                .collect(),
            unasked,
            member: status.member,
            lease_left: status.lease_left,
            silent: status.silent,
            trouble: status.trouble,
        })
    }

    /// Answers another member's question in one line.
    pub fn explain_for_member(&self, sites: &Sites, question: &str) -> String {
        let Ok((url, fields)) = serde_json::from_str::<(String, Vec<String>)>(question) else {
            return "this member runs another version of Howdah".to_owned();
        };
        let explanation = match explain_here(sites, self, &url, &fields) {
            Ok(explanation) => explanation,
            Err(why) => return why,
        };
        if explanation.preset.is_none() {
            return format!("site {}: the page cache is off", explanation.site);
        }
        let mut facts = Vec::new();
        if self
            .process
            .fleet
            .as_ref()
            .is_some_and(|fleet| !fleet.may_serve())
        {
            facts.push("this member has no lease and renders every page");
        }
        let lines = explanation.lines.iter().map(|line| line.trim());
        // Tags are omitted, because a page may have many of them.
        facts.extend(lines.filter(|line| !line.starts_with("tag: ")));
        facts.join("; ")
    }

    fn purge_all_sites(&self) {
        for generations in self.generations() {
            generations.purge_locally(&Purge::All, Force::Hard);
        }
    }

    /// Waits until all members have carried out the purges so far. Blocks the thread, which must not have a runtime.
    pub(super) fn wait_for_fleet(&self) -> Result<(), String> {
        let Some(fleet) = &self.process.fleet else {
            return Ok(());
        };
        fleet
            .block_until_confirmed(fleet.last_ticket())
            .map_err(|Fenced| {
                let failure = Failure::FleetFenced;
                format!(
                    "{}: the purge was carried out on this server, but no other server was notified: {}",
                    failure.name(),
                    failure.message()
                )
            })
    }
}

impl SiteCache {
    /// Publishes this site's purges to the fleet, if there is one.
    pub(super) fn join_fleet(&mut self, site: &str, fleet: Option<&Arc<Fleet>>) {
        let relay = fleet.map(|fleet| {
            let relay = FleetRelay {
                site: site.to_owned(),
                fleet: fleet.clone(),
            };
            Arc::new(relay) as Arc<dyn PurgeRelay>
        });
        self.generations.set_relay(relay);
        if fleet.is_some() {
            // All pages are invalidated, because writes that happened while no process of this member ran are unknown.
            self.generations.purge_locally(&Purge::All, Force::Hard);
        }
        self.fleet = fleet.cloned();
    }

    /// Returns whether the fleet, if there is one, currently permits stored pages to be served.
    pub(super) fn may_serve_by_fleet(&self) -> bool {
        self.fleet.as_ref().is_none_or(|fleet| fleet.may_serve())
    }

    /// Returns a future that waits until all members have carried out the purges so far; `None` if there is no fleet.
    pub(super) fn confirmation_by_fleet(&self) -> Option<Confirmation> {
        let fleet = self.fleet.clone()?;
        let last = fleet.last_ticket();
        Some(Box::pin(async move {
            let confirmed = fleet.wait_until_confirmed(last).await;
            confirmed.map_err(|Fenced| Failure::FleetFenced)
        }))
    }

    /// Returns whether responses to writes must be withheld, because no other member could be notified.
    pub fn is_fenced(&self) -> bool {
        self.fleet.as_ref().is_some_and(|fleet| fleet.is_fenced())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purge_text_is_parsed_back() {
        let path = |exact| Purge::Path {
            text: b"/\xc3\xa4 b".to_vec(),
            exact,
        };
        for what in [
            Purge::All,
            Purge::Url(b"\0\0\0\x07s|h|/a?b".to_vec()),
            Purge::Tag(b"post 1".to_vec()),
            path(true),
            path(false),
        ] {
            for force in [Force::Hard, Force::Soft { at: 7 }] {
                let text = purge_text("my site", &what, force);
                assert_eq!(
                    parse_purge(&text, 7),
                    Some(("my site", what.clone(), force))
                );
            }
        }
        assert_eq!(parse_purge("hard all", 7), None);
    }

    #[test]
    fn unknown_site_is_reported_once_and_few_are_remembered() {
        let unknown = UnknownSites::default();
        assert!(unknown.is_new("a"));
        assert!(!unknown.is_new("a"));
        let mut names = (1..UnknownSites::MAX_REMEMBERED).map(|n| n.to_string());
        assert!(names.all(|name| unknown.is_new(&name)));
        assert!(!unknown.is_new("one too many"));
    }
}
