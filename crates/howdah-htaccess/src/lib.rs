//! Evaluates `.htaccess` files as Apache 2.4 does: [`parse`] reads a file, [`decide`] decides what to do with a request
//! that some such files apply to, and [`RequestDecision::finish`] makes the changes to the response's header fields
//! that they ask for. [`refusals`] only finds out which requests they refuse; it is for a site that routes its requests
//! itself.
//!
//! - `lines`, `directives`, `modules`, `rules`, `expression`, `parse`: turn the text into the values of `config`.
//! - `request`, `engine`: run a request through Apache's hooks, in Apache's order: `storage` (files and directories),
//!   `environment`, `authorize`, `types`, `rewrite`, `mapping` (redirects, index files), `handle`. The result is a
//!   `decision`. `lookahead`: subrequests for other URLs.
//! - `evaluate`: variables and expressions. `response`: `Header`, Expires, types.
//!
//! The crate does no I/O and reads no clock: it asks for files through [`ServerContext`]. It refuses a request that it
//! cannot evaluate within its limits.

mod authorize;
mod config;
mod decision;
mod digest;
pub mod directives;
mod engine;
mod environment;
mod evaluate;
mod expression;
mod handle;
mod limits;
pub mod lines;
mod lookahead;
mod mapping;
mod modules;
mod network;
mod parse;
pub mod pattern;
mod refusals;
mod request;
mod response;
mod rewrite;
pub mod rule_expression;
mod rules;
mod storage;
mod table;
mod text;
mod types;

pub use decision::{Action, Demand, Document, HtaccessRefusal, RequestDecision};
pub use engine::decide;
pub use parse::{ConditionView, HtFile, MAX_FILE_BYTES, Note, Problem, RuleView, parse};
pub use refusals::{AccessOutcome, AccessVerdict, chain_at, refusals};
pub use request::{EvaluationInput, InputDependencies, LoginResult, ServerContext, Stat};
pub use response::{ConstantEdit, ResponseFields};
pub use storage::{HtFileChain, MAX_FILE_NAME_BYTES};
pub use table::Table;
pub use text::printable;

#[cfg(test)]
mod tests;
