//! The lab: starts the common stacks for serving PHP, and Howdah in its modes, with the same pages and the same
//! `php.ini`, side by side on this machine; runs the five benchmarks against them and reports the results. The command
//! line is the program `howdah-bench` (`src/bin`).
//!
//! - [`folder`]: the run's folder; every generated file stays in it.
//! - [`process`]: a started program: its session, its log, its end; [`usage`]: the CPU time and memory that it uses;
//!   [`howdah_machine::ports`]: free ports.
//! - [`need`]: programs that may not be installed, and the command that installs them.
//! - [`howdah_machine::php`]: the PHP series, the same for all stacks; [`ini`]: their common `php.ini`.
//! - [`stack`]: the stacks, by name; each declares the programs that it needs and starts itself.
//! - [`suite`]: a benchmark as data; the five are part of the program.
//! - [`experiment`]: the loop of all comparisons: arms in turns, cells, blocks, journal.
//! - [`suite_runner`]: a suite as an experiment; `suite_page`: its pages that are more than a path; [`budget`]: how long and how often; [`site`]: the served pages;
//!   [`ceiling`]: whether the load tester was the bottleneck.
//! - [`table`]: from windows to rows, with verdicts that `adjust` corrects for their number; [`answer`]: the answers to
//!   the questions of a suite; [`report`]: text, pages and Markdown; [`saved`]: reads saved results.
//! - [`journal`]: a comparison that can be resumed; [`identity`]: the conditions under which it must not be.
//! - [`app_compare`]: the comparison on a user's own application (`--app`); [`url_compare`]: the comparison of servers
//!   that are already running (`howdah bench --vs`).
//! - [`fixture`]: pages, WordPress and the database.
//!
//! Everything runs on loopback, in private directories, without root privileges.

#![forbid(unsafe_code)]

mod adjust;
pub mod answer;
pub mod app_compare;
pub mod budget;
pub mod ceiling;
pub mod error;
pub mod experiment;
pub mod fixture;
pub mod folder;
pub mod identity;
pub mod ini;
pub mod journal;
pub mod need;
pub mod process;
pub mod report;
pub mod saved;
pub mod site;
pub mod stack;
pub mod suite;
mod suite_page;
pub mod suite_runner;
pub mod table;
pub mod url_compare;
pub mod usage;
pub mod versions;

pub use error::LabError;
