//! A response that may be stored for its own visitor alone: its key, and the copy that is made while the visitor
//! receives it. Whether it may be stored is decided by the policy (`howdah_cache::policy::private`).

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

use howdah_cache::policy::private::{PrivateWish, private_wish};
use howdah_cache::store::private::PrivateRender;
use howdah_cache::visitor::{VisitorCookies, VisitorToken};
use howdah_cache::{Millis, Object, Pass, Storable};
use howdah_executor::{ExecError, RunEvent, RunWrapper, ScriptHead, ScriptRun};
use howdah_http::ConnectionInfo;
use howdah_http::message::RequestHead;

use super::body_collector::BodyCollector;
use super::judge::JudgedHead;
use super::lookup::{self, PrivateUrl};
use super::run_effects::RunEffects;
use super::{PageCache, SiteCache, header_slices};
use howdah_site::client_address::Client;
use howdah_site::site::Site;

/// A request whose response can be one of its visitor's own pages.
#[derive(Debug)]
pub struct PrivatePage {
    key: Vec<u8>,
    url_key: Vec<u8>,
    visitor: Vec<VisitorToken>,
    /// Whether the request asks for a part of the page or sets conditions.
    pub conditional: bool,
}

/// Returns the cookies that identify the visitor of a request.
pub fn visitor_of(
    cache: &PageCache,
    part: &SiteCache,
    site: &Site,
    request: &RequestHead,
) -> VisitorCookies {
    let store = &cache.private.store;
    let name = &site.config().name;
    store.key.cookies(name, part.rules(), request.headers())
}

impl PrivatePage {
    /// Returns the page of a request. `included_by` is the target of the page around it, if PHP sees that.
    ///
    /// # Errors
    /// Why the response cannot be a private page, whatever it says.
    pub fn of_request(
        (cache, part, site): (&PageCache, &SiteCache, &Site),
        (request, client, conn): (&RequestHead, &Client<'_>, &ConnectionInfo),
        included_by: Option<&[u8]>,
        visitor: &VisitorCookies,
    ) -> Result<PrivatePage, Pass> {
        let PrivateUrl { key, conditional } = lookup::private_url(part, site, request, client)?;
        let visitor = visitor.identity().ok_or(Pass::VisitorUnidentified)?;
        let facts = connection_facts(client, conn);
        let facts = facts.iter().map(Vec::as_slice);
        let facts: Vec<&[u8]> = [included_by.unwrap_or_default()]
            .into_iter()
            .chain(facts)
            .collect();
        let private = &cache.private;
        let of = (private.configuration, &facts[..]);
        let headers = request.headers();
        Ok(PrivatePage {
            key: private
                .store
                .key
                .page_key(&key, visitor, part.rules(), headers, of),
            url_key: key.as_bytes().to_vec(),
            visitor: visitor.to_vec(),
            conditional,
        })
    }

    /// Returns the stored page, if it is fresh.
    pub fn find(&self, cache: &PageCache, part: &SiteCache, now: Millis) -> Option<Arc<Object>> {
        let store = &cache.private.store;
        store.find(&self.key, &part.generations, now)
    }
}

/// Returns what PHP sees of the connection: applications compare a visitor's address with that of the login.
fn connection_facts(client: &Client<'_>, conn: &ConnectionInfo) -> Vec<Vec<u8>> {
    let address = client.address.map(|address| address.to_string());
    let local = conn.local.map(|local| local.to_string());
    let mut facts: Vec<Vec<u8>> = [address, local]
        .into_iter()
        .map(|text| text.unwrap_or_default().into_bytes())
        .collect();
    for (name, value) in client.tls.iter().flat_map(|tls| &tls.client) {
        facts.push(name.as_bytes().to_vec());
        facts.push(value.as_bytes().to_vec());
    }
    facts
}

/// Returns the key under which `howdah cache explain` finds why a private page was not stored.
pub(super) fn reason_key(url_key: &[u8]) -> Vec<u8> {
    [b"private\0", url_key].concat()
}

/// The head of a response as its script sent it, and what it asks for. The client's head may say something else,
/// because the tags of the response are processed.
#[derive(Debug)]
pub struct OwnHead {
    /// The status and the headers.
    pub script: ScriptHead,
    /// What the head asks of this cache.
    pub wish: PrivateWish,
}

/// A head with the policy's permission to store the response, or why the response cannot be stored.
pub type PrivateJudgement = Result<(JudgedHead, Storable), Pass>;

/// A response that is copied while its visitor receives it.
#[derive(Debug)]
pub struct PrivateCandidate {
    cache: Arc<PageCache>,
    site: Arc<Site>,
    page: PrivatePage,
    render: PrivateRender,
    /// The generation in which the run began.
    born: u64,
    limit: u64,
    effects: Arc<RunEffects>,
    state: Mutex<CopyState>,
}

#[derive(Debug, Default)]
struct CopyState {
    /// The copy, while it is complete and not too long.
    body: Option<BodyCollector>,
    ended: bool,
    judged: Option<PrivateJudgement>,
}

impl PrivateCandidate {
    /// Begins to watch the run of a request. Call it before the run starts.
    pub fn new(
        cache: &Arc<PageCache>,
        part: &SiteCache,
        site: &Arc<Site>,
        page: PrivatePage,
        effects: &Arc<RunEffects>,
    ) -> Arc<PrivateCandidate> {
        let store = &cache.private.store;
        let render = store.begin_render(&page.visitor);
        Arc::new(PrivateCandidate {
            cache: cache.clone(),
            site: site.clone(),
            page,
            render,
            born: part.generations.now(),
            limit: part.rules().max_object.min(store.max_body_bytes()),
            effects: effects.clone(),
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, CopyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the judgement of the response's head, just before the head is sent, and stores the page if the script has
    /// ended.
    ///
    /// # Errors
    /// Why the page cannot be stored, as far as that is known.
    pub fn judge(&self, judged: PrivateJudgement) -> Result<(), Pass> {
        let Some(part) = self.cache.site(&self.site) else {
            return Err(Pass::RunFailed);
        };
        let mut state = self.lock();
        state.judged = Some(judged);
        let result = match &state.judged {
            Some(Err(why)) => Err(*why),
            _ if state.body.is_none() => Err(Pass::TooLarge),
            _ => self.check_run(),
        };
        let result = match result {
            Ok(()) if state.ended => self.store(part, &mut state),
            result => result,
        };
        if let Err(why) = result {
            self.record(part, why);
        }
        result
    }

    /// Checks that the run has done nothing that forbids storing its response.
    fn check_run(&self) -> Result<(), Pass> {
        match self.effects.visitor.forbidden() {
            Some(cause) => Err(cause.pass),
            None if self.render.is_outdated() => Err(Pass::OutdatedRender),
            None => Ok(()),
        }
    }

    fn record(&self, part: &SiteCache, why: Pass) {
        let text = self.effects.visitor.forbidden();
        let text = text.map_or_else(|| "".into(), |cause| cause.text.clone());
        let key = reason_key(&self.page.url_key);
        part.reasons.record_unstored(&key, why, &text);
    }

    /// Stores the complete page.
    fn store(&self, part: &SiteCache, state: &mut CopyState) -> Result<(), Pass> {
        let Some(Ok((head, storable))) = &mut state.judged else {
            return Ok(());
        };
        let Some(body) = state.body.take() else {
            return Ok(());
        };
        self.check_run()?;
        self.effects.add_tags(storable)?;
        head.add_entity_tag(&body);
        let page = head.page(storable, body.finish(), &self.page.url_key, self.born)?;
        let store = &self.cache.private.store;
        store.store(&self.render, &self.page.key, page, &part.generations)?;
        let reasons = &part.reasons;
        reasons.forget_unstored(&reason_key(&self.page.url_key));
        Ok(())
    }

    /// Begins to copy the response.
    fn copy_body(&self) {
        self.lock().body = Some(BodyCollector::default());
    }

    fn note_event(&self, event: &RunEvent) {
        let mut state = self.lock();
        match event {
            RunEvent::Body(bytes) => {
                let fits = |body: &BodyCollector| body.len() + bytes.len() as u64 <= self.limit;
                state.body = state.body.take().filter(fits);
                if let Some(body) = &mut state.body {
                    body.push(bytes);
                }
            }
            RunEvent::End => {
                state.ended = true;
                let is_judged = matches!(state.judged, Some(Ok(_)));
                if is_judged
                    && let Some(part) = self.cache.site(&self.site)
                    && let Err(why) = self.store(part, &mut state)
                {
                    self.record(part, why);
                }
            }
            RunEvent::Head(_) | RunEvent::Informational(_) | RunEvent::Flush | RunEvent::Effect => {
            }
        }
    }
}

/// A run whose request has a visitor. Keeps the head of its response, copies the response if it asks to be stored, and
/// forgets the visitor's pages before the end of the response is passed on.
pub struct WatchedRun {
    /// The run of the script.
    pub run: Box<dyn ScriptRun>,
    /// Whether the tag of the page that includes the response has `cache-control="private"`.
    pub included_as_private: bool,
    /// The head of the response, once the script has sent one that asks for the response to be stored.
    pub head: Arc<OnceLock<OwnHead>>,
    /// The copy of the response, if it can be stored.
    pub candidate: Option<Arc<PrivateCandidate>>,
    /// The effects of the run.
    pub effects: Arc<RunEffects>,
}

impl WatchedRun {
    fn read_head(&self, head: &ScriptHead) {
        let wish = private_wish(&header_slices(&head.headers), self.included_as_private);
        if wish.lifetime().is_none() {
            return;
        }
        if let Some(candidate) = &self.candidate {
            candidate.copy_body();
        }
        let script = head.clone();
        // A response has one head.
        let _ = self.head.set(OwnHead { script, wish });
    }
}

impl RunWrapper for WatchedRun {
    fn inner(&self) -> &dyn ScriptRun {
        &*self.run
    }

    fn poll_event_around(&mut self, cx: &mut Context<'_>) -> Poll<Result<RunEvent, ExecError>> {
        let event = std::task::ready!(self.run.poll_event(cx))?;
        match &event {
            RunEvent::Head(head) => self.read_head(head),
            RunEvent::End => self.effects.settle_visitor(false),
            _ => {}
        }
        if let Some(candidate) = &self.candidate {
            candidate.note_event(&event);
        }
        Poll::Ready(Ok(event))
    }
}
