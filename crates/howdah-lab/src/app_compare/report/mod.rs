//! Reports a comparison on a user's own application: on a terminal, and as a page. Decides nothing.

pub mod html;
pub mod text;

use super::advise::Question;

/// The heading of a question.
pub fn heading(question: Question) -> &'static str {
    match question {
        Question::Mode => "Mode",
        Question::Children => "Children",
        Question::Cache => "Page cache",
        Question::Rival => "Compared with the best rival",
    }
}
