//! Serves one connection on a socket that the caller has connected. The fuzz target of the whole front uses it without
//! a listener; the server itself does not.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::connection::{ConnectionSetup, serve};
use super::lifecycle::FrontThreadConnections;
use super::stream::ByteStream;
use super::{ConnectionInfo, HttpConfig, RequestHandler};
use crate::socket::StreamSocket;

/// Serves requests on `socket`, a non-blocking stream socket, until the connection ends. Runs on the current tokio
/// runtime, and fails if the socket cannot be registered with it.
pub async fn serve_connected<H: RequestHandler>(
    handler: Arc<H>,
    socket: OwnedFd,
    config: Arc<HttpConfig>,
) -> io::Result<()> {
    let life = Arc::new(FrontThreadConnections::default());
    let info = ConnectionInfo {
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
        ByteStream::new(StreamSocket::new(socket)?),
        config,
        info,
        life.enrol(None),
        ConnectionSetup::default(),
    )
    .await;
    Ok(())
}
