//! Executes an administrator's purge and explain commands. Commands and results are text; the control socket decides
//! who may send them.

use howdah_cache::Object;
use howdah_cache::generation::{Force, Purge};
use howdah_cache::purge::{self, PurgeCommand};
use howdah_proto::effect::WriteEffect;
use serde::{Deserialize, Serialize};

use super::explain::explain;
use super::{PageCache, SiteCache, now, run_effects};
use howdah_site::site::{Site, Sites};

/// An administrator's request to the page cache, as the control socket carries it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminCommand {
    /// Invalidates stored pages, or removes them.
    Purge {
        /// The name of the only site to purge; `None` for any site. A URL with a host is purged only on the sites of
        /// that host.
        site: Option<String>,
        /// Whether all pages are purged.
        all: bool,
        /// Paths or URLs, which are purged with all their queries. A `*` at the end matches everything that begins with
        /// the text.
        urls: Vec<String>,
        /// Tags; pages that have one of them are purged.
        tags: Vec<String>,
        /// Whether the pages may still be served while new ones are rendered.
        soft: bool,
    },
    /// Applies the writes and purges of a PHP process outside the server, for example on a command line.
    Wrote {
        /// The only site whose pages are affected; `None` for all sites.
        site: Option<String>,
        /// The reported writes ([`howdah_proto::effect::WriteEffect`]).
        writes: Vec<String>,
        /// The purges, in the syntax of `howdah_cache_purge()`.
        #[serde(default)]
        purges: Vec<String>,
    },
    /// Carries out purges that the previous process passes on during an upgrade, in the form of a fleet's purges.
    Relayed {
        /// The purges, in order.
        purges: Vec<String>,
    },
    /// Removes a member that no longer runs from the fleet, so the others do not wait for it.
    Forget {
        /// The member's name.
        member: String,
    },
    /// Explains what would happen to an anonymous request.
    Explain {
        /// A path, or a URL with scheme and host.
        url: String,
        /// Header lines of the request, in the form `Name: value`.
        fields: Vec<String>,
        /// Whether the result is JSON.
        #[serde(default)]
        json: bool,
    },
}

/// Executes a command. `cache` is `None` if no site has the cache on.
///
/// # Errors
/// The text says why the command could not be executed, or that no other member of the fleet was notified.
pub fn execute_command(
    all_sites: &Sites,
    cache: Option<&PageCache>,
    command: &AdminCommand,
) -> Result<String, String> {
    let Some(cache) = cache else {
        return Err(
            "CacheOff: no site uses the page cache; set `cache = \"on\"` or pass `--cache on`"
                .to_owned(),
        );
    };
    match command {
        AdminCommand::Purge {
            site,
            all,
            urls,
            tags,
            soft,
        } => {
            let done = purge_selected(all_sites, cache, site.as_deref(), (*all, urls, tags), *soft);
            cache.wait_for_fleet().and(done)
        }
        AdminCommand::Wrote {
            site,
            writes,
            purges,
        } => {
            let done = apply_outside_writes(all_sites, cache, site.as_deref(), writes, purges);
            cache.wait_for_fleet().and(done)
        }
        AdminCommand::Relayed { purges } => {
            cache.apply_predecessor_purges(all_sites, purges);
            // The previous process, whose scripts caused the purges, is about to exit, so a fenced fleet is not
            // reported to it.
            let _ = cache.wait_for_fleet();
            Ok(String::new())
        }
        AdminCommand::Forget { member } => cache.forget_member(member),
        AdminCommand::Explain { url, fields, json } => {
            explain(all_sites, cache, url, fields, *json)
        }
    }
}

/// Returns the sites that a name or host selects, with their caches.
fn selected_sites<'c>(
    all_sites: &'c Sites,
    cache: &'c PageCache,
    name: Option<&str>,
    host: Option<&str>,
) -> Result<Vec<(&'c Site, &'c SiteCache)>, String> {
    let by_host = host.map(|host| all_sites.find_all(host.as_bytes()));
    let found: Vec<_> = all_sites
        .all()
        .iter()
        .filter(|site| name.is_none_or(|name| site.config().name == name))
        .filter(|site| {
            by_host
                .as_ref()
                .is_none_or(|found| found.contains(&site.number()))
        })
        .filter_map(|site| Some((&**site, cache.site(site)?)))
        .collect();
    if found.is_empty() {
        let what = name.or(host).unwrap_or_default();
        return Err(format!(
            "NoSuchSite: there is no site `{what}` that uses the page cache"
        ));
    }
    Ok(found)
}

fn purge_selected(
    all_sites: &Sites,
    cache: &PageCache,
    site: Option<&str>,
    (all, urls, tags): (bool, &[String], &[String]),
    is_soft: bool,
) -> Result<String, String> {
    let mut asked = Vec::new();
    if all {
        asked.push(purge::parse_argument("*"));
    }
    asked.extend(
        tags.iter()
            .map(|tag| purge::parse_argument(&format!("tag:{tag}"))),
    );
    asked.extend(urls.iter().map(|url| purge::parse_argument(url)));
    if asked.is_empty() {
        return Err("NothingToPurge: name the pages to purge: URLs, tags or --all".to_owned());
    }
    // All purges are parsed before the first is carried out.
    let mut commands = Vec::new();
    for asked in asked {
        let asked = asked.map_err(|bad| bad.to_string())?;
        let parts = selected_sites(all_sites, cache, site, asked.host.as_deref())?;
        let what = asked.what;
        commands.push((parts, PurgeCommand { what, is_soft }));
    }
    // This is counted before anything is purged, so a page that is named twice is counted twice.
    let there: Vec<String> = commands
        .iter()
        .map(|(parts, command)| describe_count_in_memory(cache, parts, &command.what))
        .collect();
    for (parts, command) in &commands {
        for (_, part) in &parts[1..] {
            part.purge(&command.what, command.force(now()));
        }
    }
    // The first site of each command suffices, because the description is the same for all of them.
    let first = commands
        .iter()
        .map(|(parts, command)| (parts[0].1, command));
    Ok(purge_and_describe(first, &there))
}

/// Returns, as text, how many pages in memory will be purged. A count of 0 shows the administrator that a path was
/// mistyped. The function inspects all pages in memory, so it must not run on a front thread.
fn describe_count_in_memory(
    cache: &PageCache,
    parts: &[(&Site, &SiteCache)],
    what: &Purge,
) -> String {
    let pages: usize = parts
        .iter()
        .map(|(site, part)| {
            let valid = |page: &Object| page.state(&part.generations, now()).is_some();
            cache.memory.count(|page| {
                page.belongs_to_site(site.number())
                    && what.concerns(&page.url_key, &page.tags)
                    && valid(page)
            })
        })
        .sum();
    match pages {
        0 => " (no page in memory)".to_owned(),
        1 => " (1 page in memory)".to_owned(),
        n => format!(" ({n} pages in memory)"),
    }
}

/// Carries out the purges and returns a description of them. `there` has a suffix for the description of each purge.
pub(crate) fn purge_and_describe<'a>(
    commands: impl Iterator<Item = (&'a SiteCache, &'a PurgeCommand)>,
    there: &[String],
) -> String {
    let (mut hard, mut soft) = (Vec::new(), Vec::new());
    for (at, (part, command)) in commands.enumerate() {
        part.purge(&command.what, command.force(now()));
        match command.is_soft {
            false => &mut hard,
            true => &mut soft,
        }
        .push(format!(
            "{}{}",
            command.what,
            there.get(at).map_or("", String::as_str)
        ));
    }
    let texts = [("purged", hard), ("made stale", soft)];
    let texts = texts.iter().filter(|(_, what)| !what.is_empty());
    let texts: Vec<String> = texts
        .map(|(how, what)| format!("{how}: {}", what.join(", ")))
        .collect();
    texts.join("; ")
}

/// Invalidates pages because of writes and purges outside the server. If a site is given, the purges apply to it
/// whatever host a URL names, like the purges of a script.
fn apply_outside_writes(
    all_sites: &Sites,
    cache: &PageCache,
    site: Option<&str>,
    writes: &[String],
    purges: &[String],
) -> Result<String, String> {
    let parts = selected_sites(all_sites, cache, site, None)?;
    for (_, part) in &parts {
        for write in writes {
            run_effects::apply_outside_write(part, write.as_bytes());
        }
    }
    let mut unheard = None;
    for word in purges {
        // PHP has checked the purge. A purge that cannot be parsed here purges more pages, never fewer.
        let (host, what) = match purge::parse_argument(word) {
            Ok(asked) => (asked.host.filter(|_| site.is_none()), asked.what),
            Err(_) => (None, Purge::All),
        };
        match selected_sites(all_sites, cache, site, host.as_deref()) {
            Ok(parts) => {
                for (_, part) in parts {
                    part.purge(&what, Force::Hard);
                }
            }
            Err(why) => unheard = Some(why),
        }
    }
    unheard.map_or_else(|| Ok(format!("notified {} sites", parts.len())), Err)
}

/// Returns a readable description of a write in the form of [`AdminCommand::Wrote`].
pub fn describe_write(write: &str) -> String {
    run_effects::describe(&WriteEffect::parse(write.as_bytes()))
}
