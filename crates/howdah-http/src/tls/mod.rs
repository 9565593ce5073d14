//! TLS of the listeners: the one place that knows rustls.
//!
//! - [`session`]: one connection's records, driven by hand.
//! - [`quic`]: the same inside QUIC, where quinn drives it.
//! - [`certificates`]: which certificate a client gets, by the name it asks for.
//! - [`client_certificate`]: who signs clients' certificates, and what PHP learns of them.
//! - [`challenges`]: the proofs that certificate authorities look for.
//! - [`on_demand`]: names that clients ask for and no certificate covers.
//! - [`crypto`]: versions and ciphers; the names that PHP and the access log give them.
//! - [`settings`]: what listeners share, and what a connection is set up with.
//! - [`tickets`]: session tickets, whose keys outlive reloads and the front.
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

pub use session::Agreed;
pub use settings::{ConnectionSettings, CurrentSettings, TlsSettings};
