//! Answers that are the same whoever asks: kept by what was asked, until something changes that they are
//! made of.

use std::net::IpAddr;
use std::sync::Arc;

use howdah_htaccess::{self as apache, Answer, Facts};
use howdah_http::message::RequestHead;

use super::super::memo::Question;
use super::super::thread;
use super::super::watched::Watched;
use super::super::world::{Seen, SiteWorld};
use super::Visitor;
use crate::docroot::root::RootDir;
use crate::refusal::Refusal;
use crate::site::Site;
use crate::site::route::Walk;
use crate::site::search::FileView;

/// An answer, and what was found where it looked.
pub(in crate::site::htaccess) struct Answered {
    answer: Arc<Answer>,
    /// What is to be looked at again.
    seen: Vec<Seen>,
    is_repeated: bool,
}

impl Answered {
    /// The answer, if nothing has changed where it looked.
    fn again(
        &mut self,
        world: &SiteWorld<'_>,
        watched: &mut Option<Watched>,
    ) -> Option<Arc<Answer>> {
        if !self.seen.iter().all(|seen| world.is_still(seen)) {
            return None;
        }
        if !self.is_repeated {
            self.is_repeated = true;
            if let Some(watched) = watched {
                self.trust(world.root, watched);
            }
        }
        Some(self.answer.clone())
    }

    /// Leaves out what will be reported if it changes. Not for an answer that is asked for once.
    fn trust(&mut self, root: &RootDir, watched: &mut Watched) {
        let mut missing: Vec<Box<[u8]>> = Vec::new();
        self.seen.retain(|(name, found)| {
            let trusts = watched.trusts(root, name, *found);
            if trusts && found.is_err() {
                missing.push(name.clone());
            }
            !trusts
        });
        // Nothing is below what is not there.
        let below = |name: &[u8]| {
            let mut above = missing
                .iter()
                .filter_map(|above| name.strip_prefix(&**above));
            above.any(|rest| rest.starts_with(b"/"))
        };
        self.seen
            .retain(|(name, found)| *found != Err(Refusal::NotFound) || !below(name));
    }
}

/// What a URL of the site begins with.
pub(super) struct Origin<'a> {
    pub(super) host: &'a [u8],
    pub(super) https: bool,
    pub(super) port: u16,
}

impl<'a> Origin<'a> {
    pub(super) fn of(walk: &Walk<'a>, visitor: Visitor<'a>) -> Origin<'a> {
        let client = visitor.client;
        let host = client
            .and_then(|client| client.host.as_deref())
            .unwrap_or_else(|| walk.head.host());
        let https = client.is_some_and(|client| client.https);
        let standard = if https { 443 } else { 80 };
        let proxied = client.is_none_or(|client| client.proxied);
        let port = match visitor.local {
            Some(local) if !proxied => local.port(),
            _ => crate::client_address::split_host(host)
                .1
                .unwrap_or(standard),
        };
        Origin { host, https, port }
    }

    /// Puts into a question what an answer may depend on, but for the rest of the request's header and who
    /// sends it ([`Answer::is_by_url`]).
    fn ask(&self, root: u64, head: &RequestHead, visitor: Visitor<'_>, question: &mut Question) {
        let address = visitor.local.map(|local| match local.ip().to_canonical() {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        });
        let address = address.unwrap_or_default().to_ne_bytes();
        question
            .begin(root)
            .number(u64::from(self.port) * 2 + u64::from(self.https))
            .text(&address)
            .text(head.version().as_str().as_bytes())
            .text(self.host)
            .text(head.method())
            .text(head.target());
    }
}

/// Keeps an answer, if it is the same whoever asks.
fn keep(question: &Question, answer: &Arc<Answer>, world: &SiteWorld<'_>) {
    let Some((since, seen)) = world.looked_at().filter(|_| answer.is_by_url()) else {
        return;
    };
    let kept = Answered {
        answer: answer.clone(),
        seen: seen.into(),
        is_repeated: false,
    };
    thread::with(|thread| {
        let watched = &thread.watched;
        thread
            .answers
            .keep(watched, question.as_bytes(), since, kept);
    });
}

impl Site {
    /// The answer, and what the lines about the response need of the request. An answer that is the same
    /// whoever asks is kept until something changes that it is made of.
    pub(super) fn live_answer(
        &self,
        tree: &FileView,
        walk: &Walk<'_>,
        world: &SiteWorld<'_>,
        visitor: Visitor<'_>,
    ) -> (Arc<Answer>, Option<Box<Facts<'static>>>) {
        let origin = Origin::of(walk, visitor);
        let mut question = None;
        // `howdah explain` asks the files again.
        if !walk.rewritten && visitor.login.is_none() && walk.trace.is_none() {
            let mut own = thread::with(|thread| std::mem::take(&mut thread.question));
            origin.ask(tree.root.id(), walk.head, visitor, &mut own);
            question = Some(own);
        }
        let known = question.as_ref().and_then(|question| {
            thread::with(|thread| {
                thread.begin();
                let known = thread.answers.of(&thread.watched, question.as_bytes())?;
                known.again(world, &mut thread.watched)
            })
        });
        let asks = |answer: &Answer| answer.edits() && answer.edits_by_request();
        let found = match known {
            Some(answer) if !asks(&answer) => (answer, None),
            known => {
                let facts = self.facts(tree, walk, visitor, &origin);
                let answer = known.unwrap_or_else(|| {
                    let answer = Arc::new(apache::answer(world, &facts));
                    if let Some(question) = &question {
                        keep(question, &answer, world);
                    }
                    answer
                });
                let facts = asks(&answer).then(|| Box::new(facts.into_owned()));
                (answer, facts)
            }
        };
        if let Some(question) = question {
            thread::with(|thread| thread.question = question);
        }
        found
    }
}
