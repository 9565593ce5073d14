//! `howdah compare --app`: measures which mode, which number of children and whether the page cache suits the user's
//! own application, on its pages and beside the installed rivals. The result includes a configuration file.
//!
//! - [`app`]: the application and its requests; [`arm`]: the servers.
//! - [`fetch`], [`shape`], [`check`]: whether all stacks serve the same pages.
//! - [`schedule`]: how long and how often; [`subject`]: how it is measured ([`crate::experiment`]).
//! - [`rows`], [`advise`]: what the figures show; [`howdah_toml`], `config_trial`: the configuration that follows from
//!   them, and a test of it.
//! - [`study`]: all steps in order, after [`prepare`]; [`outcome`]: the result, as data; [`report`]: as text and as a
//!   page.
//!
//! The application's directory is served in place, and the lab writes nothing into it: every generated file, PHP's
//! sessions and temporary files are in the folder of the run. The application may write files when a page is requested,
//! as it does for visitors; [`tree`] reports them.

pub mod advise;
pub mod app;
pub mod arm;
pub mod check;
mod config_trial;
pub mod fetch;
pub mod howdah_toml;
pub mod outcome;
pub mod prepare;
pub mod report;
pub mod rows;
pub mod schedule;
pub mod shape;
pub mod study;
pub mod subject;
pub mod tree;
