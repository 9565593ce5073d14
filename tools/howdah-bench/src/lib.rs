//! The load tester: what to send and when, what came back, what the figures mean, and how to report them. It shares no
//! code with the server, so a mistake in one cannot hide in the other.
//!
//! - [`plan`]: what to measure: targets, arrivals, when to stop, the connection, the checks.
//! - [`outcome`]: the one name with which each request ends.
//! - [`run`]: what one run measured, as data; also the documented JSON (`docs/bench-json.md`).
//! - [`histogram`]: latencies, in constant memory.
//! - [`stats`]: intervals, verdicts and models: what the figures mean.
//! - [`experiment`]: several runs: comparison, sweep, search. [`slo`]: the objective of a search or a run.
//! - [`replay`]: requests of an access log.
//! - [`response`]: parses responses of HTTP/1.x.
//! - [`engine`]: sends the requests and counts the outcomes; HTTP/1.x over epoll.
//! - [`report`]: the reports: text, files, pages.
//! - [`driver`]: several runs that answer one question.
//! - [`command`]: the command line.
//! - [`error`]: why a run could not start or had to end.

#![deny(unsafe_code)]

pub mod command;
pub mod driver;
pub mod engine;
pub mod error;
pub mod experiment;
pub mod histogram;
pub mod outcome;
pub mod plan;
pub mod replay;
pub mod report;
pub mod response;
pub mod run;
pub mod slo;
pub mod stats;
