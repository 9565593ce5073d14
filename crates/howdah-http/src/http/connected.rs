//! Serves one connection on a socket that the caller has connected. The fuzz target of the whole front uses it without
//! a listener; the server itself does not.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::connection::{Beginning, serve};
use super::lifecycle::Lifecycle;
use super::stream::Stream;
use super::{ConnInfo, Handler, HttpConfig};
use crate::socket::Socket;

/// Serves requests on `socket`, a non-blocking stream socket, until the connection ends. Runs on the current tokio
/// runtime, and fails if the socket cannot be registered with it.
pub async fn serve_connected<H: Handler>(
    handler: Arc<H>,
    socket: OwnedFd,
    config: Arc<HttpConfig>,
) -> io::Result<()> {
    let life = Arc::new(Lifecycle::default());
    let info = ConnInfo {
        peer: None,
        local: None,
        listener: "connected".into(),
        tls: None,
        alternative: None,
        id: 1,
        request: 0,
    };
    serve(
        handler,
        Stream::new(Socket::new(socket)?),
        config,
        info,
        life.enrol(None),
        Beginning::default(),
    )
    .await;
    Ok(())
}
