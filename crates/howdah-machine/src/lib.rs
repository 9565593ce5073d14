//! What is installed on this machine. The lab and the tests ask here, so both start the same programs.
//!
//! - [`php`]: the PHP series, with its programs, extensions and settings.
//! - [`programs`]: where a program is.
//! - [`ports`]: free ports on loopback.
//! - [`WORDPRESS_CONFIG`]: the settings of a WordPress that is measured or tested.

#![forbid(unsafe_code)]

pub mod php;
pub mod ports;
pub mod programs;

/// The `wp-config.php` of a WordPress that is measured or tested. `{SOCKET}` is its database's socket, and `{URL}` is its
/// address without a final slash.
pub const WORDPRESS_CONFIG: &str = include_str!("wp-config.php");
