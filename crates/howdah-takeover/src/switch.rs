//! `howdah takeover switch`, `rollback` and `status`: passes the listening sockets of the old servers to Howdah, watches
//! it, and goes back.
