//! The result of "which is faster?": one of four verdicts or `Invalid`, and its sentence. This module only formats; it
//! decides nothing.
//!
//! Each reason for `Invalid` has one name, which is the same in the text, the JSON (`kebab-case`) and `docs/bench.md`.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

/// The result of a comparison. Percentages are relative to the slower server: "faster by 10 %" is a ratio of 1.10.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, IntoStaticStr)]
#[serde(tag = "is", rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ComparisonVerdict {
    /// The candidate is faster.
    Faster {
        /// By how many per cent the candidate is faster.
        by: f64,
        /// The lower bound of `by`, at the confidence level of the comparison.
        low: f64,
        /// The upper bound of `by`.
        high: f64,
    },
    /// The base is faster.
    Slower {
        /// By how many per cent the base is faster.
        by: f64,
        /// The lower bound of `by`.
        low: f64,
        /// The upper bound of `by`.
        high: f64,
    },
    /// The interval lies within the margin: the servers are equally fast.
    Same {
        /// The margin, in per cent.
        within: f64,
    },
    /// The interval contains both "no difference" and "a difference that counts".
    CannotTell {
        /// About how many more pairs would decide it; `None` if more than a thousand.
        more_pairs: Option<usize>,
    },
    /// The figures may not be compared.
    Invalid {
        /// All reasons why the figures may not be compared.
        because: Vec<InvalidReason>,
    },
}

/// One of the two arms of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComparisonSide {
    /// The server that the candidate is compared with.
    Base,
    /// The server that is compared with the base.
    Candidate,
}

/// Why figures may not be compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(tag = "reason", rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum InvalidReason {
    /// Over 0.1 % of an arm's responses were errors.
    ErrorRates {
        /// The errors per request of the base, 0 to 1.
        base: f64,
        /// The errors per request of the candidate, 0 to 1.
        candidate: f64,
    },
    /// A check refused bodies that an arm sent.
    WrongBodies {
        /// How many bodies of the base were refused.
        base: u64,
        /// How many bodies of the candidate were refused.
        candidate: u64,
    },
    /// One arm kept connections open and the other did not.
    KeepAliveDiffers {
        /// The share of the base's responses after which the connection was used again, 0 to 1.
        base: f64,
        /// The same share of the candidate's responses.
        candidate: f64,
    },
    /// The arms spoke different versions of HTTP.
    ProtocolDiffers {
        /// The version that the base spoke.
        base: String,
        /// The version that the candidate spoke.
        candidate: String,
    },
    /// The load tester was the bottleneck, so both figures describe the load tester.
    GeneratorBound {
        /// A sentence with the evidence.
        evidence: String,
    },
    /// Other programs, or other guests of the machine, used the processors during the measurement.
    ForeignLoad {
        /// The share of processor time that they took, 0 to 1.
        share: f64,
    },
    /// An arm was still warming up when it was measured.
    NotSteady {
        /// The arm that was not steady.
        arm: ComparisonSide,
        /// In how many of its windows it was warming up.
        warming: usize,
        /// How many windows it had.
        of: usize,
    },
    /// The same server compared with itself gave a difference, so the method does not work on this machine.
    ControlDiffers {
        /// By how many per cent the two differ.
        by: f64,
    },
    /// An arm had no good response in at least one window.
    NothingGood {
        /// The arm without a good response.
        arm: ComparisonSide,
    },
    /// The plans of the runs differ in more than their targets.
    PlansDiffer {
        /// The difference, in words.
        what: String,
    },
}

impl InvalidReason {
    /// The names of all reasons, in the order of the documentation.
    pub const NAMES: &'static [&'static str] = InvalidReason::VARIANTS;

    /// Returns the reason's name in the text, the JSON and the documentation.
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

impl InvalidReason {
    /// Returns the reason in words, with the names of the arms.
    pub fn sentence(&self, base: &str, candidate: &str) -> String {
        let named = |arm: ComparisonSide| match arm {
            ComparisonSide::Base => base,
            ComparisonSide::Candidate => candidate,
        };
        match self {
            InvalidReason::ErrorRates {
                base: a,
                candidate: b,
            } => format!(
                "{} of {base}'s and {} of {candidate}'s responses were errors",
                percent(*a),
                percent(*b)
            ),
            InvalidReason::WrongBodies {
                base: a,
                candidate: b,
            } => format!("the checks refused {a} bodies of {base} and {b} of {candidate}"),
            InvalidReason::KeepAliveDiffers {
                base: a,
                candidate: b,
            } => format!(
                "{base} kept its connections open after {} of its responses, and {candidate} after {}",
                percent(*a),
                percent(*b)
            ),
            InvalidReason::ProtocolDiffers {
                base: a,
                candidate: b,
            } => format!("{base} used {a} and {candidate} used {b}"),
            InvalidReason::GeneratorBound { evidence } => {
                format!("the load tester was the bottleneck ({evidence})")
            }
            InvalidReason::ForeignLoad { share } => {
                format!(
                    "other programs used {} of the processors during the measurement",
                    percent(*share)
                )
            }
            InvalidReason::NotSteady { arm, warming, of } => format!(
                "{} was still warming up in {warming} of {of} windows",
                named(*arm)
            ),
            InvalidReason::ControlDiffers { by } => format!(
                "two measurements of {base} differed by {by:.1} %, so a difference of that size proves nothing on \
                 this machine"
            ),
            InvalidReason::NothingGood { arm } => format!(
                "{} had a window without a single good response",
                named(*arm)
            ),
            InvalidReason::PlansDiffer { what } => {
                format!("the runs had different settings: {what}")
            }
        }
    }
}

/// Formats a share as a percentage with as many digits as matter.
fn percent(share: f64) -> String {
    let value = share * 100.0;
    match value {
        0.0 => "0 %".into(),
        v if v < 0.095 => format!("{v:.2} %"),
        v if v < 9.95 => format!("{v:.1} %"),
        v => format!("{v:.0} %"),
    }
}

impl ComparisonVerdict {
    /// Returns the verdict as a sentence, with the names of the arms.
    pub fn sentence(&self, base: &str, candidate: &str) -> String {
        let faster = |winner: &str, loser: &str, by: f64, low: f64, high: f64| {
            format!("{winner} is faster than {loser} by {by:.1} % [{low:.1}, {high:.1}]")
        };
        match self {
            ComparisonVerdict::Faster { by, low, high } => {
                faster(candidate, base, *by, *low, *high)
            }
            ComparisonVerdict::Slower { by, low, high } => {
                faster(base, candidate, *by, *low, *high)
            }
            ComparisonVerdict::Same { within } => {
                format!("{base} and {candidate} are the same within ±{within:.1} %")
            }
            ComparisonVerdict::CannotTell {
                more_pairs: Some(more),
            } => format!(
                "cannot tell {base} and {candidate} apart yet: about {more} more {} needed",
                if *more == 1 { "pair is" } else { "pairs are" }
            ),
            ComparisonVerdict::CannotTell { more_pairs: None } => format!(
                "cannot tell {base} and {candidate} apart on this machine: over a thousand more pairs are needed"
            ),
            ComparisonVerdict::Invalid { because } => {
                let reasons: Vec<String> = because
                    .iter()
                    .map(|why| why.sentence(base, candidate))
                    .collect();
                format!("invalid because {}", reasons.join("; and "))
            }
        }
    }

    /// Returns the verdict's name, as in the JSON.
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_sentence_begins_with_the_faster_arm() {
        let faster = ComparisonVerdict::Faster {
            by: 10.04,
            low: 8.0,
            high: 12.0,
        };
        assert_eq!(
            faster.sentence("fpm", "howdah"),
            "howdah is faster than fpm by 10.0 % [8.0, 12.0]"
        );
        let slower = ComparisonVerdict::Slower {
            by: 3.5,
            low: 3.1,
            high: 4.0,
        };
        assert_eq!(
            slower.sentence("fpm", "howdah"),
            "fpm is faster than howdah by 3.5 % [3.1, 4.0]"
        );
    }

    #[test]
    fn invalid_reasons_have_sentences() {
        let invalid = ComparisonVerdict::Invalid {
            because: vec![
                InvalidReason::ErrorRates {
                    base: 0.8603,
                    candidate: 0.0195,
                },
                InvalidReason::KeepAliveDiffers {
                    base: 0.0,
                    candidate: 1.0,
                },
            ],
        };
        assert_eq!(
            invalid.sentence("fpm", "C"),
            "invalid because 86 % of fpm's and 1.9 % of C's responses were errors; and fpm kept \
             its connections open after 0 % of its responses, and C after 100 %"
        );
    }

    #[test]
    fn invalid_reason_has_one_name() {
        let all = [
            InvalidReason::ErrorRates {
                base: 0.0,
                candidate: 0.0,
            },
            InvalidReason::WrongBodies {
                base: 1,
                candidate: 0,
            },
            InvalidReason::KeepAliveDiffers {
                base: 0.0,
                candidate: 0.0,
            },
            InvalidReason::ProtocolDiffers {
                base: String::new(),
                candidate: String::new(),
            },
            InvalidReason::GeneratorBound {
                evidence: String::new(),
            },
            InvalidReason::ForeignLoad { share: 0.0 },
            InvalidReason::NotSteady {
                arm: ComparisonSide::Base,
                warming: 0,
                of: 0,
            },
            InvalidReason::ControlDiffers { by: 0.0 },
            InvalidReason::NothingGood {
                arm: ComparisonSide::Base,
            },
            InvalidReason::PlansDiffer {
                what: String::new(),
            },
        ];
        let names: Vec<&str> = all.iter().map(InvalidReason::name).collect();
        assert_eq!(names, InvalidReason::NAMES);
        for reason in all {
            let json = serde_json::to_value(&reason).unwrap();
            assert_eq!(json["reason"], reason.name());
        }
    }
}
