//! A script's run in a site with a page cache that the cache does not share: tells the client why,
//! and makes old what the run may have changed.

use std::sync::Arc;

use howdah_cache::Pass;
use howdah_cache::preset::Form;
use howdah_cache::status::Verdict;

use super::{Exchange, Record};
use crate::cache::send::tell;
use crate::cache::watch::Watch;
use crate::cache::write::{self, Write};
use crate::cache::{PageCache, SiteCache, dialect};
use crate::http::message::ResponseHead;
use crate::respond::Failure;
use crate::site::{Route, Site};

/// Goes along with one such run.
pub(super) struct Around<'a> {
    part: &'a SiteCache,
    exchange: Exchange<'a>,
    site: &'a Site,
    route: &'a Route,
    verdict: Verdict,
    watch: Arc<Watch>,
}

impl<'a> Around<'a> {
    pub(super) fn new(
        (cache, part): (&Arc<PageCache>, &'a SiteCache),
        exchange: Exchange<'a>,
        site: &'a Site,
        route: &'a Route,
        why: Pass,
        record: &mut Record,
    ) -> Around<'a> {
        let verdict = Verdict::Pass(why);
        part.count(verdict);
        record.cache = Some(verdict);
        let watch = Watch::new(cache, site);
        record.watch = Some(watch.clone());
        if write::may_write(part, exchange.request) {
            watch.may_write();
        }
        Around {
            part,
            exchange,
            site,
            route,
            verdict,
            watch,
        }
    }

    /// What the run writes as far as its request says it. Asked when its body has been received.
    fn write(&self) -> Option<Write> {
        let Exchange {
            request, client, ..
        } = self.exchange;
        let has_body = request.header(b"content-length").is_some()
            || request.header(b"transfer-encoding").is_some();
        let form = match self.watch.form.get() {
            Some(form) => Form::Read(form),
            None if has_body => Form::Unread,
            None => Form::Absent,
        };
        write::of(self.part, self.site, request, client, form)
    }

    /// Before the answer's head is sent: who wrote must not read an older page after it.
    pub(super) fn head(&self, head: &mut ResponseHead) {
        dialect::obey(self.part, self.exchange.request.method(), head);
        self.site.edit_headers(self.route, head);
        tell(head, self.verdict);
        self.watch.settle();
        // Where files are is nobody's business but an administrator's.
        let status = self.exchange.config.settings.status.as_ref();
        if let Some(cause) = self.watch.forbidden()
            && status.is_some_and(|page| page.allows(self.exchange.request, self.exchange.client))
        {
            let text = cause.to_string().replace(|c: char| !c.is_ascii(), "?");
            head.header(b"Howdah-Cache-Cause", text.as_bytes());
        }
        let Some(write) = self.write() else { return };
        let contained = self.watch.is_contained();
        write.happened(self.part, head.status, contained);
        for (name, value) in head.fields() {
            let names = |known: &[u8]| name.eq_ignore_ascii_case(known);
            if head.status < 400 && (names(b"location") || names(b"content-location")) {
                let Exchange {
                    client, request, ..
                } = self.exchange;
                write.also(self.part, self.site, client, request, value, contained);
            }
        }
    }

    /// The run is through: what it wrote after its head counts as well, and what it wrote before it
    /// failed.
    pub(super) fn through(&self, failure: Option<&Failure>) {
        self.watch.settle();
        if let Some(write) = self.write() {
            let status = failure.map_or(200, Failure::status);
            write.happened(self.part, status, self.watch.is_contained());
        }
    }
}
