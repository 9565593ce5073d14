//! Clients that misuse the streams of HTTP/2 and HTTP/3. Both are in one module because the attacks of both run one at
//! a time: each attack uses the whole machine.

mod http2;
mod http3;
