//! A service level objective for a run, such as `p99<100ms,errors<0.1%`. It judges a finished [`Run`] and does no I/O.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::BenchError;
use crate::run::Run;

/// An objective, all of whose terms must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Slo {
    terms: Vec<Term>,
    text: String,
}

/// A term of an objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Term {
    /// This share of the requests (0.99) must have a good response within this time, in seconds.
    Quantile(f64, f64),
    /// The mean latency of good responses must be below this, in seconds.
    Mean(f64),
    /// The share of ended requests that were errors must be below this.
    Errors(f64),
}

impl Slo {
    /// Parses `p99<100ms,errors<0.1%`: terms separated by commas; `pNN` (with a fraction, as p99.9), `max` or `mean`
    /// below a duration (`250us`, `100ms`, `1.5s`), `errors` below a percentage. `<=` is read as `<`.
    pub fn parse(text: &str) -> Result<Slo, BenchError> {
        let terms: Result<Vec<Term>, String> = text.split(',').map(term).collect();
        match terms {
            Ok(terms) => Ok(Slo {
                terms,
                text: text.chars().filter(|c| !c.is_whitespace()).collect(),
            }),
            Err(why) => Err(BenchError::Impossible(format!(
                "`{text}` is not an objective: {why}; an example of an objective is p99<100ms,errors<0.1%"
            ))),
        }
    }

    /// Returns the terms, in the order given.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Returns the terms that the run broke, in words; empty if it held all of them.
    ///
    /// A request that was never sent, or that is still unanswered after longer than the limit, counts against the
    /// percentile because it was not answered in time. Otherwise the worst overload would look best: a server that
    /// answers hardly any requests may answer those quickly.
    pub fn broken_by(&self, run: &Run) -> Vec<String> {
        self.terms
            .iter()
            .filter_map(|term| term.broken_by(run))
            .collect()
    }
}

impl Term {
    fn broken_by(self, run: &Run) -> Option<String> {
        let latency = run.latency();
        match self {
            Term::Quantile(quantile, limit) => {
                let in_time = latency.count_up_to((limit * 1e9) as u64);
                let late = if run.in_flight.oldest > limit {
                    run.in_flight.count + run.in_flight.connecting
                } else {
                    0
                };
                let all = latency.len() + run.unsent + late;
                if all == 0 {
                    return Some("there was no good response".to_owned());
                }
                let share = in_time as f64 / all as f64;
                (share < quantile).then(|| {
                    format!(
                        "only {} of the requests took no longer than {}; the objective is {}",
                        percent(share),
                        duration(limit),
                        percent(quantile)
                    )
                })
            }
            Term::Mean(limit) => {
                let mean = latency.mean() / 1e9;
                (latency.is_empty() || mean >= limit).then(|| {
                    format!(
                        "the mean latency was {}, which is not below {}",
                        duration(mean),
                        duration(limit)
                    )
                })
            }
            Term::Errors(limit) => {
                let share = run.errors() as f64 / run.ended_requests().max(1) as f64;
                (run.ended_requests() == 0 || share >= limit).then(|| {
                    format!(
                        "{} of the requests failed, which is not below {}",
                        percent(share),
                        percent(limit)
                    )
                })
            }
        }
    }
}

fn term(text: &str) -> Result<Term, String> {
    let (name, limit) = text
        .split_once('<')
        .ok_or_else(|| format!("`{}` has no `<`", text.trim()))?;
    let (name, limit) = (name.trim(), limit.strip_prefix('=').unwrap_or(limit).trim());
    match name {
        "errors" => {
            let number = limit
                .strip_suffix('%')
                .ok_or_else(|| format!("`{limit}` is not a percentage"))?;
            let value = positive(number)? / 100.0;
            if value > 1.0 {
                return Err(format!("`{limit}` is over 100 %"));
            }
            Ok(Term::Errors(value))
        }
        "mean" => Ok(Term::Mean(seconds(limit)?)),
        "max" => Ok(Term::Quantile(1.0, seconds(limit)?)),
        _ => {
            let percentile = name
                .strip_prefix('p')
                .and_then(|number| positive(number).ok())
                .filter(|value| *value < 100.0)
                .ok_or_else(|| {
                    format!(
                        "`{name}` is unknown: expected errors, mean, max or a percentile such as p50, p99 or p99.9"
                    )
                })?;
            Ok(Term::Quantile(percentile / 100.0, seconds(limit)?))
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err(format!("`{text}` is not a number above 0")),
    }
}

/// Parses a duration and returns seconds: `250us`, `100ms`, `1.5s`, `2m`, `1h`.
pub fn seconds(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (number, unit) = text.split_at(
        text.find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(text.len()),
    );
    let factor = match unit.trim() {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => {
            return Err(format!(
                "`{text}` is not a duration such as 100ms, 1.5s or 2m"
            ));
        }
    };
    Ok(positive(number)? * factor)
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

fn percent(share: f64) -> String {
    let text = format!("{:.3}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Slo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Slo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Slo::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slo_is_parsed() {
        let slo = Slo::parse(" p99 < 100ms, errors<0.1%,mean<=1.5s,max<2m").unwrap();
        assert_eq!(
            slo.terms,
            [
                Term::Quantile(0.99, 0.1),
                Term::Errors(0.001),
                Term::Mean(1.5),
                Term::Quantile(1.0, 120.0)
            ]
        );
        assert_eq!(slo.to_string(), "p99<100ms,errors<0.1%,mean<=1.5s,max<2m");
    }

    #[test]
    fn slo_errors_have_a_reason() {
        for (text, why) in [
            ("", "has no `<`"),
            ("p99>1s", "has no `<`"),
            ("p99<100", "is not a duration"),
            ("p100<1s", "is unknown"),
            ("q99<1s", "is unknown"),
            ("p99<0ms", "not a number above 0"),
            ("p99<-1ms", "is not a duration"),
            ("errors<1", "is not a percentage"),
            ("errors<200%", "over 100 %"),
            ("errors<x%", "not a number above 0"),
        ] {
            let error = Slo::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
