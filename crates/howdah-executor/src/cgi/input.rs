//! The request body as a program's standard input. A body in a file *is* the standard input. A short body is written to
//! a pipe before the program begins. Any other body is fed while the program runs.

use std::io::Seek;
use std::os::fd::OwnedFd;

use bytes::Bytes;
use rustix::fs::{Mode, OFlags};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use crate::{BodyCutOff, ExecError, ScriptBody};

/// The number of bytes that can be written to a pipe before its reader has read any (pipe(7)).
const PIPE_CAPACITY_BYTES: usize = 64 * 1024;

/// The part of a body that has to be written to the program's standard input while it runs.
pub(super) enum StdinFeed {
    /// The whole body is in memory.
    Memory(pipe::Sender, Bytes),
    /// The body is still arriving from the client.
    Stream(pipe::Sender, mpsc::Receiver<Result<Bytes, BodyCutOff>>),
}

/// Opens the program's end of its standard input. Also returns the part of the body that has to be fed while the
/// program runs.
///
/// # Errors
/// `BodyUnreadable`: the file cannot be read, or the process has no free descriptors.
pub(super) fn open(body: ScriptBody) -> Result<(OwnedFd, Option<StdinFeed>), ExecError> {
    open_input(body).map_err(|_| ExecError::BodyUnreadable)
}

fn open_input(body: ScriptBody) -> std::io::Result<(OwnedFd, Option<StdinFeed>)> {
    let pipe = || -> std::io::Result<(OwnedFd, OwnedFd)> {
        Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
    };
    let feed = |write: OwnedFd| {
        rustix::io::ioctl_fionbio(&write, true)?;
        pipe::Sender::from_owned_fd(write)
    };
    Ok(match body {
        ScriptBody::Empty | ScriptBody::File(_, 0) => {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            (rustix::fs::open("/dev/null", flags, Mode::empty())?, None)
        }
        ScriptBody::File(mut file, _) => {
            file.rewind()?;
            (file.into(), None)
        }
        ScriptBody::Memory(bytes) if bytes.len() <= PIPE_CAPACITY_BYTES => {
            let (read, write) = pipe()?;
            // A pipe may be smaller than usual (pipe-user-pages-soft). In that case, the rest is fed while the program
            // runs.
            rustix::io::ioctl_fionbio(&write, true)?;
            match rustix::io::write(&write, &bytes) {
                Ok(n) if n == bytes.len() => (read, None),
                Ok(n) => (
                    read,
                    Some(StdinFeed::Memory(feed(write)?, bytes.slice(n..))),
                ),
                Err(error) => return Err(error.into()),
            }
        }
        ScriptBody::Memory(bytes) => {
            let (read, write) = pipe()?;
            (read, Some(StdinFeed::Memory(feed(write)?, bytes)))
        }
        ScriptBody::Stream(stream) => {
            let (read, write) = pipe()?;
            (read, Some(StdinFeed::Stream(feed(write)?, stream)))
        }
    })
}

impl StdinFeed {
    /// Feeds the whole body. If the program closes its input (`EPIPE`), this is not an error: the program needs no
    /// more.
    ///
    /// # Errors
    /// [`BodyCutOff`]: the body ended early. The program must not be left to treat the part that it has received as the
    /// whole body.
    pub async fn run(self) -> Result<(), BodyCutOff> {
        match self {
            StdinFeed::Memory(mut to, bytes) => {
                let _ = to.write_all(&bytes).await;
            }
            StdinFeed::Stream(mut to, mut from) => {
                let mut listens = true;
                while let Some(piece) = from.recv().await {
                    let piece = piece?;
                    // Receive the rest even if the program does not read it; otherwise the client could not finish
                    // sending.
                    if listens {
                        listens = to.write_all(&piece).await.is_ok();
                    }
                }
            }
        }
        Ok(())
    }
}
