//! `cache = rfc`: a visitor's own answer, passed on to him while it is kept for others, and RFC 9111's
//! validation of a page that has become too old.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use howdah_cache::flight::{Outcome, Ticket};
use howdah_cache::generation::{Force, Purge};
use howdah_cache::object::{Draft, Object};
use howdah_cache::status::Verdict;
use howdah_cache::{Pass, Storable};
use howdah_executor::{Event, Role, ScriptBody, ScriptRequest};

use super::{Answered, Asked};
use crate::cache::send::tell;
use crate::cache::tee::Tee;
use crate::cache::watch::Watch;
use crate::cache::{Line, dialect, fill, lookup, now};
use crate::http::Responder;
use crate::http::message::{RequestHead, ResponseHead};
use crate::request::script::{Edit, LocalRedirect, note_repairs, note_spill_error, send_file};
use crate::request::{Exchange, Front, Record, build_frame};
use crate::respond::{self, Failure};
use crate::script::frame::BodyLength;
use crate::script::head;
use crate::script::pump::{Ended, Pump};
use crate::site::{Route, ScriptTarget};

/// What a visitor's own answer is stored by.
struct Made {
    storable: Storable,
    lines: Vec<Line>,
    script: howdah_executor::Head,
    request: RequestHead,
    born: u64,
}

impl Asked<'_> {
    /// `cache = rfc`: the visitor's own request, without what asks for less than the whole, and with
    /// what validates the page that is stored.
    #[allow(clippy::too_many_arguments)] // The request's two halves, and what routing found.
    pub(super) async fn own(
        &self,
        front: &Front,
        route: &Route,
        target: &ScriptTarget,
        ticket: Ticket,
        out: &mut Responder,
        record: &mut Record,
    ) -> Result<Answered, Failure> {
        let Exchange {
            client,
            config,
            conn,
            id,
            ..
        } = self.exchange;
        let validated = self.old.as_ref().map(|(page, _)| page);
        let Some(request) = whole_request(self.exchange.request, validated.map(|p| &**p)) else {
            return Ok(Answered::No(Pass::HeadTooLarge, None));
        };
        let born = self.part.generations.now();
        let requested = now();
        let service = config.service(self.site);
        let frame = build_frame(
            &request,
            client,
            conn.local,
            service,
            target,
            BodyLength::None,
        )?;
        let watch = Watch::new(self.cache, self.site);
        let mut run = service.executor(target).start(ScriptRequest {
            frame,
            body: ScriptBody::Empty,
            id,
            role: Role::Responder,
            effects: Some(watch.clone()),
        });
        let first = loop {
            match poll_fn(|cx| run.poll_event(cx)).await {
                Ok(Event::Informational(early)) => {
                    out.informational(&head::informational(&early));
                }
                // Nothing to pass on yet: the head comes with one of the script's next events.
                Ok(Event::Flush | Event::Effect) => {}
                Ok(event) => break event,
                Err(error) => {
                    if self.serve_old(out, record) {
                        ticket.land(Outcome::Passed(Pass::RunFailed));
                        return Ok(Answered::Yes);
                    }
                    return Err(Failure::Run(error));
                }
            }
        };
        let mut judged = Err(Pass::RunFailed);
        let mut lines = Vec::new();
        let mut script = None;
        if let Event::Head(head) = &first {
            let authorized = request.header(b"authorization").is_some();
            let status = head::orders(head).status;
            let received = now();
            lines = fill::judged_fields(self.site, route, head);
            if let (304, Some(page)) = (status, validated) {
                let page = self.freshen(page, &lines, head, (requested, received), born);
                while !matches!(
                    poll_fn(|cx| run.poll_event(cx)).await,
                    Ok(Event::End) | Err(_)
                ) {}
                record.run = run.timing();
                ticket.land(Outcome::LookAgain);
                self.deliver(&page, Verdict::Validated, out, record);
                return Ok(Answered::Yes);
            }
            if status >= 500 && self.serve_old(out, record) {
                ticket.land(Outcome::Passed(Pass::ServerError));
                return Ok(Answered::Yes);
            }
            judged = fill::verdict(head, &lines, self.part, (requested, received), authorized);
            if let Some(cause) = watch.forbidden() {
                judged = Err(cause.pass);
            }
            script = Some(head.clone());
        }
        let (verdict, limit, ticket) = match &judged {
            Ok(_) => {
                let stored = Verdict::Stored { collapsed: false };
                (stored, self.part.rules().max_object, Some(ticket))
            }
            Err(why) => {
                // No request waits for an answer that it will not get.
                // Not remembered either: nothing is rendered twice by trying.
                ticket.land(Outcome::Passed(*why));
                (Verdict::Pass(*why), 0, None)
            }
        };
        self.part.count(verdict);
        record.cache = Some(verdict);
        let edit = |head: &mut ResponseHead| {
            respond::number(head, self.exchange.id);
            dialect::obey(self.part, self.exchange.request.method(), head);
            watch.settle();
            self.site.edit_headers(route, head);
            tell(head, verdict);
        };
        let mut tee = Tee::new(run, first, limit, Some(watch.clone()));
        let mut pump = Pump::new(&config.pump, self.exchange.request, &edit, true);
        let ended = poll_fn(|cx| {
            let turn = pump.poll(cx, &mut tee, out);
            note_spill_error(front, self.exchange, &mut pump);
            turn
        })
        .await;
        watch.settle();
        record.run = howdah_executor::Run::timing(&tee);
        note_repairs(front, self.exchange, &pump);
        match ended {
            Ended::Complete => {
                let judged = judged.and_then(|mut storable| {
                    watch.tag(&mut storable)?;
                    Ok(storable)
                });
                if let (Ok(storable), Some(script), Some(ticket)) = (judged, script, ticket) {
                    let made = Made {
                        storable,
                        lines,
                        script,
                        request,
                        born,
                    };
                    self.store(made, tee.body(), ticket);
                }
                Ok(Answered::Yes)
            }
            Ended::Failed(failure) | Ended::CutOff(failure) => Err(failure),
            Ended::SendFile(head) => {
                let edit: Edit<'_> = &edit;
                let sent = send_file(self.exchange, self.site, &[], &head, edit, out);
                Box::pin(sent).await.map(|()| Answered::Yes)
            }
            Ended::LocalRedirect(target) => Ok(Answered::Elsewhere(LocalRedirect(target))),
        }
    }

    fn store(&self, made: Made, body: Result<Bytes, Pass>, ticket: Ticket) {
        let kept = body.and_then(|body| {
            let lines = crate::cache::fields(&made.lines);
            let orders = head::orders(&made.script);
            let draft = Draft {
                status: orders.status,
                reason: orders.reason,
                fields: &lines,
                body,
                url_key: self.key.as_bytes(),
                born: made.born,
            };
            let page = Object::new(&made.storable, draft)?;
            let key = |names: &[Vec<u8>]| lookup::variant(&self.key, names, &made.request);
            let memory = &self.cache.memory;
            memory.keep(self.key.as_bytes(), made.storable.vary(), key, page)
        });
        match kept {
            Ok(page) => ticket.land(Outcome::Stored(page)),
            Err(why) => ticket.land(Outcome::Passed(why)),
        }
    }

    /// RFC 9111 §4.3.4: the stored page with the fields of a 304. One that may not be stored any more
    /// is served this once.
    fn freshen(
        &self,
        page: &Arc<Object>,
        update: &[Line],
        script: &howdah_executor::Head,
        times: (u64, u64),
        born: u64,
    ) -> Arc<Object> {
        let named = |name: &[u8]| update.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        let mut all: Vec<_> = page
            .fields()
            .filter(|(name, _)| !named(name))
            .map(|(n, v)| (n.to_vec(), v.to_vec()))
            .collect();
        all.extend(update.iter().cloned());
        all.retain(|(name, _)| !name.eq_ignore_ascii_case(b"content-length"));
        let whole = howdah_executor::Head {
            status: page.status,
            reason: Vec::new(),
            headers: Vec::new(),
            rejected: script.rejected,
            local_redirect: false,
        };
        let authorized = self.exchange.request.header(b"authorization").is_some();
        let update = crate::cache::fields(update);
        match fill::verdict(&whole, &all, self.part, times, authorized) {
            Ok(storable) => {
                let fresh = page.freshened(&storable, &update, born);
                let key =
                    |names: &[Vec<u8>]| lookup::variant(&self.key, names, self.exchange.request);
                let memory = &self.cache.memory;
                match memory.keep(self.key.as_bytes(), storable.vary(), key, fresh) {
                    Ok(page) => page,
                    Err(_) => page.clone(),
                }
            }
            Err(_) => {
                let url = Purge::Url(self.key.as_bytes().to_vec());
                self.part.generations.purge(&url, Force::Hard);
                page.clone()
            }
        }
    }
}

/// A request for the whole page: without conditions, ranges and codings of the client's, with the
/// validators of the page that is stored.
pub(super) fn whole_request(request: &RequestHead, old: Option<&Object>) -> Option<RequestHead> {
    let mut text = Vec::new();
    for part in [
        request.method(),
        b" ",
        request.target(),
        b" ",
        request.version().as_str().as_bytes(),
    ] {
        text.extend_from_slice(part);
    }
    let mut put = |name: &[u8], value: &[u8]| {
        for part in [b"\r\n", name, b": ", value] {
            text.extend_from_slice(part);
        }
    };
    const LESS: [&[u8]; 7] = [
        b"range",
        b"if-range",
        b"if-match",
        b"if-none-match",
        b"if-modified-since",
        b"if-unmodified-since",
        b"accept-encoding",
    ];
    for (name, value) in request.headers() {
        if !LESS.iter().any(|n| name.eq_ignore_ascii_case(n)) {
            put(name, value);
        }
    }
    if let Some(old) = old {
        if let Some(tag) = old.field(b"etag") {
            put(b"If-None-Match", tag);
        }
        if let Some(date) = old.field(b"last-modified") {
            put(b"If-Modified-Since", date);
        }
    }
    text.extend_from_slice(b"\r\n\r\n");
    fill::parsed(&text)
}
