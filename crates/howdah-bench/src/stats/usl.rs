//! The Universal Scalability Law: X(N) = λN / (1 + σ(N−1) + κN(N−1)) (Gunther 1993). λ is the throughput
//! of one client, σ what waits for each other, κ what has to agree with each other; with κ there is a
//! peak at N* = √((1−σ)/κ).
//!
//! N/X is linear in 1/λ, σ/λ and κ/λ, so least squares of relative errors need no starting point and no
//! iteration. The law is about one system getting busier: levels with errors are another system (one
//! that turns requests away), and are not fitted. Where the data do not carry a fit, none is given.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::bootstrap::{self, Interval};

/// Fewest levels of concurrency: three parameters and as many to contradict them.
pub const FEWEST_LEVELS: usize = 6;
/// A typical residual above this is no fit.
const WORST_RESIDUAL: f64 = 0.10;
const RESAMPLES: usize = 1000;

/// One measured window of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Clients.
    pub concurrency: f64,
    /// Good responses per second.
    pub good_rate: f64,
    /// Errors per request, 0 to 1.
    pub error_share: f64,
}

/// A fitted law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// Responses per second of a single client.
    pub lambda: f64,
    /// Contention, 0 to 1.
    pub sigma: f64,
    /// Coherency.
    pub kappa: f64,
    /// 95 % interval of `kappa`.
    pub kappa_interval: Interval,
    /// Typical relative error of the fit, 0.03 is 3 %.
    pub residual: f64,
    /// The highest level fitted.
    pub up_to: f64,
    /// Where throughput peaks; `None` if no peak is seen up to `up_to`.
    pub peak: Option<Peak>,
}

/// Where a law peaks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// Clients.
    pub concurrency: f64,
    /// Responses per second there.
    pub rate: f64,
}

/// Why no law was fitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Refusal {
    /// Not enough levels without errors.
    TooFewLevels {
        /// How many there are.
        levels: usize,
        /// How many were left out for their errors.
        with_errors: usize,
    },
    /// The lowest level is already beyond what one client does, so λ would be a guess.
    NoLowLevel {
        /// The lowest level.
        lowest: f64,
    },
    /// The points do not lie on such a curve.
    NoFit {
        /// Typical relative error.
        residual: f64,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::TooFewLevels {
                levels,
                with_errors: 0,
            } => write!(
                f,
                "no scalability law fitted: {levels} levels of concurrency, {FEWEST_LEVELS} are needed"
            ),
            Refusal::TooFewLevels {
                levels,
                with_errors,
            } => write!(
                f,
                "no scalability law fitted: {levels} levels without errors, {FEWEST_LEVELS} are needed \
                 ({with_errors} had errors, which is turning requests away, not scaling)"
            ),
            Refusal::NoLowLevel { lowest } => write!(
                f,
                "no scalability law fitted: the lowest level is {lowest:.0} clients; add 1, 2 and 4"
            ),
            Refusal::NoFit { residual } => write!(
                f,
                "no scalability law fitted: the points are typically {:.0} % off any such curve",
                residual * 100.0
            ),
        }
    }
}

impl Fit {
    /// Throughput at a level.
    pub fn rate(&self, concurrency: f64) -> f64 {
        let n = concurrency;
        self.lambda * n / (1.0 + self.sigma * (n - 1.0) + self.kappa * n * (n - 1.0))
    }
}

/// Fits the law to the points without errors. `cores`: of the server, as far as known; a level at or
/// below it (or 4) is needed to know λ.
pub fn fit(points: &[Point], cores: f64, seed: u64) -> Result<Fit, Refusal> {
    let (clean, dirty): (Vec<Point>, Vec<Point>) = points
        .iter()
        .partition(|p| p.error_share == 0.0 && p.good_rate > 0.0 && p.concurrency >= 1.0);
    let levels = distinct(&clean);
    if levels.len() < FEWEST_LEVELS {
        return Err(Refusal::TooFewLevels {
            levels: levels.len(),
            with_errors: distinct(&dirty).len(),
        });
    }
    if levels[0] > cores.max(4.0) {
        return Err(Refusal::NoLowLevel { lowest: levels[0] });
    }
    let everything: Vec<&Point> = clean.iter().collect();
    let bad = || Refusal::NoFit { residual: 1.0 };
    let (lambda, sigma, kappa) = solve(&everything).ok_or_else(bad)?;
    let mut fit = Fit {
        lambda,
        sigma,
        kappa,
        kappa_interval: Interval {
            low: 0.0,
            high: 0.0,
        },
        residual: 0.0,
        up_to: levels[levels.len() - 1],
        peak: None,
    };
    let squares: f64 = clean
        .iter()
        .map(|p| (fit.rate(p.concurrency) / p.good_rate - 1.0).powi(2))
        .sum();
    fit.residual = (squares / (clean.len() - 3) as f64).sqrt();
    if fit.residual > WORST_RESIDUAL {
        return Err(Refusal::NoFit {
            residual: fit.residual,
        });
    }
    fit.kappa_interval = kappa_interval(&clean, &fit, seed).ok_or_else(bad)?;
    // A peak is claimed only where κ is surely not zero and the peak was passed, not foretold.
    let at = ((1.0 - sigma) / kappa).sqrt();
    if fit.kappa_interval.low > 0.0 && sigma < 1.0 && at < fit.up_to {
        fit.peak = Some(Peak {
            concurrency: at,
            rate: fit.rate(at),
        });
    }
    Ok(fit)
}

fn distinct(points: &[Point]) -> Vec<f64> {
    let mut levels: Vec<f64> = points.iter().map(|p| p.concurrency).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    levels
}

/// Resamples the residuals around the fitted curve: resampling points would lose whole levels.
fn kappa_interval(points: &[Point], fit: &Fit, seed: u64) -> Option<Interval> {
    let inflate = (points.len() as f64 / (points.len() - 3) as f64).sqrt();
    let residuals: Vec<f64> = points
        .iter()
        .map(|p| (p.good_rate / fit.rate(p.concurrency)).ln() * inflate)
        .collect();
    bootstrap::interval(&residuals, 0.95, RESAMPLES, seed, |drawn| {
        let again: Vec<Point> = points
            .iter()
            .zip(drawn)
            .map(|(p, residual)| Point {
                good_rate: fit.rate(p.concurrency) * residual.exp(),
                ..*p
            })
            .collect();
        // Unconstrained, or κ = 0 would pile up at the border and never be left of it.
        let [a, _, c] = least_squares(&again.iter().collect::<Vec<_>>(), [true; 3])?;
        Some(c / a)
    })
}

/// λ, σ, κ by least squares of relative errors; σ and κ not below zero.
fn solve(points: &[&Point]) -> Option<(f64, f64, f64)> {
    for keep in [
        [true, true, true],
        [true, true, false],
        [true, false, true],
        [true, false, false],
    ] {
        let Some([a, b, c]) = least_squares(points, keep) else {
            continue;
        };
        if a > 0.0 && b >= 0.0 && c >= 0.0 {
            return Some((1.0 / a, b / a, c / a));
        }
    }
    None
}

/// Minimises Σ ((a + b(N−1) + cN(N−1)) · X/N − 1)² over the parameters kept.
fn least_squares(points: &[&Point], keep: [bool; 3]) -> Option<[f64; 3]> {
    let mut matrix = [[0.0; 4]; 3];
    for point in points {
        let n = point.concurrency;
        let weight = point.good_rate / n;
        let row = [weight, (n - 1.0) * weight, n * (n - 1.0) * weight];
        for i in 0..3 {
            for j in 0..3 {
                matrix[i][j] += row[i] * row[j];
            }
            matrix[i][3] += row[i];
        }
    }
    for i in 0..3 {
        if !keep[i] {
            matrix[i] = [0.0; 4];
            matrix.iter_mut().for_each(|row| row[i] = 0.0);
            matrix[i][i] = 1.0;
        }
    }
    gauss(matrix)
}

/// Solves three equations with pivoting; `None` if they do not determine a solution. Columns are
/// scaled first: N(N−1) and 1 are six orders of magnitude apart.
fn gauss(mut m: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    let scale = [m[0][0].sqrt(), m[1][1].sqrt(), m[2][2].sqrt()];
    if scale.iter().any(|s| !(s.is_finite() && *s > 0.0)) {
        return None;
    }
    for i in 0..3 {
        for j in 0..3 {
            m[i][j] /= scale[i] * scale[j];
        }
        m[i][3] /= scale[i];
    }
    for column in 0..3 {
        let pivot =
            (column..3).max_by(|a, b| m[*a][column].abs().total_cmp(&m[*b][column].abs()))?;
        m.swap(column, pivot);
        if m[column][column].abs() < 1e-12 {
            return None;
        }
        let above = m[column];
        for row in m.iter_mut().skip(column + 1) {
            let factor = row[column] / above[column];
            for (value, from) in row.iter_mut().zip(above).skip(column) {
                *value -= factor * from;
            }
        }
    }
    let mut x = [0.0; 3];
    for row in (0..3).rev() {
        let known: f64 = (row + 1..3).map(|j| m[row][j] * x[j]).sum();
        x[row] = (m[row][3] - known) / m[row][row];
    }
    Some([x[0] / scale[0], x[1] / scale[1], x[2] / scale[2]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::template::Random;
    use crate::stats::normal;

    const LEVELS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 500.0];

    fn sample(lambda: f64, sigma: f64, kappa: f64, noise: f64) -> Vec<Point> {
        let mut random = Random::new(21, 0);
        let mut points = Vec::new();
        for _ in 0..3 {
            for n in LEVELS {
                let rate = lambda * n / (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0));
                points.push(Point {
                    concurrency: n,
                    good_rate: rate * (noise * normal(&mut random)).exp(),
                    error_share: 0.0,
                });
            }
        }
        points
    }

    #[test]
    fn known_parameters_are_found_again() {
        let fit = fit(&sample(1000.0, 0.05, 0.0002, 0.02), 2.0, 1).unwrap();
        assert!((fit.lambda / 1000.0 - 1.0).abs() < 0.05, "{fit:?}");
        assert!((fit.sigma - 0.05).abs() < 0.01, "{fit:?}");
        assert!((fit.kappa / 0.0002 - 1.0).abs() < 0.2, "{fit:?}");
        let peak = fit.peak.unwrap();
        assert!((60.0..80.0).contains(&peak.concurrency), "{fit:?}");
    }

    #[test]
    fn without_noise_the_fit_is_exact() {
        let fit = fit(&sample(250.0, 0.1, 0.001, 0.0), 2.0, 1).unwrap();
        assert!((fit.lambda - 250.0).abs() < 1e-6 && (fit.kappa - 0.001).abs() < 1e-9);
    }

    #[test]
    fn a_flat_curve_has_no_peak() {
        let fit = fit(&sample(50.0, 0.5, 0.0, 0.02), 2.0, 1).unwrap();
        assert_eq!(fit.peak, None, "{fit:?}");
    }

    #[test]
    fn levels_with_errors_are_not_fitted() {
        let mut points = sample(1000.0, 0.05, 0.0, 0.01);
        for point in &mut points {
            if point.concurrency > 16.0 {
                point.error_share = 0.86;
            }
        }
        let refusal = fit(&points, 2.0, 1).unwrap_err();
        assert_eq!(
            refusal,
            Refusal::TooFewLevels {
                levels: 5,
                with_errors: 5
            }
        );
        assert!(refusal.to_string().contains("turning requests away"));
    }

    #[test]
    fn a_sweep_that_starts_at_ten_does_not_know_one_client() {
        let points: Vec<Point> = sample(1000.0, 0.05, 0.0001, 0.0)
            .into_iter()
            .map(|p| Point {
                concurrency: p.concurrency + 9.0,
                ..p
            })
            .collect();
        assert!(matches!(
            fit(&points, 2.0, 1),
            Err(Refusal::NoLowLevel { lowest }) if lowest == 10.0
        ));
    }

    #[test]
    fn noise_is_no_law() {
        let mut random = Random::new(22, 0);
        let points: Vec<Point> = sample(1000.0, 0.05, 0.0001, 0.0)
            .into_iter()
            .map(|p| Point {
                good_rate: 5000.0 * (0.8 * normal(&mut random)).exp(),
                ..p
            })
            .collect();
        assert!(matches!(fit(&points, 2.0, 1), Err(Refusal::NoFit { .. })));
    }
}
