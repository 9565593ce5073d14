//! The protocols between the front and PHP processes. No I/O, no clock: bytes and time are passed
//! in.
//!
//! - [`cgi_response`]: what CGI programs and FastCGI applications answer with (RFC 3875 §6).
//! - [`fastcgi`]: FastCGI 1.0 records, a web server's side.
//! - [`variables`]: the CGI meta-variables (RFC 3875 §4.1) both sides know by number.
//! - [`control`]: the messages between the front and the zygote of a pool.
//! - [`spawner`]: the same between the front and the spawner of a pool of external programs.
//! - [`request`]: the request frame, written once by the front, read in place by the C shim.
//! - [`response`]: the response frames a PHP process writes, and the strict parser the front
//!   reads them with. What a PHP process sends is a claim until that parser has accepted it.
//! - [`level`]: how serious a log message is.
//! - [`effect`]: the side effects of a run, as its frames report them.
//! - [`shared_cache`]: the limits of what PHP keeps in a pool's shared cache, and that memory's parts.
//! - [`shm`]: the shared memory of a pool: ready rings, slots, scoreboard, bells. The only
//!   module here with `unsafe`.

#![deny(unsafe_code)]

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
