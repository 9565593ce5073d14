//! HTTP/1.1's grammar on the receiving side: a request's head, the framing of its body, the chunked
//! transfer coding. Bytes in, values out: no I/O, no clock, no policy beyond the limits handed in.
//! Used by the server's front and by `howdah-php`, whose Swoole scripts accept connections
//! themselves, so that both refuse the same requests under the same names.
//!
//! - [`head`]: the parser; [`message`]: what it makes; [`framing`]: where the message ends.
//! - [`chunk`]: takes the chunked coding off; [`receiver`]: a whole request, body in memory.
//! - [`hidden`]: names of files that neither of them ever sends.
//! - [`refusal`]: the named reasons to refuse; [`reason`]: reason phrases; [`date`]: `Date`.

#![forbid(unsafe_code)]

pub mod chunk;
pub mod date;
pub mod framing;
pub mod head;
pub mod hidden;
pub mod message;
pub mod reason;
pub mod receiver;
pub mod refusal;
