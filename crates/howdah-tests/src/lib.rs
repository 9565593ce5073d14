//! The support library of the end-to-end tests. It starts the real `howdah` program (and its rivals, in private
//! directories on loopback), speaks strict HTTP/1.1 to them, and behaves like a browser where an application expects
//! one. It is not part of the product, and its clients share no code with the product: they check the bytes on the
//! wire.
//!
//! Every server here implements [`rig::Server`], so a journey through an application runs unchanged against Howdah,
//! nginx + php-fpm or mod_php. `HOWDAH_TESTS_SERVER` (`howdah`, `nginx-fpm`, `mod-php`) selects the server; Howdah is
//! the default. If a journey fails on a rival too, the mistake is in the journey.
//!
//! No server survives its test: a server is terminated by process id when its rig is dropped, and by a watcher when the
//! test process itself dies.

#![forbid(unsafe_code)]

pub mod browser;
pub mod chromium;
pub mod collector;
pub mod differences;
pub mod fixture;
pub mod forms;
pub mod gate;
pub mod haproxy;
pub mod http;
pub mod http2;
pub mod http3;
pub mod image;
pub mod link;
pub mod load;
pub mod mariadb;
pub mod oracle;
pub mod pki;
pub mod postgres;
pub mod readers;
pub mod rig;
pub mod same_answers;
pub mod tls_tunnel;
pub mod tools;
pub mod valkey;
pub mod wordpress_home;

pub use howdah_test_support::{executable, process, process_tree, scratch};
