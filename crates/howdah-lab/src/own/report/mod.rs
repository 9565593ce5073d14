//! How a comparison on one's own application is told: on a terminal, and as a page. Decides nothing.

pub mod html;
pub mod text;

use super::advise::Question;

/// A question, as a heading.
pub fn heading(question: Question) -> &'static str {
    match question {
        Question::Mode => "Mode",
        Question::Children => "Children",
        Question::Cache => "Page cache",
        Question::Rival => "Beside the best rival",
    }
}
