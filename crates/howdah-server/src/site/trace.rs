//! What was asked about a request while it was routed and what came of it, in order, for `howdah
//! explain`. Other requests have no trace: then nothing is put into words.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Site;
use super::condition::Requested;
use super::config::RuleAction;
use crate::limiter::Limit;

/// The steps of one request.
#[derive(Debug, Default)]
pub struct Trace(Mutex<Vec<Step>>);

/// Something that was asked about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A pattern of the site's `deny` refuses this path.
    Denied {
        /// The path.
        path: Vec<u8>,
        /// The pattern, as a regular expression.
        pattern: String,
    },
    /// A rule was asked.
    Rule {
        /// Its place among the site's rules.
        number: usize,
        /// The path that it was asked about.
        path: Vec<u8>,
        /// The option that keeps the rule from this request; none: the rule is for it.
        why_not: Option<&'static str>,
        /// Path and query that a rewrite has led to.
        led_to: Option<Vec<u8>>,
    },
    /// `try_files` or the front controller looked for something.
    Searched {
        /// The entry, or `front_controller`.
        entry: String,
        /// What was found.
        found: String,
    },
    /// `.htaccess` files were asked.
    Htaccess {
        /// File, number and text of the line; none where no line decides.
        line: Option<String>,
        /// What it has done, or why it has done nothing.
        said: String,
    },
    /// What was found is refused by its name, or because somebody has to be asked first.
    NotAdmitted {
        /// The path that was found.
        path: Vec<u8>,
        /// The refusal's name.
        refusal: &'static str,
    },
}

impl Trace {
    fn steps(&self) -> MutexGuard<'_, Vec<Step>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a step.
    pub(super) fn note(&self, step: Step) {
        self.steps().push(step);
    }

    /// All steps so far, in order; the trace is empty afterwards.
    pub fn take(&self) -> Vec<Step> {
        std::mem::take(&mut self.steps())
    }
}

impl Requested<'_> {
    /// Adds a step to the request's trace, if it has one.
    pub(super) fn note(self, step: impl FnOnce() -> Step) {
        if let Some(trace) = self.visitor.trace {
            trace.note(step());
        }
    }

    /// Notes that a rule was asked.
    pub(super) fn note_rule(self, number: usize, path: &[u8], why_not: Option<&'static str>) {
        self.note(|| Step::Rule {
            number,
            path: path.to_vec(),
            why_not,
            led_to: None,
        });
    }

    /// Notes where the rule that was asked last leads.
    pub(super) fn note_rewrite(self, path: &[u8], query: Option<&[u8]>) {
        let Some(trace) = self.visitor.trace else {
            return;
        };
        let mut steps = trace.steps();
        if let Some(Step::Rule { led_to, .. }) = steps.last_mut() {
            let query = query.map(|query| [b"?", query].concat());
            *led_to = Some([path, &query.unwrap_or_default()].concat());
        }
    }
}

impl Site {
    /// A limit that knows its requests by itself has many rules: of their steps the first that is for the
    /// request is kept, or the first.
    pub(crate) fn steps_once(&self, steps: Vec<Step>) -> Vec<Step> {
        let mut kept: Vec<Step> = Vec::new();
        for step in steps {
            let Some((limit, matches)) = self.of_preset(&step) else {
                kept.push(step);
                continue;
            };
            let same = |known: &Step| {
                let known = self.of_preset(known);
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

    /// The limit that a step is about, and whether that is for the request.
    fn of_preset(&self, step: &Step) -> Option<(&Arc<Limit>, bool)> {
        let Step::Rule {
            number, why_not, ..
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
