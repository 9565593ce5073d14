//! A client, or a script, that keeps PHP processes from others.
