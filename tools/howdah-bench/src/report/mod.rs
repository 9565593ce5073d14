//! Reports a run: as text, as files, as a page. This module reads [`crate::build::Run`]s and writes; it measures nothing.
//! [`crate::stats`] decides what a figure means; this module puts it into words.
//!
//! - [`text`]: the report on standard output: ab's fields, then what ab does not say, then [`misled`]: which figure of
//!   ab's would have been wrong in this run, and by how much.
//! - [`ab`]: ab's own arithmetic, for that comparison; [`bottleneck`]: whether the generator was the bottleneck.
//! - [`steadiness`]: how steady the run was.
//! - [`judge`]: a comparison's conditions and figures; [`experiments`]: their text.
//! - [`figures`]: the rows of comparisons; [`columns`]: their columns.
//! - [`gnuplot`], [`percentile_csv`]: ab's `-g` and `-e`; [`csv`], [`hdr_log`]: files for other tools.
//! - [`html`]: the page with plots; [`k6`]: the load as a script for k6.
//! - [`words`]: figures with their units.

pub mod ab;
pub mod bottleneck;
pub mod columns;
pub mod csv;
pub mod experiments;
pub mod figures;
pub mod formatting;
pub mod gnuplot;
pub mod hdr_log;
pub mod html;
pub mod judge;
pub mod k6;
pub mod misled;
pub mod percentile_csv;
pub mod steadiness;
pub mod text;
