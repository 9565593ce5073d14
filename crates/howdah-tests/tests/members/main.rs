//! What members of a fleet leave to PHP: sessions.

mod sessions;
