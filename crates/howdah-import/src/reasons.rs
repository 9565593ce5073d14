//! The reasons, common to nginx and Apache, why a directive has no meaning in Howdah. The list names each reason once,
//! with all its directives.

pub const COMPRESSION: &str =
    "the media type and the client determine what Howdah compresses, and at which level";
pub const FILES: &str = "Howdah does not need this setting to send files";
pub const INCLUDED: &str = "the file is read together with the file that includes it";
pub const LOGGING: &str = "one access log contains all requests, including those for missing files";
pub const PROTOCOL: &str =
    "every address with `tls` offers HTTP/2, whose limits cannot be configured";
pub const REDIRECTS: &str =
    "a redirect that adds the slash to the URL of a directory contains neither a host nor a port";
pub const SERVICE: &str = "service managers find the process by themselves";
pub const SESSIONS: &str =
    "clients resume TLS sessions with tickets, whose keys Howdah creates and replaces";
pub const STAPLING: &str = "Howdah does not use OCSP, which Let's Encrypt no longer offers";
pub const TLS: &str = "Howdah offers TLS 1.3 and 1.2 with forward secrecy, and has no options for versions and ciphers";
pub const TUNING: &str = "Howdah tunes processes, buffers and files by itself";
pub const VERSION: &str = "responses never contain a version or an administrator's address";
