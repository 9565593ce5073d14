//! The reasons why a directive has no meaning in Howdah that nginx and Apache have in common. The list names each
//! reason once, with all its directives.

pub const COMPRESSION: &str =
    "what is compressed, and how well, follows from the media type and the client";
pub const FILES: &str = "how Howdah sends files anyway";
pub const INCLUDED: &str = "read with the file that includes it";
pub const LOGGING: &str = "one access log has all requests, also those for missing files";
pub const PROTOCOL: &str = "HTTP/2 is on wherever TLS is, within limits that are measured";
pub const REDIRECTS: &str = "redirects to a directory's slash name no host and no port";
pub const SERVICE: &str = "service managers know the process by themselves";
pub const SESSIONS: &str =
    "TLS sessions are resumed by tickets whose keys Howdah makes and changes";
pub const STAPLING: &str = "public authorities have ended OCSP";
pub const TLS: &str =
    "Howdah offers TLS 1.3 and 1.2 with forward secrecy; there is nothing to choose";
pub const TUNING: &str = "Howdah tunes processes, buffers and files by itself";
pub const VERSION: &str = "answers never name a version";
