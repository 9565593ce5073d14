//! A script's run in a site with a page cache that the cache does not share: names the reason to the
//! client, and makes old what the run may have changed.

use std::sync::{Arc, OnceLock};

use howdah_cache::Pass;
use howdah_cache::preset::Form;
use howdah_cache::status::Verdict;

use super::{Exchange, Record};
use crate::cache::candidate::{self, Candidate};
use crate::cache::send::tell;
use crate::cache::watch::Watch;
use crate::cache::write::{self, Write};
use crate::cache::{PageCache, SiteCache, dialect, lookup};
use crate::http::message::ResponseHead;
use crate::respond::Failure;
use crate::site::{Route, Site};

/// Goes along with one such run.
pub(super) struct Around<'a> {
    part: &'a SiteCache,
    exchange: Exchange<'a>,
    site: &'a Site,
    route: &'a Route,
    /// The reason that the request itself gives.
    why: Pass,
    /// How the access log and the counters name it, once that is settled.
    verdict: OnceLock<Verdict>,
    watch: Arc<Watch>,
    candidate: Option<Arc<Candidate>>,
}

impl<'a> Around<'a> {
    pub(super) fn new(
        (cache, part): (&Arc<PageCache>, &'a SiteCache),
        exchange: Exchange<'a>,
        site: &'a Arc<Site>,
        route: &'a Route,
        (why, asked): (Pass, Option<Box<candidate::Asked>>),
        record: &mut Record,
    ) -> Around<'a> {
        let watch = Watch::new(cache, site);
        record.watch = Some(watch.clone());
        let candidate = asked.map(|asked| Candidate::new(cache, site, *asked, &watch));
        record.candidate.clone_from(&candidate);
        if why == Pass::UnknownCookie
            && let Some(name) = lookup::cookie(part, exchange.request)
        {
            part.reasons.cookie(&name);
        }
        if write::may_write(part, exchange.request) {
            watch.may_write();
        }
        Around {
            part,
            exchange,
            site,
            route,
            why,
            verdict: OnceLock::new(),
            watch,
            candidate,
        }
    }

    /// The reason why the cache passes the request: what its answer showed, else what the request
    /// shows. The first call counts it.
    pub(super) fn verdict(&self) -> Verdict {
        *self.verdict.get_or_init(|| {
            let own = self.candidate.as_ref();
            let own = own.and_then(|own| own.judge(self.route, self.exchange.request));
            let verdict = Verdict::Pass(own.unwrap_or(self.why));
            self.part.count(verdict);
            verdict
        })
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
        tell(head, self.verdict());
        self.watch.settle();
        // Where files are is nobody's business but an administrator's.
        let status = self.exchange.config.settings.status.as_ref();
        let allowed =
            status.is_some_and(|page| page.allows(self.exchange.request, self.exchange.client));
        let cause = match (allowed, self.watch.forbidden(), self.why) {
            (true, Some(cause), _) => Some(cause.to_string()),
            (true, None, why @ (Pass::UnknownCookie | Pass::SessionCookie)) => {
                let cookie = lookup::cookie(self.part, self.exchange.request);
                cookie.map(|cookie| format!("{why}: {cookie}"))
            }
            _ => None,
        };
        if let Some(cause) = cause {
            let text = cause.replace(|c: char| !c.is_ascii(), "?");
            head.header(b"Howdah-Cache-Cause", text.as_bytes());
        }
        let Some(write) = self.write() else { return };
        write.happened(self.part, head.status);
        for (name, value) in head.fields() {
            let names = |known: &[u8]| name.eq_ignore_ascii_case(known);
            if head.status < 400 && (names(b"location") || names(b"content-location")) {
                let Exchange {
                    client, request, ..
                } = self.exchange;
                write.also(self.part, self.site, client, request, value);
            }
        }
    }

    /// The run is through: what it wrote after its head counts as well, and what it wrote before it
    /// failed.
    pub(super) fn through(&self, failure: Option<&Failure>) {
        self.watch.settle();
        if let Some(candidate) = &self.candidate {
            candidate.over(failure.is_some_and(|failure| *failure != Failure::ClientGone));
        }
        if let Some(write) = self.write() {
            write.happened(self.part, failure.map_or(200, Failure::status));
        }
    }
}
