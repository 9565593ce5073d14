//! FastCGI 1.0 records, from the web server's side: this module writes requests and reads responses. It handles bytes
//! only, no sockets and no clock. A connection carries one request at a time, with id 1, as in nginx and
//! mod_proxy_fcgi, because php-fpm and php-cgi do not multiplex (`FCGI_MPXS_CONNS=0`).
//!
//! - [`encode`]: BEGIN_REQUEST, PARAMS, STDIN, GET_VALUES.
//! - [`decode`]: STDOUT, STDERR, END_REQUEST, GET_VALUES_RESULT.
//!
//! PHP (`main/fastcgi.c`) departs from the specification, and so does this module:
//!
//! - A name-value pair never straddles two PARAMS records. The specification (§3.3) allows it, but `fcgi_get_params`
//!   parses each record on its own and drops the connection.
//! - Content and padding together stay within 65535 bytes (`FCGI_MAX_LENGTH` of `fcgi_read_request`).
//! - PHP does not send the empty STDOUT and STDERR records that §6.1 requires. END_REQUEST ends a response whether or
//!   not they came before it.
//! - ABORT_REQUEST is never sent, because PHP treats it as the end of its input. To abort a request, close the
//!   connection (§5.4 allows this for a server that does not multiplex).

pub mod decode;
pub mod encode;

pub use decode::{DecodedPiece, EndStatus, RecordDecoder, RecordError};
pub use encode::{Params, VariableTooLong};

/// The protocol version in every record: `FCGI_VERSION_1` (§8).
pub const VERSION: u8 = 1;
/// Size of a record's header in bytes (§3.3).
pub const HEADER_BYTES: usize = 8;
/// The maximum number of content bytes in a record that is written here: the largest multiple of 8 that fits in 16
/// bits.
pub const MAX_CONTENT_BYTES: usize = 65528;
/// The id of every request. Management records have id 0.
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

/// The role that the application is asked to play (§6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum FastCgiRole {
    /// The application responds to the request as a CGI program would (§6.2).
    Responder = 1,
    /// The application decides whether the request is authorized (§6.3).
    Authorizer = 2,
}

#[cfg(test)]
mod tests;
