//! A client that makes the front keep far more than it sends, in memory or on disk.
