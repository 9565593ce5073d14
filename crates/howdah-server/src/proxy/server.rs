//! One server: how busy it is, and whether it is up. A server that could not be reached gets no request for
//! ten seconds, unless all others are down as well (nginx' `max_fails=1 fail_timeout=10s`); with
//! `proxy_health` it is asked every five seconds.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use howdah_executor::fastcgi::address::Address;
use howdah_proto::level::Level;
use http::Request;

use super::Proxy;
use super::address::ServerAddress;
use super::connections;
use super::exchange::fit;
use super::upload::Upload;
use crate::log::error::ErrorLog;

/// How long a server that could not be reached is left alone.
const REST: Duration = Duration::from_secs(10);
/// The time between two questions whether a server is up.
const ROUND: Duration = Duration::from_secs(5);
/// How long its answer may take.
const ANSWER: Duration = Duration::from_secs(2);

/// A server that requests go to.
#[derive(Debug)]
pub struct Server {
    /// Tells its connections from those of all others, also after a reload.
    pub(super) id: u64,
    /// Where it listens.
    pub at: ServerAddress,
    busy: AtomicU32,
    health: Mutex<Health>,
}

#[derive(Debug, Default)]
struct Health {
    /// Nobody reached it; it is left alone until then.
    down_until: Option<Instant>,
    /// What it answered when it was asked, if that was wrong.
    sick: bool,
    /// The log says that it is down.
    told_down: bool,
}

impl Server {
    pub(super) fn new(at: ServerAddress) -> Server {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Server {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            at,
            busy: AtomicU32::new(0),
            health: Mutex::default(),
        }
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many requests it answers now.
    pub fn busy(&self) -> u32 {
        self.busy.load(Ordering::Relaxed)
    }

    /// Whether requests go to it.
    pub fn is_up(&self) -> bool {
        let health = self.health();
        !health.sick
            && health
                .down_until
                .is_none_or(|until| until <= Instant::now())
    }

    /// It could not be reached.
    pub(super) fn failed(&self, why: &str) -> Option<News> {
        let mut health = self.health();
        health.down_until = Some(Instant::now() + REST);
        health.tell_down(&self.at, why)
    }

    /// It has answered a request.
    pub(super) fn answered(&self) -> Option<News> {
        let mut health = self.health();
        health.down_until = None;
        match health.sick {
            true => None,
            false => health.tell_up(&self.at),
        }
    }

    /// What came of asking it.
    fn examined(&self, outcome: Result<(), String>) -> Option<News> {
        let mut health = self.health();
        health.sick = outcome.is_err();
        match outcome {
            Ok(()) => {
                health.down_until = None;
                health.tell_up(&self.at)
            }
            Err(why) => health.tell_down(&self.at, &why),
        }
    }
}

impl Health {
    fn tell_down(&mut self, at: &ServerAddress, why: &str) -> Option<News> {
        let known = std::mem::replace(&mut self.told_down, true);
        (!known).then(|| News {
            level: Level::Error,
            name: "BackendDown",
            message: format!("{at}: {why}"),
        })
    }

    fn tell_up(&mut self, at: &ServerAddress) -> Option<News> {
        let was_down = std::mem::replace(&mut self.told_down, false);
        was_down.then(|| News {
            level: Level::Notice,
            name: "BackendUp",
            message: format!("{at}: the backend answers again"),
        })
    }
}

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct News {
    level: Level,
    name: &'static str,
    message: String,
}

/// Logs what there is to say.
pub(super) fn tell(log: &ErrorLog, news: Option<News>) {
    if let Some(news) = news {
        log.problem(news.level, news.name, &news.message);
    }
}

/// A request's place at a server, until it is dropped.
#[derive(Debug)]
pub(super) struct Place(pub(super) Arc<Server>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Proxy {
    /// The least busy server that is up; where none is, one that is not. None: all have been `tried`.
    pub(super) fn choose(&self, tried: &[u64]) -> Option<Place> {
        let count = self.servers.len();
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % count;
        let others = (0..count).map(|step| &self.servers[(first + step) % count]);
        let best = others
            .filter(|server| !tried.contains(&server.id))
            .min_by_key(|server| {
                let weight = u64::from(server.at.backend.weight.max(1));
                (!server.is_up(), u64::from(server.busy()) * 100 / weight)
            })?;
        best.busy.fetch_add(1, Ordering::Relaxed);
        Some(Place(best.clone()))
    }
}

/// Asks a server for `path` every few seconds, for as long as a configuration has it.
pub(super) async fn watch(server: Weak<Server>, path: Box<str>, log: Arc<ErrorLog>) {
    loop {
        let Some(asked) = server.upgrade() else {
            return;
        };
        let outcome = tokio::time::timeout(ANSWER, ask(&asked, &path)).await;
        let news = asked.examined(outcome.unwrap_or_else(|_| {
            Err(format!(
                "no answer to GET {path} within {} s",
                ANSWER.as_secs()
            ))
        }));
        tell(&log, news);
        drop(asked);
        tokio::time::sleep(ROUND).await;
    }
}

async fn ask(server: &Arc<Server>, path: &str) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut sender = connections::connect(server).await.map_err(|e| text(&e))?;
    let host = match &server.at.backend.address {
        Address::Unix(_) => "localhost".to_owned(),
        address => address.to_string(),
    };
    let request = Request::get(path)
        .header("Host", host)
        .header("User-Agent", "Howdah (health check)")
        .body(())
        .map_err(|e| text(&e))?;
    let request = fit(&request, sender.is_http2()).map(|()| Upload::none());
    let answer = sender.send(request).await;
    let answer = answer.map_err(|failed| text(&failed.error))?;
    match answer.status().as_u16() {
        200..400 => Ok(()),
        status => Err(format!("GET {path} is answered {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::address;

    fn proxy(text: &[&str]) -> Proxy {
        let servers = text
            .iter()
            .flat_map(|t| address::parse(t).unwrap())
            .collect();
        Proxy::new(servers, Duration::from_secs(60), None)
    }

    #[test]
    fn the_least_busy_server_that_is_up_gets_the_request() {
        let proxy = proxy(&["http://a:1-2", "http://b:3 weight=2"]);
        let places: Vec<_> = (0..8).filter_map(|_| proxy.choose(&[])).collect();
        let busy: Vec<_> = proxy.servers.iter().map(|s| s.busy()).collect();
        assert_eq!(busy, [2, 2, 4]);
        drop(places);
        assert!(proxy.servers.iter().all(|s| s.busy() == 0));
        proxy.servers[2].failed("refused");
        proxy.servers[0].failed("refused");
        for _ in 0..5 {
            assert_eq!(proxy.choose(&[]).unwrap().0.id, proxy.servers[1].id);
        }
        let down = proxy.choose(&[proxy.servers[1].id]).unwrap();
        assert!(!down.0.is_up(), "better than nobody");
        let all: Vec<_> = proxy.servers.iter().map(|s| s.id).collect();
        assert!(proxy.choose(&all).is_none());
    }

    #[test]
    fn coming_and_going_is_told_once() {
        let proxy = proxy(&["http://a:1"]);
        let server = &proxy.servers[0];
        let name = |news: Option<News>| news.map(|news| (news.name, news.message));
        let down = Some(("BackendDown", "http://a:1: refused".to_owned()));
        assert_eq!(name(server.failed("refused")), down);
        assert_eq!(server.failed("refused"), None);
        assert!(name(server.answered()).is_some_and(|(name, _)| name == "BackendUp"));
        assert_eq!(server.answered(), None);
        assert!(
            server
                .examined(Err("GET /up is answered 500".to_owned()))
                .is_some()
        );
        assert!(!server.is_up());
        assert_eq!(server.answered(), None);
        assert!(!server.is_up(), "it says so itself");
        assert!(server.examined(Ok(())).is_some());
        assert!(server.is_up());
    }
}
