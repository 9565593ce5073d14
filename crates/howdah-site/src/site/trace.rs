//! Records the checks of a request while it is routed, and their results, in order, for `howdah explain`. Other
//! requests have no trace, and no text is produced for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Site;
use super::condition::RuleRequest;
use super::config::RuleAction;
use crate::limiter::ClientLimit;

/// The steps of one request.
#[derive(Debug, Default)]
pub struct Trace(Mutex<Vec<TraceStep>>);

/// A check that was made for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceStep {
    /// A pattern of the site's `deny` refuses this path.
    Denied {
        /// The path.
        path: Vec<u8>,
        /// The pattern, as a regular expression.
        pattern: String,
    },
    /// A rule was evaluated.
    Rule {
        /// The rule's position among the site's rules.
        number: usize,
        /// The path that the rule was evaluated for.
        path: Vec<u8>,
        /// The option that keeps the rule from applying to this request; `None` if the rule applies.
        failed_option: Option<&'static str>,
        /// Path and query that a rewrite leads to.
        rewritten_to: Option<Vec<u8>>,
    },
    /// `try_files` or the front controller looked for something.
    Searched {
        /// The entry, or `front_controller`.
        entry: String,
        /// What was found.
        found: String,
    },
    /// `.htaccess` files were evaluated.
    Htaccess {
        /// File, number and text of the line; `None` if no single line decides.
        line: Option<String>,
        /// What the line did, or why it did nothing.
        outcome: String,
    },
    /// The path that was found is refused because of its name, or because authorization is required first.
    NotAdmitted {
        /// The path that was found.
        path: Vec<u8>,
        /// The refusal's name.
        refusal: &'static str,
    },
}

impl Trace {
    fn steps(&self) -> MutexGuard<'_, Vec<TraceStep>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a step.
    pub(super) fn note(&self, step: TraceStep) {
        self.steps().push(step);
    }

    /// Returns all steps so far, in order; the trace is empty afterwards.
    pub fn take(&self) -> Vec<TraceStep> {
        std::mem::take(&mut self.steps())
    }
}

impl RuleRequest<'_> {
    /// Adds a step to the request's trace, if it has one.
    pub(super) fn note(self, step: impl FnOnce() -> TraceStep) {
        if let Some(trace) = self.visitor.trace {
            trace.note(step());
        }
    }

    /// Records that a rule was evaluated.
    pub(super) fn note_rule(self, number: usize, path: &[u8], why_not: Option<&'static str>) {
        self.note(|| TraceStep::Rule {
            number,
            path: path.to_vec(),
            failed_option: why_not,
            rewritten_to: None,
        });
    }

    /// Records the target of the rule that was evaluated last.
    pub(super) fn note_rewrite(self, path: &[u8], query: Option<&[u8]>) {
        let Some(trace) = self.visitor.trace else {
            return;
        };
        let mut steps = trace.steps();
        if let Some(TraceStep::Rule {
            rewritten_to: led_to,
            ..
        }) = steps.last_mut()
        {
            let query = query.map(|query| [b"?", query].concat());
            *led_to = Some([path, &query.unwrap_or_default()].concat());
        }
    }
}

impl Site {
    /// Reduces the steps of limits with a preset to one each. Such a limit is made of many rules; the first step that
    /// applies to the request is kept, or else the first step.
    pub fn deduplicate_preset_steps(&self, steps: Vec<TraceStep>) -> Vec<TraceStep> {
        let mut kept: Vec<TraceStep> = Vec::new();
        for step in steps {
            let Some((limit, matches)) = self.preset_limit_of(&step) else {
                kept.push(step);
                continue;
            };
            let same = |known: &TraceStep| {
                let known = self.preset_limit_of(known);
                known.filter(|(known, _)| Arc::ptr_eq(known, limit))
            };
            match kept.iter().position(|known| same(known).is_some()) {
                Some(at) if matches && same(&kept[at]).is_some_and(|(_, before)| !before) => {
                    kept[at] = step;
                }
                Some(_) => {}
                None => kept.push(step),
            }
        }
        kept
    }

    /// Returns the limit with a preset that a step is about, and whether the rule applies to the request.
    fn preset_limit_of(&self, step: &TraceStep) -> Option<(&Arc<ClientLimit>, bool)> {
        let TraceStep::Rule {
            number,
            failed_option: why_not,
            ..
        } = step
        else {
            return None;
        };
        match &self.config.rules[*number].action {
            RuleAction::Limit(limit) if limit.preset.is_some() => Some((limit, why_not.is_none())),
            _ => None,
        }
    }
}
