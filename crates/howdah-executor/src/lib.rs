//! Runs one script request.
