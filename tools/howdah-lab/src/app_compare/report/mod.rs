//! Reports a comparison on a user's own application: on a terminal, and as a page. This module decides nothing.

pub mod html;
pub mod text;

use super::advise::AppQuestion;

/// Returns the heading of a question.
pub fn heading(question: AppQuestion) -> &'static str {
    match question {
        AppQuestion::Mode => "Mode",
        AppQuestion::Children => "Children",
        AppQuestion::Cache => "Page cache",
        AppQuestion::Jit => "JIT compiler",
        AppQuestion::Rival => "Compared with the best rival",
    }
}
