//! External programs of a pool (modes `cgi` and `pool`): the process that starts and reaps them, and the front's side
//! of it.
//!
//! ```text
//! front ── client ──(SOCK_SEQPACKET: commands, reports, descriptors)── spawner ── php-cgi, perl, …
//! ```
//!
//! A front has threads and gives up its privileges, so it does not fork. A *spawner* does: a small single-threaded
//! process under the pool's user. The master starts it like a zygote, from the master's own configuration. The spawner
//! starts each program as the leader of a new process group, reports when one has exited, and signals groups. It
//! enforces the wall-clock limit of each program on its own, because a hanging front thread must not end the
//! supervision of its programs.
//!
//! - When the front is gone, the spawner terminates its programs and exits. When the spawner is gone, the kernel
//!   signals the leaders of its groups (`PR_SET_PDEATHSIG`), and the front starts another spawner. A spawner that does
//!   not respond ([`heartbeat`]) is killed by its pidfd, which has the same effect. None of this uses a process id, so
//!   a reused id can do no harm.
//! - [`spawner`]: that process; [`spawner_client`]: the front's end of the socket; [`slot_queue`]: which requests run
//!   and which wait; [`draining`]: how a pool ends.

pub(crate) mod draining;
mod heartbeat;
pub(crate) mod slot_queue;
pub mod spawner;
pub(crate) mod spawner_client;

#[cfg(test)]
mod slot_queue_tests;
