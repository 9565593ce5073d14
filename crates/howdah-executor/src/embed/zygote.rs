//! The front's end of a zygote: its control socket, its process, its output. Decides nothing.

use std::io;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use howdah_os::descriptors::{packet_pair, send_packet};
use howdah_proto::control::{Command, MAX_MESSAGE, Report};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};
use rustix::process::{Signal, WaitId, WaitIdOptions};

use super::shared::EmbedShared;
use crate::common::output::Output;
use crate::common::process::readable;
use crate::launch::{Launcher, Zygote, ZygoteFds};

/// A running zygote process and the control socket to it.
pub(crate) struct ZygoteClient {
    control: OwnedFd,
    process: Zygote,
}

/// What a look at the control socket gave.
pub(crate) enum ZygoteMessage {
    /// A message, and the descriptor that came with it.
    Report(Report, Option<OwnedFd>),
    /// A packet that is no message of ours.
    ProtocolError(Vec<u8>),
    /// No packet is waiting.
    Nothing,
    /// The zygote has closed its end: it is gone or going.
    Closed,
}

/// A report that cannot be true. Its sender is killed (`ZygoteProtocolError`).
#[derive(Debug)]
pub(crate) struct ProtocolError(String);

impl ProtocolError {
    /// The packet is no report at all.
    pub fn unreadable(bytes: &[u8]) -> ProtocolError {
        let text = String::from_utf8_lossy(bytes);
        ProtocolError(format!("not a report: {text:.200}"))
    }

    /// A report of this kind, and why it cannot be.
    pub fn of(report: &str, why: &str) -> ProtocolError {
        ProtocolError(format!("a report `{report}` that cannot be true: {why}"))
    }
}

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl ZygoteClient {
    /// Starts a zygote for the pool; also returns the reading end of its output.
    pub fn start(
        shared: &EmbedShared,
        launcher: &dyn Launcher,
    ) -> io::Result<(ZygoteClient, Output)> {
        let (ours, theirs) = packet_pair()?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        let fds = ZygoteFds {
            memory: shared.memory.fd().try_clone_to_owned()?,
            control: theirs,
            bells: shared.children_s_bells()?,
            stderr: write,
        };
        let process = launcher.launch(&shared.pool.config, fds)?;
        let link = ZygoteClient {
            control: ours,
            process,
        };
        Ok((link, Output::new(read)))
    }

    /// The zygote's process id.
    pub fn pid(&self) -> i32 {
        self.process.pid
    }

    /// Readable when a report has come.
    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Readable when the process has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.process.pidfd.as_fd()
    }

    /// Sends a command. An error means that the zygote is gone or does not read.
    pub fn send(&self, command: &Command) -> io::Result<()> {
        self.send_with(command, &[])
    }

    /// The same, with descriptors.
    pub fn send_with(&self, command: &Command, passed: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = command.encode();
        let control = self.control.as_fd();
        Ok(send_packet(
            control,
            text.as_bytes(),
            passed,
            SendFlags::empty(),
        )?)
    }

    /// Reads the next packet from the control socket without waiting.
    pub fn receive(&self) -> ZygoteMessage {
        let mut bytes = vec![0; MAX_MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let got = rustix::io::retry_on_intr(|| {
            rustix::net::recvmsg(
                &self.control,
                &mut [IoSliceMut::new(&mut bytes)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            )
        });
        let n = match got {
            Ok(message) if message.bytes == 0 => return ZygoteMessage::Closed,
            Ok(message) => message.bytes,
            Err(rustix::io::Errno::AGAIN) => return ZygoteMessage::Nothing,
            Err(_) => return ZygoteMessage::Closed,
        };
        let mut descriptor = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                // One is expected; any more are closed by being dropped.
                descriptor = fds.fold(descriptor, |first, fd| first.or(Some(fd)));
            }
        }
        bytes.truncate(n);
        match Report::parse(&bytes) {
            Some(report) => ZygoteMessage::Report(report, descriptor),
            None => ZygoteMessage::ProtocolError(bytes),
        }
    }

    /// Whether the process has ended. Reaps it if it is ours; a master reaps its own.
    pub fn ended(&self) -> bool {
        if !readable(self.pidfd()) {
            return false;
        }
        let _ = rustix::process::waitid(
            WaitId::PidFd(self.pidfd()),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        );
        true
    }

    /// Closes the conversation: the zygote reads the end of the file and leaves.
    pub fn hang_up(self) -> ZygoteClient {
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        self
    }

    /// Sends the zygote SIGKILL.
    pub fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(self.pidfd(), Signal::KILL);
    }
}
