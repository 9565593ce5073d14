//! Apache's `.htaccess` files as Apache 2.4 understands them: [`parse`] reads one, [`answer`] finds out
//! what becomes of a request below some, [`Answer::finish`] changes the response's header as they say.
//! [`refusals`] finds out only what they refuse, for a site that routes its requests itself.
//!
//! - `lines`, `names`, `modules`, `rules`, `expression`, `parse`: text into `config`'s values.
//! - `request`, `engine`: the run of a request through Apache's hooks, in Apache's order: `storage`
//!   (files and directories), `environment`, `authorize`, `types`, `rewrite`, `mapping` (redirects,
//!   index files), `handle`; its `answer`. `ahead`: questions about other URLs.
//! - `evaluate`: variables and expressions. `response`: `Header`, Expires, types.
//!
//! It asks for files through [`World`] and does nothing itself: no I/O, no clock. What it cannot find out
//! within its limits refuses the request.

mod ahead;
mod answer;
mod authorize;
mod config;
mod digest;
mod engine;
mod environment;
mod evaluate;
mod expression;
mod handle;
mod limits;
pub mod lines;
mod mapping;
mod modules;
mod names;
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

pub use answer::{Action, Answer, Demand, Document, Refusal};
pub use engine::answer;
pub use parse::{ConditionView, HtFile, LONGEST, Note, Problem, RuleView, parse};
pub use refusals::{Outcome, Verdict, chain_at, refusals};
pub use request::{Consulted, Facts, Login, Stat, World};
pub use response::{Fields, PlainEdit};
pub use storage::Chain;
pub use table::Table;
pub use text::printable;

#[cfg(test)]
mod tests;
