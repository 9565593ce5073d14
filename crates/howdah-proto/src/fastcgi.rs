//! FastCGI 1.0 records, a web server's side: writes requests, reads answers. Bytes only: no
//! sockets, no clock. One request a connection at a time, id 1, as nginx and mod_proxy_fcgi do:
//! php-fpm and php-cgi do not multiplex (`FCGI_MPXS_CONNS=0`).
//!
//! - [`encode`]: BEGIN_REQUEST, PARAMS, STDIN, GET_VALUES.
//! - [`decode`]: STDOUT, STDERR, END_REQUEST, GET_VALUES_RESULT.
//!
//! Departures from the specification, all PHP's (`main/fastcgi.c`):
//!
//! - A name-value pair never straddles two PARAMS records. The specification (§3.3) allows it;
//!   `fcgi_get_params` parses each record by itself and drops the connection.
//! - Content and padding together stay within 65535 bytes (`FCGI_MAX_LENGTH` of `fcgi_read_request`).
//! - The empty STDOUT and STDERR records that §6.1 asks for do not come from PHP: END_REQUEST ends
//!   an answer, whatever was missing before it.
//! - There is no ABORT_REQUEST: PHP takes it for the end of its input. Closing the connection is
//!   the way to say that nobody waits (§5.4 allows it for a server that does not multiplex).

pub mod decode;
pub mod encode;

pub use decode::{Decoder, End, Piece, RecordError};
pub use encode::{Params, VariableTooLong};

/// The protocol version in every record: `FCGI_VERSION_1` (§8).
pub const VERSION: u8 = 1;
/// Bytes of a record's header (§3.3).
pub const HEADER: usize = 8;
/// Most bytes of content in a record written here: what 16 bits hold, less what would not be a
/// multiple of 8.
pub const MAX_CONTENT: usize = 65528;
/// The id of every request; 0 is management's.
pub const REQUEST_ID: u16 = 1;

/// The type byte of a record's header (§8).
pub mod kind {
    #![allow(missing_docs)]
    pub const BEGIN_REQUEST: u8 = 1;
    pub const ABORT_REQUEST: u8 = 2;
    pub const END_REQUEST: u8 = 3;
    pub const PARAMS: u8 = 4;
    pub const STDIN: u8 = 5;
    pub const STDOUT: u8 = 6;
    pub const STDERR: u8 = 7;
    pub const DATA: u8 = 8;
    pub const GET_VALUES: u8 = 9;
    pub const GET_VALUES_RESULT: u8 = 10;
    pub const UNKNOWN_TYPE: u8 = 11;
}

/// What the application is asked to be (§6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Role {
    /// The application answers the request, as a CGI program would (§6.2).
    Responder = 1,
    /// It says whether the request may be answered (§6.3).
    Authorizer = 2,
}

#[cfg(test)]
mod tests;
