//! A client that takes all connections, or keeps them without sending anything.
