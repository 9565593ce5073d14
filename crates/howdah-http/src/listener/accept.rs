//! Accepts the connections of one socket on one thread. It never spins: while the descriptor table is full or the limit
//! of connections is reached, it waits.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::http::slots::{ConnectionSlot, ConnectionSlots};
use crate::http::{
    self, ByteStream, ConnectionInfo, ConnectionNotice, ConnectionSetup, FrontThreadConnections,
    HttpConfig, RequestHandler, make_room, make_room_in_advance,
};
use crate::socket::StreamSocket;

/// The number of connections accepted before other tasks of the thread run.
const ACCEPTS_PER_TURN: u64 = 32;
/// How soon to look again for a connection that can be closed when all of them handle requests.
const EVICTION_RETRY: Duration = Duration::from_millis(100);
/// Room is made in advance for one connection per this many of the limit, and for at most [`ACCEPTS_PER_TURN`].
const CONNECTIONS_PER_ADVANCE_EVICTION: u32 = 256;
/// The first pause after a failure that only time or other processes can resolve. The pause doubles with each further
/// failure, up to the maximum.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The state that a thread's listeners share for accepting.
pub(super) struct ConnectionAcceptor<H> {
    pub(super) handler: Arc<H>,
    /// The configuration for new connections.
    pub(super) config: Arc<ArcSwap<HttpConfig>>,
    pub(super) life: Arc<FrontThreadConnections>,
    /// The connections of all threads, including this one.
    pub(super) all: Arc<[Arc<FrontThreadConnections>]>,
    pub(super) slots: Arc<ConnectionSlots>,
    /// Connection ids of this thread: `thread + n * threads`.
    pub(super) next_id: std::sync::atomic::AtomicU64,
    pub(super) id_step: u64,
}

/// One listener's part on a thread.
pub(super) struct ListenerShare {
    pub(super) address: Arc<str>,
    pub(super) beginning: ConnectionSetup,
    pub(super) socket: OwnedFd,
    /// The local address of its connections. `None` if it has to be read from each of them, because the socket listens
    /// on all of the machine's addresses or is a unix socket.
    pub(super) local: Option<SocketAddr>,
    /// The value of `Alt-Svc` on its responses.
    pub(super) alternative: Option<Arc<str>>,
}

impl<H: RequestHandler> ConnectionAcceptor<H> {
    /// Accepts until the task is aborted.
    pub(super) async fn run(self: Arc<Self>, share: ListenerShare) {
        let mut pause = FIRST_PAUSE;
        let socket = loop {
            // Registering can fail for the same reasons as accepting: a lack of memory or of epoll watches.
            match share
                .socket
                .try_clone()
                .and_then(|fd| crate::sys::register_descriptor(fd, Interest::READABLE))
            {
                Ok(socket) => break socket,
                Err(e) => {
                    self.pause_after_failure(&share.address, &e, &mut pause)
                        .await
                }
            }
        };
        for turn in 1.. {
            if turn % ACCEPTS_PER_TURN == 0 {
                tokio::task::yield_now().await;
            }
            match self.accept(&socket).await {
                Ok((fd, peer, slot)) => {
                    pause = FIRST_PAUSE;
                    self.start_connection(&share, fd, peer, slot);
                }
                Err(e) => {
                    self.pause_after_failure(&share.address, &e.into(), &mut pause)
                        .await
                }
            }
        }
    }

    pub(super) async fn pause_after_failure(
        &self,
        address: &str,
        error: &std::io::Error,
        pause: &mut Duration,
    ) {
        if *pause == FIRST_PAUSE || *pause == MAX_PAUSE {
            self.handler.notice(&ConnectionNotice::AcceptFailed {
                listener: address,
                error,
            });
        }
        tokio::time::sleep(*pause).await;
        *pause = (*pause * 2).min(MAX_PAUSE);
    }

    /// Returns a slot for a connection that has been accepted when no slot is free.
    pub(super) async fn make_slot(&self) -> ConnectionSlot {
        let limit = self.slots.limit();
        self.handler
            .notice(&ConnectionNotice::TooManyConnections { limit });
        loop {
            let overdraft = tokio::select! {
                biased;
                slot = self.slots.take() => return slot,
                overdraft = self.slots.overdraw() => overdraft,
            };
            let Some(slot) = make_room(&self.all, overdraft) else {
                // All connections handle requests.
                match tokio::time::timeout(EVICTION_RETRY, self.slots.take()).await {
                    Ok(slot) => return slot,
                    Err(_) => continue,
                }
            };
            if self.slots.is_over_limit() {
                drop(slot);
                tokio::task::yield_now().await;
                continue;
            }
            let more = (limit / CONNECTIONS_PER_ADVANCE_EVICTION).min(ACCEPTS_PER_TURN as u32);
            for _ in 1..more {
                if !make_room_in_advance(&self.all) {
                    break;
                }
            }
            return slot;
        }
    }

    async fn accept(
        &self,
        socket: &AsyncFd<OwnedFd>,
    ) -> Result<(OwnedFd, Option<SocketAddr>, ConnectionSlot), Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        loop {
            let Ok(mut guard) = socket.readable().await else {
                return Err(Errno::BADF);
            };
            // The slot is taken only now, because a thread without clients must not hold one.
            let free = self.slots.try_take();
            match acceptfrom_with(socket.get_ref(), flags) {
                Ok((fd, peer)) => {
                    // Room is made only after accepting, so no connection is closed for a client that does not come.
                    let slot = match free {
                        Some(slot) => slot,
                        None => self.make_slot().await,
                    };
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    return Ok((fd, peer, slot));
                }
                Err(Errno::AGAIN) => guard.clear_ready(),
                // accept(2): these are errors of that connection or of the network; the next accept may succeed.
                Err(
                    Errno::INTR
                    | Errno::CONNABORTED
                    | Errno::PROTO
                    | Errno::PERM
                    | Errno::NETDOWN
                    | Errno::NOPROTOOPT
                    | Errno::HOSTDOWN
                    | Errno::NONET
                    | Errno::HOSTUNREACH
                    | Errno::OPNOTSUPP
                    | Errno::NETUNREACH,
                ) => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn start_connection(
        &self,
        share: &ListenerShare,
        fd: OwnedFd,
        peer: Option<SocketAddr>,
        slot: ConnectionSlot,
    ) {
        let socket = match StreamSocket::new(fd) {
            Ok(socket) => socket,
            Err(error) => {
                self.handler.notice(&ConnectionNotice::AcceptFailed {
                    listener: &share.address,
                    error: &error,
                });
                return;
            }
        };
        let id = self
            .next_id
            .fetch_add(self.id_step, std::sync::atomic::Ordering::Relaxed);
        let info = ConnectionInfo {
            peer,
            local: peer.and_then(|_| share.local.or_else(|| socket.local_addr())),
            listener: share.address.clone(),
            tls: None,
            alternative: share.alternative.clone(),
            id,
            request: 0,
        };
        let place = self.life.enrol(Some(slot));
        let serving = http::serve(
            self.handler.clone(),
            ByteStream::new(socket),
            self.config.load_full(),
            info,
            place,
            share.beginning.clone(),
        );
        tokio::spawn(serving);
    }
}
