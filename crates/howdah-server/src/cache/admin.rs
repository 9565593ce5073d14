//! Answers an administrator's purge and explain commands. Takes and returns text; the control
//! socket decides who may ask.

use std::fmt::Write as _;

use howdah_cache::Object;
use howdah_cache::Pass;
use howdah_cache::admission::Step;
use howdah_cache::generation::{Force, Purge};
use howdah_cache::policy::PageState;
use howdah_cache::purge::{self, PurgeCommand};
use howdah_proto::effect::Write;
use serde::{Deserialize, Serialize};

use super::lookup::{self, Lookup};
use super::{PageCache, SiteCache, now, run_effects, subrequest};
use crate::client_address::Client;
use crate::site::{Site, Sites};

/// A request of an administrator to the page cache, as the control socket carries it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminCommand {
    /// Invalidates stored pages, or removes them.
    Purge {
        /// Only of this site, by name; otherwise of all, or of the one a URL's host names.
        site: Option<String>,
        /// Whether all pages are purged.
        all: bool,
        /// Paths or URLs, with all their queries; `*` at the end for all that begin so.
        urls: Vec<String>,
        /// Tags; pages that have one of them are purged.
        tags: Vec<String>,
        /// Whether the pages may still be served while new ones are rendered.
        soft: bool,
    },
    /// PHP on a command line wrote to databases, or purges.
    Wrote {
        /// Only this site's pages show it; otherwise any site's may.
        site: Option<String>,
        /// What it said ([`howdah_proto::effect::Write`]).
        writes: Vec<String>,
        /// What it purges, as `howdah_cache_purge()` takes it.
        #[serde(default)]
        purges: Vec<String>,
    },
    /// What would happen to an anonymous request for this.
    Explain {
        /// A path, or a URL with scheme and host.
        url: String,
        /// Header lines of the request, `Name: value` each.
        fields: Vec<String>,
    },
}

/// Answers a question; an error says what is wrong with it. `cache`: none if no site has it on.
pub fn answer(
    all_sites: &Sites,
    cache: Option<&PageCache>,
    command: &AdminCommand,
) -> Result<String, String> {
    let Some(cache) = cache else {
        return Err(
            "CacheOff: no site has the page cache on; set `cache = \"on\"` or --cache on"
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
            let force = if *soft { Force::Soft } else { Force::Hard };
            purge_all_of(all_sites, cache, site.as_deref(), (*all, urls, tags), force)
        }
        AdminCommand::Wrote {
            site,
            writes,
            purges,
        } => wrote(all_sites, cache, site.as_deref(), writes, purges),
        AdminCommand::Explain { url, fields } => explain(all_sites, cache, url, fields),
    }
}

/// A URL's scheme, host and rest; a path has neither scheme nor host.
fn parts(url: &str) -> Result<(bool, Option<&str>, &str), String> {
    if url.starts_with('/') {
        return Ok((false, None, url));
    }
    let (https, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        _ => {
            return Err(format!(
                "BadUrl: `{url}` is neither a path (`/…`) nor a URL (`http://host/…`)"
            ));
        }
    };
    let (host, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    Ok((https, Some(host), path))
}

/// The sites that are meant, with their caches.
fn sites<'c>(
    all_sites: &'c Sites,
    cache: &'c PageCache,
    name: Option<&str>,
    host: Option<&str>,
) -> Result<Vec<(&'c Site, &'c SiteCache)>, String> {
    let by_host = host.map(|host| all_sites.find(host.as_bytes()).number());
    let found: Vec<_> = all_sites
        .all()
        .iter()
        .filter(|site| name.is_none_or(|name| site.config().name == name))
        .filter(|site| by_host.is_none_or(|number| site.number() == number))
        .filter_map(|site| Some((&**site, cache.site(site)?)))
        .collect();
    if found.is_empty() {
        let what = name.or(host).unwrap_or_default();
        return Err(format!(
            "NoSuchSite: no site `{what}` has the page cache on"
        ));
    }
    Ok(found)
}

fn purge_all_of(
    all_sites: &Sites,
    cache: &PageCache,
    site: Option<&str>,
    (all, urls, tags): (bool, &[String], &[String]),
    force: Force,
) -> Result<String, String> {
    let mut asked = Vec::new();
    if all {
        asked.push(purge::parse("*"));
    }
    asked.extend(tags.iter().map(|tag| purge::parse(&format!("tag:{tag}"))));
    asked.extend(urls.iter().map(|url| purge::parse(url)));
    if asked.is_empty() {
        return Err("NothingToPurge: name URLs, tags or --all".to_owned());
    }
    // All are looked at before the first is done.
    let mut commands = Vec::new();
    for asked in asked {
        let asked = asked.map_err(|bad| bad.to_string())?;
        let parts = sites(all_sites, cache, site, asked.host.as_deref())?;
        let what = asked.what;
        commands.push((parts, PurgeCommand { what, force }));
    }
    // Before anything is purged: what is named twice is counted twice.
    let there: Vec<String> = commands
        .iter()
        .map(|(parts, command)| in_memory(cache, parts, &command.what))
        .collect();
    for (parts, command) in &commands {
        for (_, part) in &parts[1..] {
            part.purge(&command.what, command.force);
        }
    }
    // The first of each is enough: all have the same text.
    let first = commands
        .iter()
        .map(|(parts, command)| (parts[0].1, command));
    Ok(execute(first, &there))
}

/// How many pages in memory will be purged, in words: a path that was mistyped purges nothing. Goes
/// through all of them, which is not for a front thread.
fn in_memory(cache: &PageCache, parts: &[(&Site, &SiteCache)], what: &Purge) -> String {
    let pages: usize = parts
        .iter()
        .map(|(site, part)| {
            let valid = |page: &Object| page.state(&part.generations, now()).is_some();
            cache.memory.count(|page| {
                page.is_of(site.number()) && what.names(&page.url_key, &page.tags) && valid(page)
            })
        })
        .sum();
    match pages {
        0 => " (no page in memory)".to_owned(),
        1 => " (1 page in memory)".to_owned(),
        n => format!(" ({n} pages in memory)"),
    }
}

/// Purges, and says what; `there`: what else is to be said of each.
pub(crate) fn execute<'a>(
    commands: impl Iterator<Item = (&'a SiteCache, &'a PurgeCommand)>,
    there: &[String],
) -> String {
    let (mut hard, mut soft) = (Vec::new(), Vec::new());
    for (at, (part, command)) in commands.enumerate() {
        part.purge(&command.what, command.force);
        match command.force {
            Force::Hard => &mut hard,
            Force::Soft => &mut soft,
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

/// Invalidates pages by writes that were made elsewhere, and by purges. Of one site they are
/// whatever host a URL names, as a script's are.
fn wrote(
    all_sites: &Sites,
    cache: &PageCache,
    site: Option<&str>,
    writes: &[String],
    purges: &[String],
) -> Result<String, String> {
    let parts = sites(all_sites, cache, site, None)?;
    for (_, part) in &parts {
        for write in writes {
            run_effects::written_elsewhere(part, write.as_bytes());
        }
    }
    let mut unheard = None;
    for word in purges {
        // PHP has read it; what cannot be read here purges more, never less.
        let (host, what) = match purge::parse(word) {
            Ok(asked) => (asked.host.filter(|_| site.is_none()), asked.what),
            Err(_) => (None, Purge::All),
        };
        match sites(all_sites, cache, site, host.as_deref()) {
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

/// The text for people of a write in the form of [`AdminCommand::Wrote`].
pub fn in_words(write: &str) -> String {
    run_effects::describe(&Write::parse(write.as_bytes()))
}

fn explain(
    all_sites: &Sites,
    cache: &PageCache,
    url: &str,
    fields: &[String],
) -> Result<String, String> {
    let (https, host, path) = parts(url)?;
    let host = host.unwrap_or("localhost");
    let mut text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n");
    for field in fields {
        let _ = write!(text, "{field}\r\n");
    }
    text.push_str("\r\n");
    let request = subrequest::parse(text.as_bytes())
        .ok_or_else(|| format!("BadUrl: `{url}` with these fields is no valid request"))?;
    let site = all_sites.find(host.as_bytes());
    let name = &site.config().name;
    let Some(part) = cache.site(site) else {
        return Ok(format!("site {name}: the page cache is off\n"));
    };
    let client = Client {
        address: None,
        port: None,
        https,
        host: None,
        server_port: None,
        proxied: false,
    };
    let rules = part.rules();
    let mut out = format!("site {name}, preset {}\n", rules.preset.name);
    let mut matters = true;
    let why = |out: &mut String, pass: Pass| {
        let _ = writeln!(out, "{pass}: {}", pass.meaning());
    };
    match lookup::look(cache, part, site, &request, &client, false) {
        Lookup::Pass { why: pass, cookie } => {
            out.push_str("bypasses the cache: ");
            why(&mut out, pass);
            if let Some(cookie) = cookie {
                let _ = writeln!(out, "  the cookie `{}`", cookie.escape_ascii());
            }
            return Ok(out);
        }
        Lookup::Page { page, state, .. } => {
            let at = now();
            let state = match state {
                PageState::Fresh => "fresh",
                PageState::Grace => "served while a new one is rendered",
                PageState::IfError => "served only if PHP fails",
                PageState::Stale => "kept for validation",
            };
            let _ = writeln!(
                out,
                "stored: {state}; status {}, {} bytes, {} s old, {} s to live",
                page.status,
                page.body.len(),
                page.freshness.age(at) / 1000,
                page.freshness.ttl(at).div_euclid(1000)
            );
            for tag in &page.tags {
                let _ = writeln!(out, "tag: {}", tag.escape_ascii());
            }
        }
        Lookup::None(key) => {
            let _ = writeln!(
                out,
                "not stored; PHP would see {}",
                key.target().escape_ascii()
            );
            if let Ok(variant) = lookup::variant_of(cache, &key, &request) {
                if cache.memory.may_be_below(&variant.key, now()) {
                    out.push_str("it may be on disk; a request would check\n");
                }
                if cache.coalescer.in_progress(&variant.key) {
                    out.push_str("it is being rendered\n");
                }
                let epoch = part.epoch();
                let passed = part.reasons.why(&variant.key);
                if let Some(passed) = &passed {
                    let ago = now().saturating_sub(passed.at) / 1000;
                    let _ = write!(out, "not stored {ago} s ago, because of ");
                    why(&mut out, passed.pass);
                    if !passed.text.is_empty() {
                        let _ = writeln!(out, "  {}", passed.text);
                    }
                }
                out.push_str(
                    match cache.admission.step(&variant.key, epoch, now(), None) {
                        Step::Render => "it is rendered for the cache at its next visit\n",
                        Step::Ask => "its next visitor's answer shows whether it can be stored\n",
                        Step::Pass(Pass::PassedBefore) => "it is not tried again yet\n",
                        Step::Pass(_) => {
                            "it is not tried until a visitor's answer could be stored\n"
                        }
                    },
                );
                // While nothing of it could be stored, it does not matter what would make it old.
                matters = passed.is_none_or(|passed| {
                    matches!(passed.pass, Pass::DatabaseWrite | Pass::OutdatedRender)
                });
            }
            if let Some(variants) = cache.memory.varies(key.as_bytes()) {
                for name in variants.names() {
                    let _ = writeln!(out, "varies by {}", name.escape_ascii());
                }
            }
        }
    }
    if !matters {
        return Ok(out);
    }
    for write in part.reasons.writes() {
        let _ = writeln!(
            out,
            "pages were invalidated by {} ({} times, {} s ago)",
            write.text,
            write.times,
            now().saturating_sub(write.at) / 1000
        );
    }
    Ok(out)
}
