//! A user of the same machine, or a script, that reaches for the server itself.
