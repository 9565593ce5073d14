//! A client that names a file or a script in a way the access checks do not see.
