//! The thread of a pool that probes backends which are down, closes connections that have been idle too long, and
//! completes the drain of a pool. It runs no requests.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use howdah_proto::fastcgi::{DecodedPiece, RecordDecoder, encode};
use howdah_proto::level::LogLevel;

use super::connection::{BackendConnection, ConnectAttempt, connect};
use super::shared::FastCgiShared;
use crate::common::condition::PoolCondition;
use howdah_proto::backend_address::BackendAddress;

/// The maximum time of an attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum time to wait for a response to GET_VALUES. A backend that sends none may be busy.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);
/// The maximum time between two rounds of the thread.
const MAX_ROUND_INTERVAL: Duration = Duration::from_secs(1);

/// Runs until the pool is closed.
pub fn run(shared: Arc<FastCgiShared>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run_rounds(shared));
    Ok(())
}

async fn run_rounds(shared: Arc<FastCgiShared>) {
    let all = match shared.supervised {
        // The programs of the pool have not been started yet.
        true => 0..0,
        false => 0..shared.config.backends.len(),
    };
    let first: Vec<_> = all
        .map(|backend| tokio::spawn(probe_backend(shared.clone(), backend)))
        .collect();
    for attempt in first {
        // If the task has panicked, the panic was printed. The backend then counts as up until a request finds
        // otherwise.
        let _ = attempt.await;
    }
    shared.condition.send_if_modified(|condition| {
        let starting = *condition == PoolCondition::Starting;
        if starting {
            *condition = PoolCondition::Ready;
        }
        starting
    });
    loop {
        let now = Instant::now();
        let keep_for = shared.config.keep_timeout;
        let closing = shared.closing.load(Ordering::SeqCst);
        let (due, expired, next) = {
            let mut balance = shared.balance();
            let before = match closing {
                true => None,
                false => now.checked_sub(keep_for).or(Some(shared.started)),
            };
            let expired = balance.take_expired(before);
            let due = balance.take_due(now, 2 * (CONNECT_TIMEOUT + RESPONSE_TIMEOUT));
            (due, expired, balance.next_due(keep_for))
        };
        drop(expired);
        for backend in due {
            tokio::spawn(probe_backend(shared.clone(), backend));
        }
        if closing {
            if is_empty(&shared) {
                shared.condition.send_replace(PoolCondition::Closed);
                return;
            }
            if shared.is_past_drain_deadline(now) {
                shared.with_balance(|balance, wake| balance.wake_all(wake));
            }
        }
        let wait = next.map_or(MAX_ROUND_INTERVAL, |at| {
            at.saturating_duration_since(now).min(MAX_ROUND_INTERVAL)
        });
        let wait = wait.max(Duration::from_millis(1));
        let _ = tokio::time::timeout(wait, shared.changed.notified()).await;
    }
}

fn is_empty(shared: &FastCgiShared) -> bool {
    let balance = shared.balance();
    balance.queued() == 0 && balance.busy() == 0
}

/// Tries to reach a backend and reports the result to the balance.
async fn probe_backend(shared: Arc<FastCgiShared>, backend: usize) {
    let address = &shared.config.backends[backend].address;
    let found = probe(address).await;
    let now = Instant::now();
    match found {
        Ok(limit) => {
            let news = shared.with_balance(|balance, wake| {
                let news = balance.record_up(backend, limit);
                for front in 0..shared.fronts {
                    balance.grant_waiting(front, wake);
                }
                news
            });
            if news {
                let name = &shared.config.name;
                let message = format!("{address}: the backend responds again");
                shared
                    .log
                    .pool(name, LogLevel::Notice, "BackendUp", &message);
            }
        }
        Err(why) => {
            let why = why.to_string();
            let news = shared.with_balance(|balance, wake| {
                balance.record_failed_probe(backend, &why, now);
                let news = balance.record_down(backend, &why, now);
                if balance.all_down().is_some() {
                    balance.wake_all(wake);
                }
                news
            });
            if news {
                shared.log_backend_down(backend, &why);
            }
        }
    }
}

/// Connects to a backend and asks how many requests it can run at once (§4.1). An application that does not know the
/// question closes the connection or stays silent, which also shows that the application is there. Only a response that
/// is not FastCGI is an error.
pub async fn probe(address: &BackendAddress) -> io::Result<Option<u32>> {
    probe_within(address, RESPONSE_TIMEOUT).await
}

/// Like [`probe`], with this limit for the response.
pub async fn probe_within(address: &BackendAddress, limit: Duration) -> io::Result<Option<u32>> {
    let socket = match connect(address) {
        ConnectAttempt::Now(done) => done,
        ConnectAttempt::Later(connecting) => tokio::time::timeout(CONNECT_TIMEOUT, connecting)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
    };
    let socket = match socket {
        Ok(socket) => socket,
        // The backend is there, but its backlog is full.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut connection = BackendConnection::new(socket, usize::MAX)?;
    let answer = tokio::time::timeout(limit, query_max_connections(&mut connection));
    answer.await.unwrap_or(Ok(None))
}

async fn query_max_connections(connection: &mut BackendConnection) -> io::Result<Option<u32>> {
    const MAX_CONNS: &str = "FCGI_MAX_CONNS";
    let mut question = Vec::new();
    encode::get_values(&mut question, &[MAX_CONNS]);
    let sent = std::future::poll_fn(|cx| connection.poll_send(cx, &question)).await;
    if sent.is_err() {
        return Ok(None);
    }
    let (mut decoder, mut pending, mut part) = (RecordDecoder::default(), Vec::new(), [0; 2048]);
    loop {
        let read = std::future::poll_fn(|cx| match connection.poll_recv(cx, &mut part) {
            Poll::Ready(Ok(n)) => Poll::Ready(n),
            Poll::Ready(Err(_)) => Poll::Ready(0),
            Poll::Pending => Poll::Pending,
        });
        let n = read.await;
        if n == 0 {
            return Ok(None);
        }
        pending.extend_from_slice(&part[..n]);
        match decoder.next(&pending) {
            Err(error) => {
                let why = format!("its response is not valid FastCGI ({error:?})");
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            Ok((Some(DecodedPiece::Values(values)), _)) => {
                let told = encode::pairs(values).find(|(name, _)| *name == MAX_CONNS.as_bytes());
                let number =
                    told.and_then(|(_, value)| std::str::from_utf8(value).ok()?.parse().ok());
                // `PHP_FCGI_CHILDREN=0` means one process without children.
                return Ok(number.map(|n: u32| n.max(1)));
            }
            Ok((Some(_), _)) => return Ok(None),
            Ok((None, used)) => drop(pending.drain(..used)),
        }
    }
}
