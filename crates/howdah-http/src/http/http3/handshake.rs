//! The handshake of a QUIC connection, and requests that arrive before its end. In a resumed session the client's first
//! packets may already carry requests (0-RTT, RFC 9001 §4.6), and an attacker who has recorded them can replay them.
//! Requests with safe methods are handled immediately, marked for the script (RFC 8470 §5.1); all others wait for the
//! handshake.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::HeaderValue;
use http::request::Parts;
use quinn::{Connection, ConnectionError, ZeroRttAccepted};
use tokio::sync::watch;

use super::super::deadline::Deadline;
use super::super::handler::HandshakeFailure;
use super::super::lifecycle::EnrolledConnection;
use crate::tls::quic::HandshakeWitness;

/// The header that tells a script that its request may be a replay.
const EARLY_DATA_HEADER: &str = "early-data";

/// A connection that can carry requests, and its handshake if that has not ended.
pub(super) type EarlyConnection = (Connection, Option<ZeroRttAccepted>);

/// Drives the handshake until requests may arrive.
async fn accept_handshake(
    mut connecting: quinn::Connecting,
    witness: &HandshakeWitness,
) -> Result<EarlyConnection, ConnectionError> {
    connecting.handshake_data().await?;
    if !witness.may_be_early() {
        return Ok((connecting.await?, None));
    }
    match connecting.into_0rtt() {
        Ok((connection, finished)) => Ok((connection, Some(finished))),
        Err(connecting) => Ok((connecting.await?, None)),
    }
}

/// Runs [`accept_handshake`] within the time that the server waits for a client.
pub(super) async fn handshake_within(
    deadline: &mut Deadline,
    place: &mut EnrolledConnection,
    connecting: quinn::Connecting,
    witness: &HandshakeWitness,
) -> Result<EarlyConnection, HandshakeFailure> {
    let mut shaking = std::pin::pin!(accept_handshake(connecting, witness));
    std::future::poll_fn(|cx| {
        place.set_task(cx.waker());
        if let Poll::Ready(shaken) = shaking.as_mut().poll(cx) {
            return Poll::Ready(shaken.map_err(|error| match error {
                ConnectionError::TransportError(error) => {
                    HandshakeFailure::Protocol(error.to_string())
                }
                _ => HandshakeFailure::ClientGone,
            }));
        }
        if place.must_close(deadline) {
            return Poll::Ready(Err(HandshakeFailure::ClientGone));
        }
        ready!(deadline.poll(cx));
        Poll::Ready(Err(HandshakeFailure::TimedOut))
    })
    .await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HandshakeProgress {
    Going,
    Finished,
    /// The connection has ended before the end of the handshake.
    Failed,
}

/// The progress of a handshake, for requests that arrive before its end.
pub(super) struct HandshakeStatus(watch::Sender<HandshakeProgress>);

impl HandshakeStatus {
    pub(super) fn new(shaken: &EarlyConnection) -> HandshakeStatus {
        HandshakeStatus(watch::Sender::new(match shaken.1 {
            Some(_) => HandshakeProgress::Going,
            None => HandshakeProgress::Finished,
        }))
    }

    /// Records that the connection has ended, which ends all waiting.
    pub(super) fn ended(&self) {
        self.0.send_if_modified(|progress| {
            let waited_for = *progress == HandshakeProgress::Going;
            if waited_for {
                *progress = HandshakeProgress::Failed;
            }
            waited_for
        });
    }

    /// Admits a request whose stream was opened before the end of the handshake: a request with a safe method is
    /// marked, any other one waits for the end of the handshake, because it must not be handled twice. Returns false if
    /// the handshake has failed.
    pub(super) async fn admit(&self, request: &mut Parts) -> bool {
        if *self.0.borrow() == HandshakeProgress::Finished {
            return true;
        }
        if request.method.is_safe() {
            let yes = HeaderValue::from_static("1");
            request.headers.insert(EARLY_DATA_HEADER, yes);
            return true;
        }
        let mut progress = self.0.subscribe();
        let ended = progress.wait_for(|progress| *progress != HandshakeProgress::Going);
        ended
            .await
            .is_ok_and(|ended| *ended == HandshakeProgress::Finished)
    }
}

/// The rest of a handshake once requests may arrive.
pub(super) struct UnfinishedHandshake {
    finished: ZeroRttAccepted,
    deadline: Deadline,
    /// Held while the handshake counts as one in progress.
    _handshake: Arc<()>,
}

impl UnfinishedHandshake {
    pub(super) fn new(
        finished: ZeroRttAccepted,
        most: Duration,
        handshake: Arc<()>,
    ) -> UnfinishedHandshake {
        UnfinishedHandshake {
            finished,
            deadline: Deadline::after(most),
            _handshake: handshake,
        }
    }

    /// Is ready at the end of the handshake, with an error if it has failed or takes too long.
    pub(super) fn poll(
        &mut self,
        connection: &Connection,
        progress: &HandshakeStatus,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), HandshakeFailure>> {
        // The value of this future is meaningful only for clients.
        if Pin::new(&mut self.finished).poll(cx).is_ready() {
            if connection.close_reason().is_some() {
                return Poll::Ready(Err(HandshakeFailure::ClientGone));
            }
            progress.0.send_replace(HandshakeProgress::Finished);
            return Poll::Ready(Ok(()));
        }
        ready!(self.deadline.poll(cx));
        Poll::Ready(Err(HandshakeFailure::TimedOut))
    }
}
