//! A request of a site on trial (`cache = "dry-run"`): what the cache would have done with it is found
//! out and counted, pages are rendered for it as if it were on, and the request goes to the script.

use std::sync::Arc;

use howdah_cache::Pass;
use howdah_cache::policy::State;

use super::cached::Asked;
use super::{Exchange, Record};
use crate::cache::candidate;
use crate::cache::lookup::{self, Lookup};
use crate::cache::trial::Trial;
use crate::cache::{PageCache, SiteCache};
use crate::site::Site;

/// Why the request passes, as it would without a trial or because of it, and what its answer is looked at
/// for.
pub(super) fn try_out(
    exchange: Exchange<'_>,
    cache: &Arc<PageCache>,
    part: &SiteCache,
    site: &Arc<Site>,
    has_body: bool,
    record: &mut Record,
) -> (Pass, Option<Box<candidate::Asked>>) {
    let (request, client) = (exchange.request, exchange.client);
    let asked = |key, old| Asked {
        old,
        ..Asked::new(exchange, cache, part, site, key)
    };
    let missed = match lookup::look(cache, part, site, request, client, has_body) {
        Lookup::Pass(why) => return (why, None),
        Lookup::Page {
            page, state, key, ..
        } if matches!(state, State::Fresh | State::Grace) => {
            part.checks.would(true);
            if request.method() == b"GET" {
                record.trial = Some(Trial::new(page.clone(), part.rules().max_object));
            }
            if let Some(key) = key {
                asked(key, Some((page, state))).refresh_behind();
            }
            return (Pass::DryRun, None);
        }
        Lookup::Page {
            page, state, key, ..
        } => key.map(|key| asked(key, Some((page, state)))),
        Lookup::None(key) => Some(asked(key, None)),
    };
    if let Some(asked) = missed
        && let Err(passed) = asked.try_behind()
    {
        return passed;
    }
    part.checks.would(false);
    (Pass::DryRun, None)
}
