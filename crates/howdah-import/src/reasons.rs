//! The reasons, common to nginx and Apache, why a directive has no meaning in Howdah. The list names each reason once,
//! with all its directives.

pub const COMPRESSION: &str =
    "the media type and the client decide what Howdah compresses, and how well";
pub const FILES: &str = "Howdah sends files in this way by default";
pub const INCLUDED: &str = "the file is read with the one that includes it";
pub const LOGGING: &str = "one access log contains all requests, including those for missing files";
pub const PROTOCOL: &str =
    "every address with `tls` serves HTTP/2, which needs no settings of its own";
pub const REDIRECTS: &str =
    "a redirect that adds the slash of a directory contains neither a host nor a port";
pub const SERVICE: &str = "service managers find the process by themselves";
pub const SESSIONS: &str =
    "clients resume TLS sessions with tickets, whose keys Howdah creates and replaces";
pub const STAPLING: &str = "public authorities no longer offer OCSP";
pub const TLS: &str = "Howdah offers TLS 1.3 and 1.2 with forward secrecy; this cannot be changed";
pub const TUNING: &str = "Howdah tunes processes, buffers and files by itself";
pub const VERSION: &str = "responses never contain a version or an administrator's address";
