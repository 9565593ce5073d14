//! Reports a run: as text, as files, as a page. This module reads [`crate::run::Run`]s and writes; it measures nothing.
//! [`crate::stats`] decides what a figure means; this module puts it into words.
//!
//! - [`text`]: the report on standard output: ab's fields, then what ab does not say, then [`misled`]: which figure of
//!   ab's would have been wrong in this run, and by how much.
//! - [`ab`]: ab's own arithmetic, for that comparison; [`bottleneck`]: whether the generator was the bottleneck.
//! - [`steadiness`]: how steady the run was.
//! - [`judge`]: a comparison's conditions and figures; [`experiments`]: their text.
//! - [`figures`]: the rows of comparisons; [`columns`]: their columns.
//! - [`gnuplot`], [`percentile_csv`]: ab's `-g` and `-e`; [`html`]: the page with plots.
//! - [`formatting`]: figures with their units.

pub mod ab;
pub mod bottleneck;
pub mod columns;
pub mod experiments;
pub mod figures;
pub mod formatting;
pub mod gnuplot;
pub mod html;
pub mod judge;
pub mod misled;
pub mod percentile_csv;
pub mod replay;
pub mod steadiness;
pub mod text;
