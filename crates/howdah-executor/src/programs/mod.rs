//! External programs of a pool (modes `cgi` and `pool`): who starts and reaps them, and the front's
//! side of it.
//!
//! ```text
//! front ── link ──(SOCK_SEQPACKET: orders, reports, descriptors)── spawner ── php-cgi, perl, …
//! ```
//!
//! A front has threads and gives up its privileges, so it forks nothing. A *spawner* does: a small
//! single-threaded process of the pool's user, started by the master like a zygote, from the
//! master's own configuration. It starts each program as leader of a process group of its own,
//! reports when one has ended, and signals groups. It keeps a wall-clock limit for each by itself:
//! a front thread that hangs must not take the supervision of its programs with it.
//!
//! - When the front is gone the spawner ends its programs and leaves. When the spawner is gone the
//!   kernel signals the leaders of its groups (`PR_SET_PDEATHSIG`), and the front starts another. A
//!   spawner that does not answer ([`heartbeat`]) is killed by its pidfd, which comes to the same. No number
//!   of a process is used for any of this, so none can have come to mean another's.
//! - [`spawner`]: that process; [`spawner_client`]: the front's end of the line; [`slot_queue`]: who may run now
//!   and who waits; [`draining`]: how a pool ends.

pub(crate) mod draining;
mod heartbeat;
pub(crate) mod slot_queue;
pub mod spawner;
pub(crate) mod spawner_client;

#[cfg(test)]
mod slot_queue_tests;
