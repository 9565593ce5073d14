//! Failures of PHP, of clients, of other programs and of the server's own processes, and reloads and upgrades.

mod child;
mod client;
mod deadline;
#[cfg(feature = "packages")]
mod fastcgi;
#[cfg(feature = "packages")]
mod modes;
mod pool_memory;
mod process;
mod queue;
mod reload;
mod spill;
mod start;
mod upgrade;
mod worker;
