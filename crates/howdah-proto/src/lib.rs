//! The protocols between the front and the PHP processes. This crate does no I/O and reads no clock: callers pass in
//! bytes and times.
//!
//! - [`backend_address`]: the addresses of FastCGI applications and of proxied servers, parsed.
//! - [`cgi_response`]: the responses of CGI programs and FastCGI applications (RFC 3875 §6).
//! - [`fastcgi`]: FastCGI 1.0 records, from the web server's side.
//! - [`variables`]: the CGI meta-variables (RFC 3875 §4.1) that both sides know by number.
//! - [`control`]: the messages between the front and the zygote of a pool.
//! - [`spawner`]: the messages between the front and the spawner of a pool of external programs.
//! - [`worker`]: the messages in which a worker child reports whether its script has booted.
//! - [`request`]: the request frame, which the front writes once and the C shim reads in place.
//! - [`response`]: the response frames that a PHP process writes, and the strict parser with which the front reads
//!   them. Data from a PHP process is untrusted until that parser has accepted it.
//! - [`level`]: the severity of a log message.
//! - [`effect`]: the side effects of a run, as its frames report them.
//! - [`shared_cache`]: the limits of a pool's shared cache, and the layout of its memory.
//! - [`shm`]: the shared memory of a pool: ready rings, slots, scoreboard, bells. It is the only module here with
//!   `unsafe`.

#![deny(unsafe_code)]

pub mod backend_address;
pub mod cgi_response;
pub mod control;
pub mod effect;
pub mod fastcgi;
pub mod level;
pub mod request;
pub mod response;
pub mod shared_cache;
pub mod shm;
pub mod spawner;
pub mod variables;
pub mod worker;
