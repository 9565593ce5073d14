//! `cache = "rfc"`: passes a visitor's own response on while storing it for others, and validates a page that has
//! become stale (RFC 9111).

use std::future::poll_fn;
use std::sync::Arc;

use howdah_cache::coalescer::{Leader, RenderOutcome};
use howdah_cache::object::Object;
use howdah_cache::status::CacheVerdict;
use howdah_cache::{Millis, Pass, Storable};
use howdah_executor::{
    DropAtEnd, ExecError, RunEvent, ScriptBody, ScriptRequest, ScriptRole, ScriptRun,
};
use howdah_http::Responder;
use howdah_http::message::{RequestHead, ResponseHead};
use howdah_http::network;

use super::cache_request::{CacheOutcome, CacheRequest};
use super::context::{RequestContext, ResponseInProgress};
use super::{esi, limits, script};
use crate::cache::judge::JudgedHead;
use crate::cache::run_effects::RunEffects;
use crate::cache::send::add_status_fields;
use crate::cache::subrequest::whole_page_head;
use crate::cache::tee::TeeRun;
use crate::cache::{OwnedHeader, header_slices, lookup, now, vendor_headers};
use crate::failure::Failure;
use crate::respond;
use crate::script::frame::{BodyLength, script_frame};
use crate::script::head;
use crate::script::pump::ResponseOutcome;
use howdah_site::site::{RouteInfo, ScriptTarget};

/// The script's run, and what is known about the page before the script responds.
struct StartedRun {
    run: Box<dyn ScriptRun>,
    effects: Arc<RunEffects>,
    /// The request for the whole page.
    request: RequestHead,
    /// The generation in which the run began.
    born: u64,
    requested: Millis,
}

impl CacheRequest<'_> {
    /// `cache = "rfc"`: runs the visitor's own request, without the headers that ask for less than the whole page and
    /// with those that validate the stored page. Passes the response on and stores it.
    pub async fn store_response(
        &self,
        route: &RouteInfo,
        target: &ScriptTarget,
        leader: Leader,
        response: &mut ResponseInProgress<'_>,
    ) -> Result<CacheOutcome, Failure> {
        let validated = self.stale.as_ref().map(|(page, _)| &**page);
        let Some(request) = whole_page_head(self.ctx.request, validated) else {
            return Ok(CacheOutcome::Bypassed(Pass::HeadTooLarge.into()));
        };
        if let Some(recording) = &mut response.record.recording {
            recording.begin_run(script::runner_of(self.ctx, target));
        }
        let mut begun = self.start_run(request, target, limits::take_process_permits(response))?;
        let first = match first_event(&mut *begun.run, response.out).await {
            Ok(first) => first,
            Err(_) if self.serve_stale(response) => {
                leader.complete(RenderOutcome::Passed(Pass::RunFailed));
                return Ok(CacheOutcome::Served);
            }
            Err(error) => return Err(Failure::Run(error)),
        };
        let mut judged = None;
        if let RunEvent::Head(head) = &first {
            let head = JudgedHead::new(self.ctx.site, route, head);
            let answered = self.serve_stored(&head, &mut begun, response).await;
            if let Some(outcome) = answered {
                leader.complete(outcome);
                return Ok(CacheOutcome::Served);
            }
            judged = Some(head);
        }
        self.relay_and_store(begun, (first, judged), route, leader, response)
            .await
    }

    fn start_run(
        &self,
        request: RequestHead,
        target: &ScriptTarget,
        held: Option<DropAtEnd>,
    ) -> Result<StartedRun, Failure> {
        let RequestContext {
            client, conn, id, ..
        } = self.ctx;
        let born = self.part.generations.now();
        let requested = now();
        let service = self.ctx.service();
        let frame = script_frame(
            &request,
            client,
            conn.local,
            &service.variables,
            target,
            (BodyLength::None, None),
        )
        .map_err(Failure::Frame)?;
        let effects = RunEffects::new(self.cache, self.ctx.site);
        let run = service.start(
            target,
            ScriptRequest {
                frame,
                body: ScriptBody::Empty,
                id,
                role: ScriptRole::Responder,
                client: client.address.map(network::client_network),
                effects: Some(effects.clone()),
                drop_at_end: held,
            },
        );
        Ok(StartedRun {
            run,
            effects,
            request,
            born,
            requested,
        })
    }

    /// Serves the stored page if the head of the response says that it is still valid or that the script has failed.
    async fn serve_stored(
        &self,
        head: &JudgedHead,
        begun: &mut StartedRun,
        response: &mut ResponseInProgress<'_>,
    ) -> Option<RenderOutcome> {
        if let (304, Some((page, _))) = (head.status, &self.stale) {
            let page = self.freshen(page, head, begun);
            while !matches!(
                poll_fn(|cx| begun.run.poll_event(cx)).await,
                Ok(RunEvent::End) | Err(_)
            ) {}
            response.record.run = begun.run.timing();
            self.deliver(&page, CacheVerdict::Validated, response);
            return Some(RenderOutcome::Retry);
        }
        let failed = head.status >= 500 && self.serve_stale(response);
        failed.then_some(RenderOutcome::Passed(Pass::ServerError))
    }

    /// Decides from its headers and its run so far whether the response may be stored.
    fn judge(&self, head: Option<&JudgedHead>, begun: &StartedRun) -> Result<Storable, Pass> {
        let Some(head) = head else {
            return Err(Pass::RunFailed);
        };
        let authorized = begun.request.header(b"authorization").is_some();
        let judged = head.judge(self.part, begun.requested, authorized);
        match begun.effects.forbidden() {
            Some(cause) => Err(cause.pass),
            None => judged,
        }
    }

    /// Passes the response on to the visitor, and stores it if that is allowed.
    async fn relay_and_store(
        &self,
        begun: StartedRun,
        (first, head): (RunEvent, Option<JudgedHead>),
        route: &RouteInfo,
        leader: Leader,
        response: &mut ResponseInProgress<'_>,
    ) -> Result<CacheOutcome, Failure> {
        let ctx = self.ctx;
        let judged = self.judge(head.as_ref(), &begun);
        let (verdict, limit, leader) = match &judged {
            Ok(_) => {
                let stored = CacheVerdict::Stored { collapsed: false };
                (stored, self.part.rules().max_object, Some(leader))
            }
            Err(why) => {
                self.purge_older_page(*why);
                // Requests that wait for this response are released at once, because they will not get it. The reason
                // is not remembered either: trying again renders nothing twice.
                leader.complete(RenderOutcome::Passed(*why));
                (CacheVerdict::Pass(*why), 0, None)
            }
        };
        self.part.count(verdict);
        response.record.cache = Some(verdict);
        let effects = begun.effects.clone();
        let edit = |head: &mut ResponseHead| {
            respond::add_request_number(head, ctx.id);
            let before = self.part.generations.now();
            vendor_headers::apply_and_remove(self.part, ctx.request.method(), head);
            effects.settle();
            if self.part.generations.now() != before {
                effects.note_invalidation();
            }
            ctx.site.edit_headers(route, head);
            add_status_fields(head, verdict);
        };
        let confirmation = || effects.confirmation();
        let edit = script::ResponseEdit {
            head: &edit,
            confirmation: Some(&confirmation),
            texts: None,
        };
        let mut tee = TeeRun::new(begun.run, first, limit, Some(effects.clone()));
        let ended = match esi::rules(ctx) {
            Some(rules) => esi::relay(ctx, rules, &mut tee, edit, None, response).await,
            None => script::relay_response(ctx, &mut tee, edit, None, response).await,
        };
        effects.settle();
        if matches!(ended, ResponseOutcome::Complete)
            && let (Ok(mut storable), Some(head), Some(leader)) = (judged, head, leader)
            && effects.add_tags(&mut storable).is_ok()
        {
            let page = tee.body().and_then(|body| {
                let page = head.page(&storable, body, self.key.as_bytes(), begun.born)?;
                self.store_page(&storable, &begun.request, page)
            });
            leader.complete(match page {
                Ok(page) => RenderOutcome::Stored(page),
                Err(why) => {
                    self.purge_older_page(why);
                    RenderOutcome::Passed(why)
                }
            });
        }
        let finished = script::finish_response(ctx, ended, &[], edit, response);
        Ok(match Box::pin(finished).await? {
            None => CacheOutcome::Served,
            Some(to) => CacheOutcome::LocalRedirect(to),
        })
    }

    /// Purges the older page if the application's response, which may not be stored for this reason, shows that there
    /// is no such page any more. Reasons that lie in this request alone show nothing.
    fn purge_older_page(&self, why: Pass) {
        if self.stale.is_some() && !why.is_temporary() && !why.is_from_request() {
            self.part.purge_url(&self.key);
        }
    }

    fn store_page(
        &self,
        storable: &Storable,
        request: &RequestHead,
        page: Object,
    ) -> Result<Arc<Object>, Pass> {
        let key = |names: &[Vec<u8>]| lookup::variant_key(&self.key, names, request);
        let memory = &self.cache.memory;
        memory.store(self.key.as_bytes(), storable.vary_headers(), key, page)
    }

    /// Returns the stored page updated with the headers of a 304 (RFC 9111 §4.3.4). A page that may no longer be stored
    /// is served this once.
    fn freshen(&self, page: &Arc<Object>, update: &JudgedHead, begun: &StartedRun) -> Arc<Object> {
        let named = |name: &[u8]| {
            let mut lines = update.lines.iter();
            lines.any(|(n, _)| n.eq_ignore_ascii_case(name))
        };
        let mut lines: Vec<OwnedHeader> = page
            .fields()
            .filter(|(name, _)| !named(name))
            .map(|(n, v)| (n.to_vec(), v.to_vec()))
            .collect();
        lines.extend(update.lines.iter().cloned());
        lines.retain(|(name, _)| !name.eq_ignore_ascii_case(b"content-length"));
        let whole = JudgedHead {
            status: page.status,
            reason: Vec::new(),
            lines,
            local_redirect: false,
            varies_by_visitor: update.varies_by_visitor,
            received_at: update.received_at,
        };
        let authorized = self.ctx.request.header(b"authorization").is_some();
        match whole.judge(self.part, begun.requested, authorized) {
            Ok(storable) => {
                let fresh = page.revalidated(&storable, &header_slices(&update.lines), begun.born);
                self.store_page(&storable, self.ctx.request, fresh)
                    .unwrap_or_else(|_| page.clone())
            }
            Err(_) => {
                self.part.purge_url(&self.key);
                page.clone()
            }
        }
    }
}

/// Returns the first event of a run that determines the response.
async fn first_event(run: &mut dyn ScriptRun, out: &mut Responder) -> Result<RunEvent, ExecError> {
    loop {
        match poll_fn(|cx| run.poll_event(cx)).await? {
            RunEvent::Informational(early) => {
                out.informational(&head::informational_for_client(&early))
            }
            // There is nothing to pass on yet: the headers come with one of the script's next events.
            RunEvent::Flush | RunEvent::Effect => {}
            event => return Ok(event),
        }
    }
}
