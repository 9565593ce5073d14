//! The protocols and what a site's rules make of a request: HTTP/1.1, HTTP/2, HTTP/3 and TLS, access rules, limits,
//! proxies and traces; and the oracles, which compare the responses with those of nginx + php-fpm and Apache + mod_php.

mod access_rules;
mod authentication;
#[cfg(feature = "packages")]
mod authorizer;
#[cfg(feature = "packages")]
mod cgi_environment;
mod explain;
#[cfg(feature = "packages")]
mod htaccess_oracle;
mod http2;
#[cfg(feature = "packages")]
mod http3;
mod http3_early;
mod limits;
#[cfg(feature = "packages")]
mod limits_login;
mod load_bodies;
#[cfg(feature = "packages")]
mod local_redirect;
#[cfg(feature = "packages")]
mod modes;
#[cfg(feature = "packages")]
mod oracle;
mod oracle_requests;
#[cfg(feature = "packages")]
mod oracle_tls;
mod proxy;
mod semantics;
mod smuggling;
mod status_listener;
mod streaming;
#[cfg(feature = "packages")]
mod tls;
#[cfg(feature = "packages")]
mod traces;
