//! The source of a request's body and the destination of its response: the whole connection for HTTP/1.1, one stream of
//! it for HTTP/2 and HTTP/3, or memory for a request of the server itself.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::captured_stream::CapturedStream;
use super::http2::Http2Stream;
use super::http3::Http3Stream;
use super::stream::ByteStream;

/// How many bytes of a file are read at once for a captured response.
const MAX_READ_BYTES: usize = 32 << 10;

/// A request's input and output. At most one task may wait for reading and one for writing at a time.
pub(super) enum Channel {
    Http1(Arc<ByteStream>),
    /// Boxed, because an idle connection of HTTP/1.1 also contains this type.
    Http2(Box<Http2Stream>),
    Http3(Box<Http3Stream>),
    /// The response to a request that the server makes itself, which has no body.
    Captured(Arc<CapturedStream>),
}

impl Channel {
    /// Receives once into `buf`; 0 is the end.
    pub(super) fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Channel::Http1(stream) => stream.poll_recv(cx, buf),
            Channel::Http2(stream) => {
                let mut at = 0;
                stream.poll_receive(cx, buf.len(), |bytes| {
                    buf[at..at + bytes.len()].copy_from_slice(bytes);
                    at += bytes.len();
                })
            }
            Channel::Http3(stream) => {
                let mut at = 0;
                stream.poll_receive(cx, buf.len(), |bytes| {
                    buf[at..at + bytes.len()].copy_from_slice(bytes);
                    at += bytes.len();
                })
            }
            Channel::Captured(_) => Poll::Ready(Ok(0)),
        }
    }

    /// Receives once into the spare capacity of `buf`; 0 is the end.
    pub(super) fn poll_recv_spare(
        &self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        match self {
            Channel::Http1(stream) => stream.poll_recv_spare(cx, buf),
            Channel::Http2(stream) => {
                let room = buf.capacity() - buf.len();
                stream.poll_receive(cx, room, |bytes| buf.extend_from_slice(bytes))
            }
            Channel::Http3(stream) => {
                let room = buf.capacity() - buf.len();
                stream.poll_receive(cx, room, |bytes| buf.extend_from_slice(bytes))
            }
            Channel::Captured(_) => Poll::Ready(Ok(0)),
        }
    }

    /// Sends from `parts` once and returns how many bytes were taken. `all` means that nothing else is queued; `more`
    /// means that further bytes follow immediately.
    pub(super) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
        all: bool,
        more: bool,
    ) -> Poll<io::Result<usize>> {
        match self {
            Channel::Http1(stream) => stream.poll_send(cx, parts, more),
            Channel::Http2(stream) => stream.poll_send(cx, parts, all),
            Channel::Http3(stream) => stream.poll_send(cx, parts),
            Channel::Captured(stream) => stream.poll_send(cx, parts),
        }
    }

    /// Sends from a regular file once and advances `offset`. 0 means that the file has no more bytes.
    pub(super) fn poll_sendfile(
        &self,
        cx: &mut Context<'_>,
        file: &File,
        offset: &mut u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Channel::Http1(stream) => stream.poll_sendfile(cx, file, offset, len),
            Channel::Http2(stream) => stream.poll_sendfile(cx, file, offset, len),
            Channel::Http3(stream) => stream.poll_sendfile(cx, file, offset, len),
            Channel::Captured(stream) => {
                let mut piece = vec![0; len.min(MAX_READ_BYTES)];
                let read = file.read_at(&mut piece, *offset)?;
                let sent = ready!(stream.poll_send(cx, &[IoSlice::new(&piece[..read])]))?;
                *offset += sent as u64;
                Poll::Ready(Ok(sent))
            }
        }
    }

    /// Completes the output: with TLS, sends the records that the socket has not taken; on a stream, sends its end.
    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Channel::Http1(stream) => stream.poll_flush(cx),
            Channel::Http2(stream) => Poll::Ready(stream.finish()),
            Channel::Http3(stream) => stream.poll_flush(cx),
            Channel::Captured(_) => Poll::Ready(Ok(())),
        }
    }

    /// Returns how many streams the connection has.
    pub(super) fn streams(&self) -> usize {
        match self {
            Channel::Http1(_) | Channel::Captured(_) => 1,
            Channel::Http2(stream) => stream.streams(),
            Channel::Http3(stream) => stream.streams(),
        }
    }

    /// Returns whether a pending send waits for the client. A stream of HTTP/2 may also wait for its turn while the
    /// client takes data of other streams.
    pub(super) fn waits_for_client(&self) -> bool {
        match self {
            Channel::Http1(_) | Channel::Http3(_) => true,
            Channel::Http2(stream) => stream.waits_for_client(),
            // The client that waits for the page has a time limit of its own.
            Channel::Captured(_) => false,
        }
    }
}
