//! TLS of the listeners: all use of rustls by listeners is here.
//!
//! - [`session`]: the records of one connection, without rustls's own I/O.
//! - [`quic`]: TLS inside QUIC, where quinn drives it.
//! - [`certificates`]: chooses a client's certificate by the requested name.
//! - [`client_certificate`]: the authority of client certificates, and the variables that PHP gets from them.
//! - [`challenges`]: the proofs that certificate authorities request.
//! - [`on_demand`]: names that clients ask for and that no certificate covers.
//! - [`crypto`]: versions and ciphers, and their names for PHP and the access log.
//! - [`settings`]: the state that listeners share, and the settings of a connection.
//! - [`tickets`]: session tickets, whose keys outlive reloads and restarts of the front.
//!
//! Keys come from the master, which reads them as root; the front never opens a key file.

pub mod certificates;
pub mod challenges;
pub mod client_certificate;
pub mod crypto;
pub mod on_demand;
pub(crate) mod quic;
pub(crate) mod session;
pub mod settings;
pub mod tickets;

pub use session::NegotiatedTls;
pub use settings::{ConnectionSettings, CurrentSettings, TlsSettings};
