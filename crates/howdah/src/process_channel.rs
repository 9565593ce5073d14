//! The channel between the master and each of its processes: the front, the process that orders certificates, and the
//! process that runs jobs. It is a `SOCK_SEQPACKET` socket pair. Each message is one packet of JSON, and descriptors
//! are sent with it (`SCM_RIGHTS`). Long texts, such as a configuration or a status, are passed in a memory file of
//! their own, so packets stay small and sending never blocks for long.
//!
//! End of file means that the other process has exited.
//!
//! After an upgrade, a front of the previous version runs under the new master until its last request has finished.
//! During that time only [`ToFront::Stop`], [`ToFront::Carried`], [`ToFront::NotLaunched`], [`ToMaster::Purged`] and
//! [`ToMaster::Launch`] are exchanged, so the format of these messages must not change.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use howdah_os::client_quota::QuotaClient;
use howdah_os::descriptors::packet_socket_pair;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use howdah_config::arguments::ServeArguments;

/// The maximum length of a packet, in bytes.
const MAX_PACKET_BYTES: usize = 64 * 1024;
/// The maximum number of descriptors in one packet, which is the kernel's own limit (`SCM_MAX_FD`).
pub const MAX_DESCRIPTORS: usize = 253;
/// The maximum length of a text that is read from a memory file, in bytes.
const MAX_TEXT_BYTES: u64 = 16 << 20;

/// A configuration that the master sends to the front. The descriptors are sent in this order: the configuration's text
/// ([`text_file`]), the error log and the access log if they are files, and the listening sockets.
#[derive(Debug, Serialize, Deserialize)]
pub struct FrontConfiguration {
    /// The number of the configuration; [`ToMaster::Launch`] refers to it.
    pub generation: u64,
    /// The command line.
    pub arguments: ServeArguments,
    /// Whether the descriptor of an error log is sent along.
    pub error_log: bool,
    /// Whether the descriptor of an access log is sent along.
    pub access_log: bool,
    /// For each listening socket, the index of its entry in the configuration's `listen`.
    pub listeners: Vec<u32>,
    /// After an upgrade: whether the previous front is still running and therefore still owns the directory of the page
    /// cache.
    pub follows_another: bool,
}

/// The secrets that TLS needs. They are sent in a memory file ([`text_file`]).
#[derive(Serialize, Deserialize)]
pub struct TlsSecrets {
    /// The chain and the key of each certificate, in PEM. The first certificate is for clients that send no host name.
    pub certificates: Vec<(String, String)>,
    /// The certificates of the authorities that sign client certificates, in PEM, and whether a client must present a
    /// certificate.
    pub client_authority: Option<(String, bool)>,
    /// The keys of session tickets. The first key encrypts new tickets.
    pub tickets: Vec<Vec<u8>>,
}

/// The messages from the master to the front.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToFront {
    /// Serve this configuration from now on. The response is [`ToMaster::Serving`] or [`ToMaster::Refused`].
    Serve(Box<FrontConfiguration>),
    /// Use these keys for TLS from now on. The descriptor holds [`TlsSecrets`] as JSON.
    Keys,
    /// Respond to these challenges of certificate authorities, and to no others. The descriptor holds
    /// [`howdah_acme::ActiveChallenges`] as JSON. The response is [`ToMaster::Answering`].
    Challenges {
        /// The number of the challenges, repeated in the response.
        number: u64,
    },
    /// Show these certificate orders as failing. The descriptor holds the
    /// [`howdah_http::tls::certificates::FailingOrder`]s as JSON.
    FailingOrders,
    /// Show these jobs. The descriptor holds the [`howdah_server::admin::jobs::JobStatus`] of each job, as JSON.
    Jobs,
    /// A client has requested a certificate for this host name, and none will be ordered.
    NotOrdered {
        /// The host name.
        name: String,
    },
    /// The response to [`ToMaster::Launch`]. The descriptor is the pidfd of the process.
    Launched {
        /// The number of the launch.
        id: u64,
        /// The process id of the zygote or spawner.
        pid: i32,
        /// The PHP program of a zygote; empty for a spawner.
        program: PathBuf,
    },
    /// The response to [`ToMaster::Launch`] if the process could not be started.
    NotLaunched {
        /// The number of the launch.
        id: u64,
        /// The error of the operating system.
        message: String,
    },
    /// A command for the page cache. The response is [`ToMaster::Status`] with `cache` or `mistake`.
    Cache {
        /// The number of the request, repeated in the response.
        id: u64,
        /// What to look up or to purge.
        ask: howdah_server::cache::admin::AdminCommand,
    },
    /// Requests [`ToMaster::Status`].
    Status {
        /// The number of the request, repeated in the response.
        id: u64,
    },
    /// Write to these log files from now on. The descriptors are sent as with a [`FrontConfiguration`].
    Reopen {
        /// Whether the descriptor of an error log is sent along.
        error_log: bool,
        /// Whether the descriptor of an access log is sent along.
        access_log: bool,
    },
    /// The program is about to be replaced: serve no stored page from now on, leave the fleet, and forward purges to
    /// the master. The response is [`ToMaster::HandedOver`].
    HandOver,
    /// The front of the new program has executed the purges of [`ToMaster::Purged`] up to this number.
    Carried {
        /// The number of the last executed purge.
        number: u64,
    },
    /// Accept no more connections, finish the running requests within this time, and exit.
    Stop {
        /// The time limit, in milliseconds.
        limit: u64,
        /// Whether another front takes over the sockets. Clients of idle connections may already have sent a request.
        #[serde(default)]
        followed: bool,
    },
    /// Requests a sign of life, [`ToMaster::Pulse`]; see `master::watchdog`.
    Ping {
        /// The number of the ping, which increases; it is repeated in the response.
        number: u64,
    },
}

/// The messages from the front to the master.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToMaster {
    /// Start a zygote or, if the pool's mode has one, a spawner. The descriptors of a zygote are memory, control,
    /// stderr, and then the bells; those of a spawner are control and stderr.
    Launch {
        /// The number of the launch, repeated in the response.
        id: u64,
        /// The number of the configuration that contains the pool.
        generation: u64,
        /// The name of the pool.
        pool: String,
    },
    /// The configuration is being served.
    Serving {
        /// The number of the configuration.
        generation: u64,
    },
    /// The configuration was refused; the previous configuration, if there is one, is still served. The descriptor
    /// holds the reasons, one on each line.
    Refused {
        /// The number of the configuration that was refused.
        generation: u64,
    },
    /// A client requests a host name that no certificate covers.
    Wanted {
        /// The host name.
        name: String,
        /// The client that made the request. A front of an older version does not send it.
        #[serde(default)]
        client: QuotaClient,
    },
    /// The response to [`ToFront::Challenges`].
    Answering {
        /// The number of the challenges.
        number: u64,
    },
    /// The response to [`ToFront::Status`]. The descriptor holds the status as JSON.
    Status {
        /// The number of the request.
        id: u64,
    },
    /// The response to [`ToFront::Ping`], sent at once.
    Pulse {
        /// The number of the ping.
        number: u64,
        /// The kernel's id of each front thread, with the number of the last ping that the thread has reached.
        threads: Vec<(i32, u64)>,
    },
    /// The response to [`ToFront::HandOver`].
    HandedOver,
    /// Purges for the front of the new program, sent after [`ToFront::HandOver`]. The descriptor holds the texts of
    /// [`howdah_server::cache::admin::AdminCommand::Relayed`] as JSON.
    Purged {
        /// The number of the last purge.
        number: u64,
    },
    /// A stop waits until the running requests have finished.
    Waiting {
        /// A sentence that names these requests, for the person who started the server.
        text: String,
    },
}

/// The messages from the master to the process that orders certificates.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToCertificates {
    /// Maintain certificates according to these settings from now on. The descriptor holds
    /// [`howdah_acme::AcmeSettings`] as JSON.
    Settings,
    /// The front responds to the challenges with this number.
    Answering {
        /// The number of the challenges.
        number: u64,
    },
    /// A client requests a host name that no certificate covers.
    Wanted {
        /// The host name.
        name: String,
        /// The client that made the request.
        client: QuotaClient,
    },
    /// A command of an administrator. The response is [`FromCertificates::Done`].
    Command {
        /// The number of the command, repeated in the response.
        id: u64,
        /// The command itself.
        command: howdah_acme::CertificateCommand,
    },
}

/// The messages from the process that orders certificates to the master. Texts are sent as descriptors.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromCertificates {
    /// Serve these certificates. The descriptor holds the chains and keys, as JSON.
    Certificates,
    /// Have the front respond to these challenges. The descriptor holds [`howdah_acme::ActiveChallenges`] as JSON.
    Challenges {
        /// The number of the challenges.
        number: u64,
    },
    /// The status of each name. The descriptor holds the [`howdah_acme::NameStatus`] of each name, as JSON.
    Status,
    /// A client has requested a certificate for this host name, and none will be ordered.
    NotOrdered {
        /// The host name.
        name: String,
    },
    /// A command has succeeded or failed. The descriptor holds the result, or the reason of the failure.
    Done {
        /// The number of the command.
        id: u64,
        /// Whether the command succeeded.
        ok: bool,
    },
}

/// The messages from the master to the process that runs jobs.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToJobs {
    /// Run these jobs from now on, with new code. The descriptors are [`crate::jobs::settings::JobRunnerSettings`] as
    /// JSON, and the error log if it is a file.
    Settings,
    /// Write to this log file from now on. The descriptor is the log file.
    Reopen,
    /// A command of an administrator. The response is [`FromJobs::Done`].
    Command {
        /// The number of the command, repeated in the response.
        id: u64,
        /// The command itself.
        command: crate::jobs::settings::JobControlCommand,
    },
    /// Ask all jobs to exit, kill those that are still running after this time, and exit.
    Stop {
        /// The time limit, in milliseconds.
        limit: u64,
    },
}

/// The messages from the process that runs jobs to the master.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromJobs {
    /// The status of the jobs. The descriptor holds the [`howdah_server::admin::jobs::JobStatus`] of each job, as JSON.
    Status,
    /// A job has written to a database, and the page cache must be notified.
    Wrote {
        /// The command for the page cache.
        ask: howdah_server::cache::admin::AdminCommand,
    },
    /// A command has succeeded or failed. The descriptor holds the result, or the reason of the failure.
    Done {
        /// The number of the command.
        id: u64,
        /// Whether the command succeeded.
        ok: bool,
    },
}

/// One end of the channel. Several threads may use both directions at the same time.
#[derive(Clone, Debug)]
pub struct ProcessChannel {
    socket: Arc<OwnedFd>,
}

/// The result of an attempt to receive a message.
#[derive(Debug)]
pub enum ReceiveOutcome<M> {
    /// A message and its descriptors.
    Message(M, Vec<OwnedFd>),
    /// There is no message at present.
    Nothing,
    /// The other process has exited, or has sent something that is not a message. No more messages will arrive.
    Closed,
}

impl ProcessChannel {
    /// Creates a channel and returns our end and the other process's end.
    pub fn pair() -> io::Result<(ProcessChannel, OwnedFd)> {
        let (ours, theirs) = packet_socket_pair()?;
        Ok((ProcessChannel::new(ours), theirs))
    }

    /// Creates a channel on an end that was inherited.
    pub fn new(socket: OwnedFd) -> ProcessChannel {
        ProcessChannel {
            socket: Arc::new(socket),
        }
    }

    /// Returns the descriptor to poll.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a message and copies of the descriptors.
    ///
    /// # Errors
    /// Fails if the message is too large, if the other process has exited, or (with `WouldBlock`, for the master, which
    /// must not wait) if the other process has stopped reading.
    pub fn send<M: Serialize>(&self, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_with(message, fds, SendFlags::NOSIGNAL)
    }

    /// Does the same as [`ProcessChannel::send`], but never waits.
    pub fn send_now<M: Serialize>(&self, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_with(message, fds, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    fn send_with<M: Serialize>(
        &self,
        message: &M,
        fds: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> io::Result<()> {
        let packet = serde_json::to_vec(message)?;
        if packet.len() > MAX_PACKET_BYTES || fds.len() > MAX_DESCRIPTORS {
            return Err(io::Error::other(format!(
                "a message of {} bytes with {} descriptors is too large (at most {MAX_PACKET_BYTES} and {MAX_DESCRIPTORS})",
                packet.len(),
                fds.len()
            )));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::other("the descriptors do not fit into a packet"));
        }
        rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg(
                &self.socket,
                &[IoSlice::new(&packet)],
                &mut ancillary,
                flags,
            )
        })?;
        Ok(())
    }

    /// Waits for the next message.
    pub fn receive<M: DeserializeOwned>(&self) -> ReceiveOutcome<M> {
        self.receive_with(RecvFlags::CMSG_CLOEXEC)
    }

    /// Receives the next message if there is one.
    pub fn receive_now<M: DeserializeOwned>(&self) -> ReceiveOutcome<M> {
        self.receive_with(RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT)
    }

    fn receive_with<M: DeserializeOwned>(&self, flags: RecvFlags) -> ReceiveOutcome<M> {
        let mut packet = vec![0; MAX_PACKET_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let got = rustix::io::retry_on_intr(|| {
            rustix::net::recvmsg(
                &self.socket,
                &mut [IoSliceMut::new(&mut packet)],
                &mut ancillary,
                flags,
            )
        });
        let length = match got {
            Ok(message) if message.bytes > 0 => message.bytes,
            Err(rustix::io::Errno::AGAIN) => return ReceiveOutcome::Nothing,
            Ok(_) | Err(_) => return ReceiveOutcome::Closed,
        };
        let mut fds = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        match serde_json::from_slice(&packet[..length]) {
            Ok(message) => ReceiveOutcome::Message(message, fds),
            Err(_) => ReceiveOutcome::Closed,
        }
    }
}

/// The seals of a text's memory file: once it is sent, nothing can change it.
const TEXT_SEALS: SealFlags = SealFlags::SEAL
    .union(SealFlags::SHRINK)
    .union(SealFlags::GROW)
    .union(SealFlags::WRITE);

/// Returns a memory file that holds `text`, to be sent along with a message.
pub fn text_file(text: &str) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("howdah-text", flags)?);
    file.write_all(text.as_bytes())?;
    fcntl_add_seals(&file, TEXT_SEALS)?;
    Ok(file.into())
}

/// Reads the text of a memory file. The other process may have been compromised, and reading from anything but memory
/// that cannot change could block forever.
pub fn read_text(fd: OwnedFd) -> io::Result<String> {
    let mut file = File::from(fd);
    if !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(TEXT_SEALS)) {
        return Err(io::Error::other(
            "the descriptor is not a sealed memory file",
        ));
    }
    let length = file.metadata()?.len();
    if length > MAX_TEXT_BYTES {
        let why = format!("a text of {length} bytes is too long (at most {MAX_TEXT_BYTES})");
        return Err(io::Error::other(why));
    }
    file.rewind()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_delivers_messages_and_descriptors_and_reports_the_end() {
        let (ours, theirs) = ProcessChannel::pair().unwrap();
        let theirs = ProcessChannel::new(theirs);
        assert!(matches!(
            theirs.receive_now::<ToFront>(),
            ReceiveOutcome::Nothing
        ));
        let text = text_file("listen = []\n").unwrap();
        let fds = [text.as_fd(); MAX_DESCRIPTORS];
        ours.send(&ToFront::Status { id: 7 }, &fds).unwrap();
        let ReceiveOutcome::Message(ToFront::Status { id: 7 }, mut fds) = theirs.receive() else {
            panic!("not what was sent");
        };
        assert_eq!(fds.len(), MAX_DESCRIPTORS);
        assert_eq!(read_text(fds.remove(0)).unwrap(), "listen = []\n");
        drop(ours);
        assert!(matches!(
            theirs.receive::<ToFront>(),
            ReceiveOutcome::Closed
        ));
    }

    #[test]
    fn packet_that_is_not_a_message_closes_the_channel() {
        let (ours, theirs) = ProcessChannel::pair().unwrap();
        ours.send(&"launch please", &[]).unwrap();
        assert!(matches!(
            ProcessChannel::new(theirs).receive::<ToMaster>(),
            ReceiveOutcome::Closed
        ));
    }

    #[test]
    fn read_text_rejects_unsealed_and_endless_files() {
        // Reading from a pipe that no process writes to would never end.
        let (reader, _writer) = std::io::pipe().unwrap();
        let unsealed = memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        let endless = File::open("/dev/zero").unwrap();
        for fd in [reader.into(), unsealed, endless.into()] {
            let why = read_text(fd).unwrap_err().to_string();
            assert!(why.contains("not a sealed memory file"), "{why}");
        }
        let long = "x".repeat(MAX_TEXT_BYTES as usize + 1);
        let why = read_text(text_file(&long).unwrap()).unwrap_err();
        assert!(why.to_string().contains("too long"), "{why}");
    }
}
