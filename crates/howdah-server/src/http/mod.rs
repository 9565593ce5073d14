//! HTTP messages, and HTTP/1.1 on a socket.

pub mod message;
