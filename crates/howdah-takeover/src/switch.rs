//! `howdah takeover switch`, `rollback` and `status`: lets Howdah listen beside the old servers at the same addresses,
//! directs new connections to it, watches it, and goes back.
//!
//! The old servers are not stopped for a switch. The kernel decides which socket of an address gets a new connection
//! ([`howdah_os::shared_ports`]), so the switch and the rollback are one system call for each address, no connection is
//! refused, and requests that have begun are finished where they began.
//!
//! - [`steps`]: the commands; [`run`], [`rollback`] and [`resume`]: the process that carries them out.
//! - [`state`]: the file `switch.json` and its lock.
//! - [`refusals`]: why a switch does not begin; [`failure`]: the names of failures.
//! - [`ports`]: the addresses and the choice of the server; [`process`]: processes by id and start.
//! - [`howdah`]: the Howdah that takes over; [`old_server`]: starting a stopped server; [`service`]: systemd.
//! - [`figures`] and [`probe`]: what is measured; [`criteria`]: what is too bad.
//! - [`progress`] and [`status`]: what the user sees.

pub mod criteria;
pub mod failure;
pub mod figures;
pub mod howdah;
pub mod old_server;
pub mod ports;
pub mod probe;
pub mod process;
pub mod progress;
pub mod refusals;
pub mod resume;
pub mod rollback;
pub mod run;
pub mod service;
pub mod state;
pub mod status;
pub mod steps;
