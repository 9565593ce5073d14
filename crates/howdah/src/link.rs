//! The line between master and front: a `SOCK_SEQPACKET` socket pair; a message is one packet of
//! JSON, descriptors travel with it (`SCM_RIGHTS`). Long texts (a configuration, a status) go in a
//! memory file of their own, so a packet stays small and sending never blocks for long.
//!
//! The end of the file means that the other process is gone.
//!
//! A front may be of the version before its master: after an upgrade, until its last request has ended. Then
//! [`ToFront::Stop`], [`ToFront::Carried`], [`ToFront::NotLaunched`], [`ToMaster::Purged`] and
//! [`ToMaster::Launch`] are all that is said: those keep their form.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use howdah_os::descriptors::packet_pair;
use howdah_os::shares::Client;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::arguments::Serve;

/// Longest packet.
const MAX_PACKET: usize = 64 * 1024;
/// The kernel's own limit (`SCM_MAX_FD`).
pub const MAX_DESCRIPTORS: usize = 253;
/// Longest text in a memory file that is read back.
const MAX_TEXT: u64 = 16 << 20;

/// A configuration on its way to the front. Descriptors travel with it in this order: the
/// configuration's text ([`text_file`]), the error log and the access log if they are files, the
/// listening sockets.
#[derive(Debug, Serialize, Deserialize)]
pub struct Configuration {
    /// Its number; [`ToMaster::Launch`] refers to it.
    pub generation: u64,
    /// The command line.
    pub arguments: Serve,
    /// An error log travels along.
    pub error_log: bool,
    /// An access log travels along.
    pub access_log: bool,
    /// For each listening socket, which of the configuration's `listen` entries it is.
    pub listeners: Vec<u32>,
    /// After an upgrade, the front before has not ended: it has the directory of the page cache.
    pub follows_another: bool,
}

/// What TLS needs to keep from others: travels in a memory file ([`text_file`]).
#[derive(Serialize, Deserialize)]
pub struct Keys {
    /// Chain and key of each certificate, PEM. The first is for clients that name no host.
    pub certificates: Vec<(String, String)>,
    /// Certificates of those who sign clients' certificates, PEM; whether a client must have one.
    pub client_authority: Option<(String, bool)>,
    /// Keys of session tickets; the first encrypts.
    pub tickets: Vec<Vec<u8>>,
}

/// What the master says to the front.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToFront {
    /// Serve this from now on. Answered by [`ToMaster::Serving`] or [`ToMaster::Refused`].
    Serve(Box<Configuration>),
    /// Use these keys for TLS from now on. Descriptor: [`Keys`] as JSON.
    Keys,
    /// Answer these challenges of certificate authorities, and no others. Descriptor:
    /// [`howdah_acme::Challenges`] as JSON. Answered by [`ToMaster::Answering`].
    Challenges {
        /// Repeated in the answer.
        number: u64,
    },
    /// Show these orders of certificates as those that fail. Descriptor: [`FailingOrder`]s as JSON.
    FailingOrders,
    /// Show these jobs. Descriptor: [`howdah_server::admin::jobs::JobStatus`] of each, as JSON.
    Jobs,
    /// A client has asked for a name, and it gets no certificate.
    NotOrdered {
        /// The name.
        name: String,
    },
    /// The answer to [`ToMaster::Launch`]. Descriptor: the process's pidfd.
    Launched {
        /// The launch's number.
        id: u64,
        /// Process id of the zygote or spawner.
        pid: i32,
    },
    /// The answer to [`ToMaster::Launch`] when it could not be done.
    NotLaunched {
        /// The launch's number.
        id: u64,
        /// What the system said.
        message: String,
    },
    /// Asks something of the page cache; answered by [`ToMaster::Status`] with `cache` or `mistake`.
    Cache {
        /// The question's number, repeated in the answer.
        id: u64,
        /// What to look up or to purge.
        ask: howdah_server::cache::admin::AdminCommand,
    },
    /// Asks for [`ToMaster::Status`].
    Status {
        /// The question's number, repeated in the answer.
        id: u64,
    },
    /// Write to these log files from now on: descriptors as with a [`Configuration`].
    Reopen {
        /// An error log travels along.
        error_log: bool,
        /// An access log travels along.
        access_log: bool,
    },
    /// The program is about to be replaced: serve no stored page from now on, leave the fleet, and pass purges on.
    /// Answered by [`ToMaster::HandedOver`].
    HandOver,
    /// The front of the new program has carried out the purges of [`ToMaster::Purged`] up to this number.
    Carried {
        /// The number of the last one.
        number: u64,
    },
    /// Take no more connections, finish what runs within this time, leave.
    Stop {
        /// The time in milliseconds.
        limit: u64,
        /// Another front follows: clients of idle connections may have sent a request already.
        #[serde(default)]
        followed: bool,
    },
    /// Asks for a sign of life, [`ToMaster::Pulse`]; see `master::watchdog`.
    Ping {
        /// Counts up; repeated in the answer.
        number: u64,
    },
}

/// What the front says to the master.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToMaster {
    /// Start a zygote or, where the pool's mode has one, a spawner. Descriptors: memory, control,
    /// stderr, then the bells; for a spawner: control, stderr.
    Launch {
        /// The launch's number, repeated in the answer.
        id: u64,
        /// Number of the configuration that has the pool.
        generation: u64,
        /// The pool's name.
        pool: String,
    },
    /// A configuration is served.
    Serving {
        /// The number of the configuration that is served.
        generation: u64,
    },
    /// A configuration is not served; the one before, if any, still is. Descriptor: the reasons, a line each.
    Refused {
        /// The number of the configuration that is not served.
        generation: u64,
    },
    /// A client asks for a name that no certificate covers.
    Wanted {
        /// The name.
        name: String,
        /// Whose question it is; a front of an older version does not say.
        #[serde(default)]
        client: Client,
    },
    /// The answer to [`ToFront::Challenges`].
    Answering {
        /// The number of the challenges.
        number: u64,
    },
    /// The answer to [`ToFront::Status`]. Descriptor: the status as JSON.
    Status {
        /// The question's number.
        id: u64,
    },
    /// The answer to [`ToFront::Ping`], at once.
    Pulse {
        /// The number of the ping.
        number: u64,
        /// The kernel's id of each front thread, and the last ping it has come to.
        threads: Vec<(i32, u64)>,
    },
    /// The answer to [`ToFront::HandOver`].
    HandedOver,
    /// After [`ToFront::HandOver`]: purges for the front of the new program. Descriptor: the texts of
    /// [`howdah_server::cache::admin::AdminCommand::Relayed`] as JSON.
    Purged {
        /// The number of the last one.
        number: u64,
    },
    /// A stop waits for requests to end.
    Waiting {
        /// A sentence that names them, for whoever started the server.
        text: String,
    },
}

/// What the master says to the process that orders certificates.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToCertificates {
    /// Keep certificates for this from now on. Descriptor: [`howdah_acme::Settings`] as JSON.
    Settings,
    /// The front answers the challenges of this number.
    Answering {
        /// The number.
        number: u64,
    },
    /// A client asks for a name that no certificate covers.
    Wanted {
        /// The name.
        name: String,
        /// Whose question it is.
        client: Client,
    },
    /// A person wants something; answered by [`FromCertificates::Done`].
    Command {
        /// Repeated in the answer.
        id: u64,
        /// What.
        command: howdah_acme::Command,
    },
}

/// What that process says to the master; texts travel as descriptors.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromCertificates {
    /// Serve these. Descriptor: chains and keys, as JSON.
    Certificates,
    /// Have these challenges answered. Descriptor: [`howdah_acme::Challenges`] as JSON.
    Challenges {
        /// Their number.
        number: u64,
    },
    /// How it stands with each name. Descriptor: [`howdah_acme::NameStatus`] of each, as JSON.
    Status,
    /// A client has asked for a name, and it gets no certificate.
    NotOrdered {
        /// The name.
        name: String,
    },
    /// A command is done, or not. Descriptor: what was done, or why not.
    Done {
        /// The command's.
        id: u64,
        /// It was done.
        ok: bool,
    },
}

/// What the master says to the process that runs jobs.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToJobs {
    /// Run these jobs from now on, with new code. Descriptors: [`crate::jobs::settings::Settings`] as JSON,
    /// the error log if it is a file.
    Settings,
    /// Write to this log file from now on: the descriptor.
    Reopen,
    /// A person wants something; answered by [`FromJobs::Done`].
    Command {
        /// Repeated in the answer.
        id: u64,
        /// What.
        command: crate::jobs::settings::JobCommand,
    },
    /// Ask all jobs to end, kill those that have not within this time, and leave.
    Stop {
        /// The time in milliseconds.
        limit: u64,
    },
}

/// What that process says to the master.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromJobs {
    /// How the jobs stand. Descriptor: [`howdah_server::admin::jobs::JobStatus`] of each, as JSON.
    Status,
    /// A job writes to databases: the page cache is to hear it.
    Wrote {
        /// What.
        ask: howdah_server::cache::admin::AdminCommand,
    },
    /// A command is done, or not. Descriptor: what was done, or why not.
    Done {
        /// The command's.
        id: u64,
        /// It was done.
        ok: bool,
    },
}

/// One end of the line. Both directions may be used by several threads at once.
#[derive(Clone, Debug)]
pub struct Link {
    socket: Arc<OwnedFd>,
}

/// What a look at the line gave.
#[derive(Debug)]
pub enum Received<M> {
    /// A message and its descriptors.
    Message(M, Vec<OwnedFd>),
    /// Nothing now.
    Nothing,
    /// The other process is gone, or speaks another language: nothing more will come.
    Closed,
}

impl Link {
    /// A line: our end and the other's.
    pub fn pair() -> io::Result<(Link, OwnedFd)> {
        let (ours, theirs) = packet_pair()?;
        Ok((Link::new(ours), theirs))
    }

    /// On an end that was handed down.
    pub fn new(socket: OwnedFd) -> Link {
        Link {
            socket: Arc::new(socket),
        }
    }

    /// To wait on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a message and copies of the descriptors.
    ///
    /// # Errors
    /// The other side is gone, or (with `WouldBlock`, for the master, which must not wait) has
    /// stopped reading.
    pub fn send<M: Serialize>(&self, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_with(message, fds, SendFlags::NOSIGNAL)
    }

    /// [`Link::send`] that never waits.
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
        if packet.len() > MAX_PACKET || fds.len() > MAX_DESCRIPTORS {
            return Err(io::Error::other(format!(
                "a message of {} bytes with {} descriptors is too large (at most {MAX_PACKET} and {MAX_DESCRIPTORS})",
                packet.len(),
                fds.len()
            )));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::other("the descriptors do not fit a packet"));
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
    pub fn receive<M: DeserializeOwned>(&self) -> Received<M> {
        self.receive_with(RecvFlags::CMSG_CLOEXEC)
    }

    /// Takes the next message if there is one.
    pub fn receive_now<M: DeserializeOwned>(&self) -> Received<M> {
        self.receive_with(RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT)
    }

    fn receive_with<M: DeserializeOwned>(&self, flags: RecvFlags) -> Received<M> {
        let mut packet = vec![0; MAX_PACKET];
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
            Err(rustix::io::Errno::AGAIN) => return Received::Nothing,
            Ok(_) | Err(_) => return Received::Closed,
        };
        let mut fds = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        match serde_json::from_slice(&packet[..length]) {
            Ok(message) => Received::Message(message, fds),
            Err(_) => Received::Closed,
        }
    }
}

/// What a text's memory file can no longer do once it is sent: change.
const SEALED: SealFlags = SealFlags::SEAL
    .union(SealFlags::SHRINK)
    .union(SealFlags::GROW)
    .union(SealFlags::WRITE);

/// A memory file that holds `text`, to be sent along.
pub fn text_file(text: &str) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("howdah-text", flags)?);
    file.write_all(text.as_bytes())?;
    fcntl_add_seals(&file, SEALED)?;
    Ok(file.into())
}

/// The text of a memory file. The other process may have been taken over: reading from anything but
/// memory that cannot change could block for ever.
pub fn read_text(fd: OwnedFd) -> io::Result<String> {
    let mut file = File::from(fd);
    if !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALED)) {
        return Err(io::Error::other("what was sent is no sealed memory file"));
    }
    let length = file.metadata()?.len();
    if length > MAX_TEXT {
        let why = format!("a text of {length} bytes is too long (at most {MAX_TEXT})");
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
    fn messages_and_descriptors_arrive_and_the_end_is_seen() {
        let (ours, theirs) = Link::pair().unwrap();
        let theirs = Link::new(theirs);
        assert!(matches!(theirs.receive_now::<ToFront>(), Received::Nothing));
        let text = text_file("listen = []\n").unwrap();
        let fds = [text.as_fd(); MAX_DESCRIPTORS];
        ours.send(&ToFront::Status { id: 7 }, &fds).unwrap();
        let Received::Message(ToFront::Status { id: 7 }, mut fds) = theirs.receive() else {
            panic!("not what was sent");
        };
        assert_eq!(fds.len(), MAX_DESCRIPTORS);
        assert_eq!(read_text(fds.remove(0)).unwrap(), "listen = []\n");
        drop(ours);
        assert!(matches!(theirs.receive::<ToFront>(), Received::Closed));
    }

    #[test]
    fn a_packet_that_is_no_message_ends_the_conversation() {
        let (ours, theirs) = Link::pair().unwrap();
        ours.send(&"launch please", &[]).unwrap();
        assert!(matches!(
            Link::new(theirs).receive::<ToMaster>(),
            Received::Closed
        ));
    }

    #[test]
    fn a_text_that_is_no_sealed_memory_file_is_not_read() {
        // Reading from a pipe that nobody writes to would never end.
        let (reader, _writer) = std::io::pipe().unwrap();
        let unsealed = memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        let endless = File::open("/dev/zero").unwrap();
        for fd in [reader.into(), unsealed, endless.into()] {
            let why = read_text(fd).unwrap_err().to_string();
            assert!(why.contains("no sealed memory file"), "{why}");
        }
        let long = "x".repeat(MAX_TEXT as usize + 1);
        let why = read_text(text_file(&long).unwrap()).unwrap_err();
        assert!(why.to_string().contains("too long"), "{why}");
    }
}
