//! The receiving side of HTTP/1.1's grammar: the head of a request, the framing of its body, and the chunked transfer
//! coding. It turns bytes into values without I/O, a clock, or any policy beyond the limits that the caller passes. The
//! server's front and `howdah-php`, whose Swoole scripts accept connections themselves, both use it, so both refuse the
//! same requests under the same names.
//!
//! - [`head`]: the parser; [`message`]: the value that it produces; [`framing`]: where the message ends.
//! - [`chunk`]: decodes the chunked coding; [`receiver`]: assembles a whole request with its body in memory.
//! - [`hidden`]: names of files that neither the front nor `howdah run` ever sends; [`mime`]: media types of files.
//! - [`percent`]: percent-encoding in paths.
//! - [`refusal`]: the named reasons for refusing a request; [`reason`]: reason phrases; [`date`]: the `Date` header.

#![forbid(unsafe_code)]

pub mod chunk;
pub mod date;
pub mod framing;
pub mod head;
pub mod hidden;
pub mod message;
pub mod mime;
pub mod percent;
pub mod reason;
pub mod receiver;
pub mod refusal;
