//! A request that may be answered from the cache and for which no fresh page was found: has it
//! rendered, or waits for whoever does, or lets it pass. What may be stored is the policy's word.

use std::borrow::Cow;
use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use howdah_cache::flight::{Outcome, Seat, Ticket};
use howdah_cache::generation::{Force, Purge};
use howdah_cache::key::Key;
use howdah_cache::object::{Draft, Object};
use howdah_cache::policy::{Scheme, State};
use howdah_cache::preset::Form;
use howdah_cache::status::Verdict;
use howdah_cache::store::Found;
use howdah_cache::{Millis, Pass, Storable};
use howdah_executor::{Event, ScriptBody, ScriptRequest};

use super::script::LocalRedirect;
use super::{Exchange, Front, Record, build_frame};
use crate::cache::dialect;
use crate::cache::fill::{self, Against, Order, Visitor};
use crate::cache::lookup::{self, Lookup};
use crate::cache::tee::Tee;
use crate::cache::watch::Watch;
use crate::cache::write::{self, Write};
use crate::cache::{Line, PageCache, SEEN_WITHIN, SiteCache, now, send};
use crate::client_address::Client;
use crate::http::Responder;
use crate::http::message::{RequestHead, ResponseHead};
use crate::respond::Failure;
use crate::script::frame::BodyLength;
use crate::script::head;
use crate::script::pump::{Ended, Pump};
use crate::site::{Route, ScriptTarget, Site};

/// How often a request looks again before it goes for itself.
const LOOKS: usize = 4;

/// A request on its way through the cache.
pub(super) struct Asked<'a> {
    pub exchange: Exchange<'a>,
    pub cache: &'a Arc<PageCache>,
    pub part: &'a SiteCache,
    pub site: &'a Arc<Site>,
    pub key: Box<Key>,
    /// What was found, too old to be served as it is.
    pub old: Option<(Arc<Object>, State)>,
    pub conditional: bool,
}

/// What became of it.
pub(super) enum Answered {
    /// It is answered.
    Yes,
    /// It goes to the script as any other, and this is why.
    No(Pass),
    /// The program names a path of this server whose answer is to be its own.
    Elsewhere(LocalRedirect),
}

/// Looks for a page and serves a fresh one at once. What is left to do is boxed: a connection's memory
/// is that of its largest state.
#[allow(clippy::too_many_arguments)] // The request's two halves, and what routing found.
pub(super) fn look<'a>(
    front: &Front,
    exchange: Exchange<'a>,
    cache: &'a Arc<PageCache>,
    part: &'a SiteCache,
    site: &'a Arc<Site>,
    has_body: bool,
    out: &mut Responder,
    record: &mut Record,
) -> Result<Option<Box<Asked<'a>>>, Pass> {
    let found = lookup::look(
        cache,
        part,
        site,
        exchange.request,
        exchange.client,
        has_body,
    );
    match found {
        Lookup::Pass(why) => Err(why),
        Lookup::None(key) => Ok(Some(Box::new(Asked {
            exchange,
            cache,
            part,
            site,
            key,
            old: None,
            conditional: false,
        }))),
        Lookup::Page {
            page,
            state,
            conditional,
            now,
            key,
        } => match key {
            None => {
                serve(
                    exchange,
                    part,
                    (&page, state, now),
                    conditional,
                    out,
                    record,
                );
                if part.checks.is_turn(part.config.shadow) {
                    shadow(front, exchange, cache, part, site, page);
                }
                Ok(None)
            }
            Some(key) => {
                let asked = Box::new(Asked {
                    exchange,
                    cache,
                    part,
                    site,
                    key,
                    old: Some((page.clone(), state)),
                    conditional,
                });
                if state == State::Grace {
                    asked.refresh_behind();
                    serve(
                        exchange,
                        part,
                        (&page, state, now),
                        conditional,
                        out,
                        record,
                    );
                    return Ok(None);
                }
                Ok(Some(asked))
            }
        },
    }
}

/// Has the page that was just served rendered anew behind the reader's back, to be compared with it.
fn shadow(
    front: &Front,
    exchange: Exchange<'_>,
    cache: &Arc<PageCache>,
    part: &SiteCache,
    site: &Arc<Site>,
    page: Arc<Object>,
) {
    // Another's own request is not repeated for a check.
    if part.rules().scheme == Scheme::Rfc {
        return;
    }
    let Ok(key) = lookup::key_of(part, site, exchange.request, exchange.client) else {
        return;
    };
    let asked = Asked {
        exchange,
        cache,
        part,
        site,
        key,
        old: None,
        conditional: false,
    };
    let Ok((Seat::Lead(ticket), mut order)) = asked.seat() else {
        return;
    };
    order.against = Some(Against {
        page,
        log: front.error_log.clone(),
    });
    fill::start(order, ticket);
}

fn serve(
    exchange: Exchange<'_>,
    part: &SiteCache,
    (page, state, now): (&Object, State, Millis),
    conditional: bool,
    out: &mut Responder,
    record: &mut Record,
) {
    let ttl = page.freshness.ttl(now).div_euclid(1000);
    let verdict = Verdict::Hit {
        ttl: match state {
            State::Fresh => ttl,
            // After a soft purge its own lifetime is not over.
            _ => ttl.min(-1),
        },
    };
    deliver(
        exchange,
        part,
        (page, now),
        verdict,
        conditional,
        out,
        record,
    );
}

fn deliver(
    exchange: Exchange<'_>,
    part: &SiteCache,
    (page, now): (&Object, Millis),
    verdict: Verdict,
    conditional: bool,
    out: &mut Responder,
    record: &mut Record,
) {
    part.count(verdict);
    record.cache = Some(verdict);
    let encoding = &exchange.config.settings.encoding;
    send::page(
        page,
        verdict,
        exchange.request,
        conditional,
        encoding,
        now,
        out,
    );
}

impl<'a> Asked<'a> {
    /// A seat in the flight of this request's page, and what the leader orders.
    fn seat(&self) -> Result<(Seat, Order), Pass> {
        let (fields, variant) = lookup::keyed(self.cache, &self.key, self.exchange.request)?;
        let seat = self.cache.flights.board(&variant);
        let order = Order {
            config: self.exchange.config.clone(),
            cache: self.cache.clone(),
            site: self.site.clone(),
            key: self.key.clone(),
            https: self.exchange.client.https,
            fields,
            variant,
            id: self.exchange.id,
            visitor: None,
            against: None,
        };
        Ok((seat, order))
    }

    /// Has the page rendered anew behind the reader's back, unless somebody does already.
    pub(super) fn refresh_behind(&self) {
        let Ok((Seat::Lead(ticket), mut order)) = self.seat() else {
            return;
        };
        if self.part.rules().scheme == Scheme::Rfc {
            let Exchange {
                request,
                client,
                conn,
                ..
            } = self.exchange;
            // Somebody's credentials are not used behind his back; the next one asks himself.
            let own = whole_request(request, None);
            let Some(own) = own.filter(|own| own.header(b"authorization").is_none()) else {
                return;
            };
            order.visitor = Some(Visitor {
                request: own,
                client: Client {
                    address: client.address,
                    port: client.port,
                    https: client.https,
                    host: client.host.as_ref().map(|h| Cow::Owned(h.to_vec())),
                    server_port: client.server_port,
                    proxied: client.proxied,
                },
                local: conn.local,
            });
        }
        fill::start(order, ticket);
    }

    /// Goes on until it is answered, or is to go to the script.
    pub(super) async fn answer(
        mut self,
        front: &Front,
        route: &Route,
        target: &ScriptTarget,
        out: &mut Responder,
        record: &mut Record,
    ) -> Result<Answered, Failure> {
        if self.old.is_none() && self.look_on_disk(out, record).await {
            return Ok(Answered::Yes);
        }
        for attempt in 0..LOOKS {
            if attempt > 0 && self.look_again(out, record) {
                return Ok(Answered::Yes);
            }
            if let Err(why) = self.may_try() {
                return Ok(Answered::No(why));
            }
            let (seat, order) = match self.seat() {
                Ok(seat) => seat,
                Err(why) => return Ok(Answered::No(why)),
            };
            let clean = self.part.rules().scheme == Scheme::CleanRoom;
            let (collapsed, outcome) = match seat {
                Seat::Wait(waiter) => (true, waiter.wait().await),
                Seat::Lead(ticket) if clean => {
                    let waiter = ticket.waiter();
                    fill::start(order, ticket);
                    (false, waiter.wait().await)
                }
                Seat::Lead(_) if self.exchange.request.method() == b"HEAD" => {
                    return Ok(Answered::No(Pass::NotYetAdmitted));
                }
                Seat::Lead(ticket) => {
                    return self.own(front, route, target, ticket, out, record).await;
                }
            };
            match outcome {
                // Under `rfc` the leader's page may be another variant than this request's.
                Outcome::Stored(page) if clean => {
                    let state = page.state(&self.part.generations, now());
                    if matches!(state, Some(State::Fresh | State::Grace)) {
                        let verdict = Verdict::Stored { collapsed };
                        self.deliver(&page, verdict, out, record);
                        return Ok(Answered::Yes);
                    }
                }
                Outcome::Stored(_) | Outcome::LookAgain => {}
                Outcome::Passed(why) => {
                    if why.is_failure() && self.serve_old(out, record) {
                        return Ok(Answered::Yes);
                    }
                    return Ok(Answered::No(why));
                }
            }
        }
        Ok(Answered::No(Pass::OutdatedRender))
    }

    /// Serves a page that is on disk and not in memory. What is too old to be served as it is stands by
    /// for when PHP fails, or to be validated.
    async fn look_on_disk(&mut self, out: &mut Responder, record: &mut Record) -> bool {
        let memory = &self.cache.memory;
        if memory.disk().is_none() {
            return false;
        }
        let request = self.exchange.request;
        let variant = |names: &[Vec<u8>]| lookup::variant(&self.key, names, request);
        let generations = &self.part.generations;
        let found = memory.fetch(self.key.as_bytes(), variant, generations, now());
        let Found::Page(page, state) = found.await else {
            return false;
        };
        self.old = Some((page.clone(), state));
        match state {
            State::Grace => self.refresh_behind(),
            State::Fresh => {}
            State::IfError | State::Stale => return false,
        }
        let conditional = is_conditional(request);
        serve(
            self.exchange,
            self.part,
            (&page, state, now()),
            conditional,
            out,
            record,
        );
        true
    }

    /// Whether a render for the cache is to be tried.
    pub(super) fn may_try(&self) -> Result<(), Pass> {
        let (_, variant) = lookup::keyed(self.cache, &self.key, self.exchange.request)?;
        let at = now();
        if self.cache.memory.passed_before(&variant, at).is_some() {
            return Err(Pass::PassedBefore);
        }
        if self.part.rules().scheme == Scheme::Rfc || self.old.is_some() {
            return Ok(());
        }
        if self.key.query().is_some()
            && !self.cache.flights.is_flying(&variant)
            && !self.cache.memory.seen_before(&variant, at, SEEN_WITHIN)
        {
            return Err(Pass::NotYetAdmitted);
        }
        if !self.part.is_worth_a_try() {
            return Err(Pass::SiteRarelyStores);
        }
        Ok(())
    }

    fn look_again(&mut self, out: &mut Responder, record: &mut Record) -> bool {
        let request = self.exchange.request;
        let variant = |names: &[Vec<u8>]| lookup::variant(&self.key, names, request);
        let memory = &self.cache.memory;
        let found = memory.look(self.key.as_bytes(), variant, &self.part.generations, now());
        match found {
            Found::Page(page, State::Fresh) => {
                self.deliver(&page, Verdict::Stored { collapsed: true }, out, record);
                true
            }
            Found::Page(page, state) => {
                self.old = Some((page, state));
                false
            }
            Found::Nothing => {
                self.old = None;
                false
            }
        }
    }

    /// Serves a page beyond its lifetime because it could not be rendered, if it may be.
    fn serve_old(&self, out: &mut Responder, record: &mut Record) -> bool {
        let Some((page, _)) = &self.old else {
            return false;
        };
        // Looked at anew: something may have been written meanwhile.
        let now = now();
        match page.state(&self.part.generations, now) {
            None | Some(State::Stale) => false,
            Some(state) => {
                serve(
                    self.exchange,
                    self.part,
                    (page, state, now),
                    self.conditional,
                    out,
                    record,
                );
                true
            }
        }
    }

    fn deliver(&self, page: &Object, verdict: Verdict, out: &mut Responder, record: &mut Record) {
        let conditional = self.conditional || is_conditional(self.exchange.request);
        deliver(
            self.exchange,
            self.part,
            (page, now()),
            verdict,
            conditional,
            out,
            record,
        );
    }

    /// `cache = rfc`: the visitor's own request, without what asks for less than the whole, and with
    /// what validates the page that is stored.
    #[allow(clippy::too_many_arguments)] // The request's two halves, and what routing found.
    async fn own(
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
            return Ok(Answered::No(Pass::HeadTooLarge));
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
            effects: Some(watch.clone()),
        });
        let first = loop {
            match poll_fn(|cx| run.poll_event(cx)).await {
                Ok(Event::Informational(early)) => {
                    out.informational(&head::informational(&early));
                }
                // Nothing to pass on yet: the head is told by the script's next word.
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
                // Nobody waits for an answer that is not for him.
                // Not remembered either: nothing is rendered twice by trying.
                ticket.land(Outcome::Passed(*why));
                (Verdict::Pass(*why), 0, None)
            }
        };
        self.part.count(verdict);
        record.cache = Some(verdict);
        let edit = |head: &mut ResponseHead| {
            dialect::obey(self.part, self.exchange.request.method(), head);
            watch.settle();
            self.site.edit_headers(route, head);
            tell(head, verdict);
        };
        let mut tee = Tee::new(run, first, limit, Some(watch.clone()));
        let mut pump = Pump::new(&config.pump, self.exchange.request, &edit, true);
        let ended = poll_fn(|cx| {
            let turn = pump.poll(cx, &mut tee, out);
            super::script::note_spill_error(front, self.exchange, &mut pump);
            turn
        })
        .await;
        watch.settle();
        record.run = howdah_executor::Run::timing(&tee);
        super::script::note_repairs(front, self.exchange, &pump);
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
                let edit: super::script::Edit<'_> = &edit;
                let sent = super::script::send_file(self.exchange, self.site, &head, edit, out);
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

/// A script's run that the cache does not share: tells the client why, and makes old what the run
/// may have changed.
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
        let (method, path) = (exchange.request.method(), exchange.request.path());
        let get_writes = part
            .rules()
            .preset
            .get_writes(path, exchange.request.query());
        if get_writes || !matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE") {
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
            && status.is_some_and(|page| page.allows(self.exchange.client.address))
        {
            let text = cause.to_string().replace(|c: char| !c.is_ascii(), "?");
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
        if let Some(write) = self.write() {
            write.happened(self.part, failure.map_or(200, Failure::status));
        }
    }
}

/// What a visitor's own answer is stored by.
struct Made {
    storable: Storable,
    lines: Vec<Line>,
    script: howdah_executor::Head,
    request: RequestHead,
    born: u64,
}

/// Adds what the cache did to a script's head.
pub(super) fn tell(head: &mut ResponseHead, verdict: Verdict) {
    let mut lines = Vec::with_capacity(96);
    verdict.fields(&mut lines);
    for line in lines.split(|b| *b == b'\n') {
        if let Some(colon) = line.iter().position(|b| *b == b':') {
            head.header(&line[..colon], line[colon + 1..].trim_ascii());
        }
    }
}

fn is_conditional(request: &RequestHead) -> bool {
    request.headers().any(|(name, _)| {
        name.eq_ignore_ascii_case(b"range")
            || (name.len() > 3 && name[..3].eq_ignore_ascii_case(b"if-"))
    })
}

/// A request for the whole page: without conditions, ranges and codings of the client's, with the
/// validators of the page that is stored.
fn whole_request(request: &RequestHead, old: Option<&Object>) -> Option<RequestHead> {
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
