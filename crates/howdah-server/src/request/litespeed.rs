//! The crawler of the LiteSpeed Cache plugin for WordPress, which requests pages so that they are stored before a visitor
//! comes. It runs in PHP on this machine.

use howdah_cache::Pass;
use howdah_cache::status::CacheVerdict;
use howdah_cache::tags::LITESPEED_STATUS;
use howdah_http::message::ResponseHead;

use super::context::RequestContext;

/// Returns whether a request says that it comes from the plugin's crawler.
fn is_named_crawler(ctx: RequestContext<'_>) -> bool {
    let Some((_, part)) = ctx.page_cache() else {
        return false;
    };
    if !part.rules().has_litespeed_esi() {
        return false;
    }
    let agent = ctx.request.header(b"user-agent").unwrap_or_default();
    agent.starts_with(b"lscache_runner") || agent.starts_with(b"lscache_walker")
}

/// Returns whether a request comes from the plugin's crawler on this machine. Its first request for a page has the page
/// stored. Other machines cannot fill the store in this way.
pub(super) fn is_crawler(ctx: RequestContext<'_>) -> bool {
    let local = ctx.conn.local.map(|local| local.ip().to_canonical());
    let is_from_here = || {
        ctx.client.address.is_none_or(|address| {
            let address = address.to_canonical();
            address.is_loopback() || Some(address) == local
        })
    };
    is_named_crawler(ctx) && is_from_here()
}

/// Tells the crawler, wherever it runs, that a page could not be stored this time. If a response does not have the
/// header, the crawler never requests the page again.
pub(super) fn add_crawler_status(
    ctx: RequestContext<'_>,
    head: &mut ResponseHead,
    verdict: CacheVerdict,
) {
    let CacheVerdict::Pass(why) = verdict else {
        return;
    };
    let may_be_stored_later = why.is_temporary()
        || matches!(
            why,
            Pass::DatabaseWrite
                | Pass::NotYetAdmitted
                | Pass::PassedBefore
                | Pass::SiteRarelyStores
        );
    if may_be_stored_later && is_named_crawler(ctx) {
        head.header(LITESPEED_STATUS, b"miss");
    }
}
