//! Clients that misuse the streams of HTTP/2 and HTTP/3. Both are one module because their attacks wait for each other:
//! each uses the whole machine.

mod http2;
mod http3;
