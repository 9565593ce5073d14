//! A request that may be answered from the cache and for which no fresh page was found: has it
//! rendered, or waits for the request that does, or lets it pass. The policy decides what may be
//! stored.

mod own;

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use howdah_cache::admission::{SEEN_WITHIN, Step};
use howdah_cache::flight::{Outcome, Seat, Ticket, Waiter};
use howdah_cache::key::Key;
use howdah_cache::object::Object;
use howdah_cache::policy::{Scheme, State};
use howdah_cache::status::Verdict;
use howdah_cache::store::Found;
use howdah_cache::{Millis, Pass};

use self::own::whole_request;
use super::script::LocalRedirect;
use super::{Exchange, Front, Record};
use crate::cache::candidate;
use crate::cache::fill::{self, Against, Order, Visitor};
use crate::cache::lookup::{self, Lookup, Variant};
use crate::cache::{PageCache, SiteCache, now, send};
use crate::client_address::Client;
use crate::http::Responder;
use crate::http::message::RequestHead;
use crate::respond::Failure;
use crate::site::{Action, Route, ScriptTarget, Site};

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

/// Whether the request has been answered.
pub(super) enum Answered {
    /// The request has been answered.
    Yes,
    /// The request goes to the script without the cache, for this reason. The cache may look at its
    /// answer.
    No(Pass, Option<Box<candidate::Asked>>),
    /// The program names a path of this server whose answer is to be its own.
    Elsewhere(LocalRedirect),
}

/// What is to be done about a page that was not found.
enum Try {
    /// Render the page for the cache.
    Render(Variant),
    /// Look at the answer the visitor gets; others wait for what it says.
    Ask(Variant),
    /// The visitor gets an answer of his own, for this reason. It may be worth a look.
    Pass(Pass, Option<Box<candidate::Asked>>),
}

/// Waits for a flight's end, or for the client to leave.
async fn landed(waiter: Waiter, out: &mut Responder) -> Result<Outcome, Failure> {
    let mut landed = pin!(waiter.wait());
    poll_fn(|cx| {
        if let Poll::Ready(outcome) = landed.as_mut().poll(cx) {
            return Poll::Ready(Ok(outcome));
        }
        match out.poll_client_gone(cx) {
            Poll::Ready(()) => Poll::Ready(Err(Failure::ClientGone)),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
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
    let asked = |key| Asked::new(exchange, cache, part, site, key);
    match found {
        Lookup::Pass(why) => Err(why),
        Lookup::None(key) => Ok(Some(Box::new(asked(key)))),
        // An `.htaccess` file written since closes stored pages, too. Routing says so once more.
        Lookup::Page { .. } if is_closed(site, exchange.request) => {
            let key = lookup::key_of(part, site, exchange.request, exchange.client)?;
            Ok(Some(Box::new(asked(key))))
        }
        Lookup::Page {
            page,
            state,
            conditional,
            now,
            key,
        } => {
            let found = (&page, state, now);
            let Some(key) = key else {
                serve(exchange, part, found, conditional, out, record);
                if part.checks.is_turn(part.config.shadow) {
                    shadow(front, exchange, cache, part, site, page);
                }
                return Ok(None);
            };
            let asked = Asked {
                old: Some((page.clone(), state)),
                conditional,
                ..asked(key)
            };
            if state != State::Grace {
                return Ok(Some(Box::new(asked)));
            }
            asked.refresh_behind();
            serve(exchange, part, found, conditional, out, record);
            Ok(None)
        }
    }
}

/// Nobody may have the answer that is stored for this request.
fn is_closed(site: &Site, request: &RequestHead) -> bool {
    site.htaccess_may_close(request)
        && matches!(site.route(request).action, Action::Refused { refusal, .. } if refusal.is_of_htaccess())
}

/// Has the page that was just served rendered again behind the reader's back, to be compared with it.
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
    let asked = Asked::new(exchange, cache, part, site, key);
    let Ok(variant) = asked.variant() else {
        return;
    };
    let Some((ticket, mut order)) = asked.behind(variant) else {
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
    (page, state, now): (&Arc<Object>, State, Millis),
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
    (page, now): (&Arc<Object>, Millis),
    verdict: Verdict,
    conditional: bool,
    out: &mut Responder,
    record: &mut Record,
) {
    part.count(verdict);
    record.cache = Some(verdict);
    let encoding = &exchange.config.settings.encoding;
    record.later = send::page(
        page,
        verdict,
        exchange.request,
        conditional,
        encoding,
        now,
        out,
    )
    .map(Box::new);
}

impl<'a> Asked<'a> {
    /// A request for which the cache has no fresh page.
    pub(super) fn new(
        exchange: Exchange<'a>,
        cache: &'a Arc<PageCache>,
        part: &'a SiteCache,
        site: &'a Arc<Site>,
        key: Box<Key>,
    ) -> Asked<'a> {
        Asked {
            exchange,
            cache,
            part,
            site,
            key,
            old: None,
            conditional: false,
        }
    }

    fn variant(&self) -> Result<Variant, Pass> {
        lookup::variant_of(self.cache, &self.key, self.exchange.request)
    }

    /// What the leader of a flight of this request's page orders.
    fn order(&self, variant: Variant) -> Order {
        Order {
            config: self.exchange.config.clone(),
            cache: self.cache.clone(),
            site: self.site.clone(),
            key: self.key.clone(),
            https: self.exchange.client.https,
            fields: variant.fields,
            variant: variant.key,
            id: self.exchange.id,
            visitor: None,
            against: None,
            behind: None,
        }
    }

    /// The right to have the page rendered behind the reader's back, unless somebody does already, or
    /// others of the kind take all places.
    fn behind(&self, variant: Variant) -> Option<(Ticket, Order)> {
        let place = self.cache.behind.clone().try_acquire_owned().ok()?;
        let Seat::Lead(ticket) = self.cache.flights.board(&variant.key) else {
            return None;
        };
        let mut order = self.order(variant);
        order.behind = Some(place);
        Some((ticket, order))
    }

    /// What a candidate for the cache is about, while this request gets an answer of its own.
    fn candidate(&self, variant: Variant, ticket: Option<Ticket>) -> Option<Box<candidate::Asked>> {
        let request = self.exchange.request;
        let worth_a_look =
            self.part.rules().scheme == Scheme::CleanRoom && request.method() == b"GET";
        worth_a_look.then(|| {
            // Boxed: a connection's memory is that of its largest state.
            Box::new(candidate::Asked {
                key: self.key.clone(),
                variant: variant.key,
                conditional: is_conditional(request),
                ticket,
            })
        })
    }

    /// Has the page rendered again behind the reader's back, unless somebody does already, or the last
    /// renders were not stored.
    pub(super) fn refresh_behind(&self) {
        if let Ok(variant) = self.variant()
            && !matches!(self.step(&variant), Step::Pass(_))
        {
            self.render_behind(variant);
        }
    }

    /// What is known of the page. Under `rfc` the visitor's own answer is what is stored.
    fn step(&self, variant: &Variant) -> Step {
        if self.part.rules().scheme == Scheme::Rfc {
            return Step::Render;
        }
        // What is stale has been stored before.
        let within = (self.key.query().is_some() && self.old.is_none()).then_some(SEEN_WITHIN);
        let admission = &self.cache.admission;
        match admission.step(&variant.key, self.part.epoch(), now(), within) {
            Step::Ask if self.old.is_some() => Step::Render,
            step => step,
        }
    }

    fn render_behind(&self, variant: Variant) {
        let Some((ticket, mut order)) = self.behind(variant) else {
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
            let variant = match self.to_try() {
                Try::Render(variant) => variant,
                Try::Ask(variant) => match self.cache.flights.board(&variant.key) {
                    // Between the look and the seat another visitor's answer may have been judged.
                    Seat::Lead(ticket) if !matches!(self.step(&variant), Step::Ask) => {
                        ticket.land(Outcome::LookAgain);
                        continue;
                    }
                    Seat::Lead(ticket) => {
                        let candidate = self.candidate(variant, Some(ticket));
                        return Ok(Answered::No(Pass::NotYetAdmitted, candidate));
                    }
                    Seat::Wait(waiter) => match landed(waiter, out).await? {
                        Outcome::Passed(why) => {
                            let candidate = self.candidate(variant, None);
                            return Ok(Answered::No(why, candidate));
                        }
                        Outcome::Stored(_) | Outcome::LookAgain => continue,
                    },
                },
                Try::Pass(why, candidate) => return Ok(Answered::No(why, candidate)),
            };
            let seat = self.cache.flights.board(&variant.key);
            let order = self.order(variant);
            let clean = self.part.rules().scheme == Scheme::CleanRoom;
            let (collapsed, outcome) = match seat {
                Seat::Wait(waiter) => (true, landed(waiter, out).await?),
                Seat::Lead(ticket) if clean => {
                    // Between the look and the seat the page may have been stored.
                    let old = self.old.clone();
                    if self.look_again(out, record) {
                        ticket.land(Outcome::LookAgain);
                        return Ok(Answered::Yes);
                    }
                    self.old = self.old.take().or(old);
                    let waiter = ticket.waiter();
                    fill::start(order, ticket);
                    (false, landed(waiter, out).await?)
                }
                Seat::Lead(_) if self.exchange.request.method() == b"HEAD" => {
                    return Ok(Answered::No(Pass::NotYetAdmitted, None));
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
                    let candidate = self.variant().ok();
                    let candidate = candidate.and_then(|variant| self.candidate(variant, None));
                    return Ok(Answered::No(why, candidate));
                }
            }
        }
        Ok(Answered::No(Pass::OutdatedRender, None))
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

    /// What is to be done about the page.
    fn to_try(&self) -> Try {
        let variant = match self.variant() {
            Ok(variant) => variant,
            Err(why) => return Try::Pass(why, None),
        };
        let request = self.exchange.request;
        let why = match self.step(&variant) {
            Step::Pass(why) => why,
            // Of an answer to these nothing follows for the page, or only now and then.
            Step::Ask if request.method() == b"HEAD" || is_conditional(request) => {
                Pass::NotYetAdmitted
            }
            Step::Ask => return Try::Ask(variant),
            Step::Render if self.old.is_none() && !self.is_worth_a_try() => Pass::SiteRarelyStores,
            Step::Render => return Try::Render(variant),
        };
        Try::Pass(why, self.candidate(variant, None))
    }

    fn is_worth_a_try(&self) -> bool {
        self.part.rules().scheme == Scheme::Rfc || self.part.is_worth_a_try()
    }

    /// On trial: has the page rendered for the next reader, if that is to be tried; else says why not,
    /// and what the visitor's own answer is looked at for.
    pub(super) fn try_behind(&self) -> Result<(), (Pass, Option<Box<candidate::Asked>>)> {
        match self.to_try() {
            Try::Render(variant) => {
                self.render_behind(variant);
                Ok(())
            }
            Try::Ask(variant) => Err((Pass::NotYetAdmitted, self.candidate(variant, None))),
            Try::Pass(why, candidate) => Err((why, candidate)),
        }
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
        // Looked at again: something may have been written meanwhile.
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

    fn deliver(
        &self,
        page: &Arc<Object>,
        verdict: Verdict,
        out: &mut Responder,
        record: &mut Record,
    ) {
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
}

fn is_conditional(request: &RequestHead) -> bool {
    request.headers().any(|(name, _)| {
        name.eq_ignore_ascii_case(b"range")
            || (name.len() > 3 && name[..3].eq_ignore_ascii_case(b"if-"))
    })
}
