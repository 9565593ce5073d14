//! The visitor who sends a request: the properties that a site's decisions may depend on.

use std::net::SocketAddr;

use howdah_htaccess::{Demand, LoginResult};

use super::trace::Trace;
use crate::client_address::{Client, UNKNOWN_CLIENT};

/// The visitor who sends a request.
#[derive(Clone, Copy, Debug)]
pub struct Visitor<'a> {
    /// The client, as the connection and trusted proxies report it.
    pub client: &'a Client<'a>,
    /// The address that the connection was accepted at; `None` for a unix socket.
    pub local: Option<SocketAddr>,
    /// The results of the password checks that `.htaccess` files have demanded so far.
    pub logins: &'a [(Demand, LoginResult)],
    /// Where the steps of the request are noted, for `howdah explain`.
    pub trace: Option<&'a Trace>,
}

impl Default for Visitor<'_> {
    /// An unknown visitor.
    fn default() -> Self {
        Visitor {
            client: &UNKNOWN_CLIENT,
            local: None,
            logins: &[],
            trace: None,
        }
    }
}
