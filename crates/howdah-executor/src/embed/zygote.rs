//! The front's end of a zygote: its control socket, its process, its output. It makes no decisions.

use std::io;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use howdah_os::descriptors::{packet_socket_pair, send_packet};
use howdah_proto::control::{MAX_PACKET_BYTES, ZygoteCommand, ZygoteReport};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};
use rustix::process::{Signal, WaitId, WaitIdOptions};

use super::shared::EmbedShared;
use crate::common::output::ProcessOutput;
use crate::common::process::is_readable;
use crate::launch::{LaunchedProcess, Launcher, ZygoteFds};

/// A running zygote process and the control socket to it.
pub(crate) struct ZygoteClient {
    control: OwnedFd,
    process: LaunchedProcess,
}

/// The result of reading the control socket once.
pub(crate) enum ZygoteMessage {
    /// A report, and the descriptor that came with it.
    Report(ZygoteReport, Option<OwnedFd>),
    /// A packet that is not a valid report.
    ProtocolError(Vec<u8>),
    /// No packet is waiting.
    Nothing,
    /// The zygote has closed its end: it has exited or is exiting.
    Closed,
}

/// A report that cannot be true. Its sender is killed (`ZygoteProtocolError`).
#[derive(Debug)]
pub(crate) struct ProtocolError(String);

impl ProtocolError {
    /// Creates the error for a packet that is not a report.
    pub fn unreadable(bytes: &[u8]) -> ProtocolError {
        let text = String::from_utf8_lossy(bytes);
        ProtocolError(format!("not a report: {text:.200}"))
    }

    /// Creates the error for a report of this kind, with the reason why it cannot be true.
    pub fn of(report: &str, why: &str) -> ProtocolError {
        ProtocolError(format!("an impossible report `{report}`: {why}"))
    }
}

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl ZygoteClient {
    /// Starts a zygote for the pool. Also returns the reading end of its output.
    pub fn start(
        shared: &EmbedShared,
        launcher: &dyn Launcher,
    ) -> io::Result<(ZygoteClient, ProcessOutput)> {
        let (ours, theirs) = packet_socket_pair()?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        let fds = ZygoteFds {
            memory: shared.memory.fd().try_clone_to_owned()?,
            control: theirs,
            bells: shared.duplicate_child_bells()?,
            stderr: write,
        };
        let process = launcher.launch(&shared.pool.config, fds)?;
        let link = ZygoteClient {
            control: ours,
            process,
        };
        Ok((link, ProcessOutput::new(read)))
    }

    /// Returns the zygote's process id.
    pub fn pid(&self) -> i32 {
        self.process.pid
    }

    /// Returns the PHP program that the zygote was started from.
    pub fn program(&self) -> &Path {
        &self.process.program
    }

    /// Returns a descriptor that is readable when a report has arrived.
    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Returns a descriptor that is readable when the process has exited.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.process.pidfd.as_fd()
    }

    /// Sends a command.
    ///
    /// # Errors
    /// The zygote is gone or does not read.
    pub fn send(&self, command: &ZygoteCommand) -> io::Result<()> {
        self.send_with(command, &[])
    }

    /// Like [`ZygoteClient::send`], with descriptors.
    pub fn send_with(&self, command: &ZygoteCommand, passed: &[BorrowedFd<'_>]) -> io::Result<()> {
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
        let mut bytes = vec![0; MAX_PACKET_BYTES];
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
                // One is expected. Any others are dropped and so closed.
                descriptor = fds.fold(descriptor, |first, fd| first.or(Some(fd)));
            }
        }
        bytes.truncate(n);
        match ZygoteReport::parse(&bytes) {
            Some(report) => ZygoteMessage::Report(report, descriptor),
            None => ZygoteMessage::ProtocolError(bytes),
        }
    }

    /// Returns whether the process has exited. Reaps it if it is a child of this process; a master reaps its own
    /// children.
    pub fn has_exited(&self) -> bool {
        if !is_readable(self.pidfd()) {
            return false;
        }
        let _ = rustix::process::waitid(
            WaitId::PidFd(self.pidfd()),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        );
        true
    }

    /// Closes the control socket. The zygote reads end-of-file and exits.
    pub fn close(self) -> ZygoteClient {
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        self
    }

    /// Sends the zygote SIGKILL.
    pub fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(self.pidfd(), Signal::KILL);
    }
}
