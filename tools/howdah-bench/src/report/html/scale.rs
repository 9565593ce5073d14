//! The scales of a plot: the position of a value on an axis, and the values that are labelled.

/// Maps values to positions along an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Equal steps have equal lengths.
    Linear {
        /// The value at the axis's start.
        min: f64,
        /// The value at the axis's end.
        max: f64,
    },
    /// Equal factors have equal lengths; both ends are above zero.
    Log {
        /// The value at the axis's start.
        min: f64,
        /// The value at the axis's end.
        max: f64,
    },
}

impl Scale {
    /// Returns a linear scale from zero to a round number at or above the highest value.
    pub fn from_zero(values: impl IntoIterator<Item = f64>) -> Scale {
        let highest = values
            .into_iter()
            .filter(|v| v.is_finite())
            .fold(0.0, f64::max);
        let highest = if highest > 0.0 { highest } else { 1.0 };
        let step = nice_step(highest / 4.0);
        Scale::Linear {
            min: 0.0,
            max: (highest / step - 1e-9).ceil() * step,
        }
    }

    /// Returns a logarithmic scale from half a decade below the lowest value to half a decade above the highest,
    /// rounded to 1, 2 or 5.
    pub fn log_around(values: impl IntoIterator<Item = f64>) -> Scale {
        let mut values = values
            .into_iter()
            .filter(|v| v.is_finite() && *v > 0.0)
            .peekable();
        if values.peek().is_none() {
            return Scale::Log {
                min: 0.1,
                max: 10.0,
            };
        }
        let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
        let min = one_two_five_below(low * 0.9);
        let mut max = one_two_five_below(high);
        while max < high * 1.3 {
            max = next_one_two_five(max);
        }
        while max / min < 9.0 {
            max = next_one_two_five(max);
        }
        Scale::Log { min, max }
    }

    /// Returns the value's position on the axis, as a share of its length: 0 at its start.
    pub fn place(self, value: f64) -> f64 {
        let share = match self {
            Scale::Linear { min, max } => (value - min) / (max - min),
            Scale::Log { min, max } => (value.max(min).ln() - min.ln()) / (max.ln() - min.ln()),
        };
        share.clamp(0.0, 1.0)
    }

    /// Returns the values to label, about `wanted` of them.
    pub fn ticks(self, wanted: usize) -> Vec<f64> {
        match self {
            Scale::Linear { min, max } => {
                let step = nice_step((max - min) / wanted as f64);
                let first = (min / step).ceil() as i64;
                (first..)
                    .map(|i| i as f64 * step)
                    .take_while(|v| *v <= max + step * 1e-6)
                    .collect()
            }
            Scale::Log { min, max } => {
                let mut all = vec![one_two_five_below(min * 1.000_001)];
                while let Some(last) = all.last().copied()
                    && last < max * 0.999_999
                {
                    all.push(next_one_two_five(last));
                }
                all.retain(|v| *v >= min * 0.999_999 && *v <= max * 1.000_001);
                if all.len() > wanted + 2 {
                    // Only powers of ten are kept, and only every second of them if there are still too many.
                    all.retain(|v| (v.log10() - v.log10().round()).abs() < 1e-6);
                }
                while all.len() > wanted + 2 {
                    all = all.into_iter().step_by(2).collect();
                }
                all
            }
        }
    }
}

/// Returns the smallest 1, 2 or 5 times a power of ten that is at least `rough`.
fn nice_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|f| f * power >= rough * 0.999_999)
        .unwrap_or(10.0);
    factor * power
}

fn one_two_five_below(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let factor = [5.0, 2.0, 1.0]
        .into_iter()
        .find(|f| f * power <= value * 1.000_001)
        .unwrap_or(1.0);
    factor * power
}

fn next_one_two_five(value: f64) -> f64 {
    let power = 10f64.powf((value * 1.000_001).log10().floor());
    match value / power {
        f if f < 1.5 => 2.0 * power,
        f if f < 3.0 => 5.0 * power,
        _ => 10.0 * power,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        let scale = Scale::from_zero([0.0, 2412.0]);
        assert_eq!(
            scale,
            Scale::Linear {
                min: 0.0,
                max: 3000.0
            }
        );
        assert_eq!(scale.ticks(5), [0.0, 1000.0, 2000.0, 3000.0]);
        let log = Scale::log_around([1.5, 90.0]);
        assert_eq!(
            log,
            Scale::Log {
                min: 1.0,
                max: 200.0
            }
        );
        assert_eq!(
            log.ticks(8),
            [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]
        );
    }

    #[test]
    fn scale_without_values_exists() {
        assert_eq!(Scale::from_zero([]), Scale::Linear { min: 0.0, max: 1.0 });
        assert!(!Scale::log_around([0.0, f64::NAN]).ticks(5).is_empty());
    }

    #[test]
    fn ticks_of_wide_ranges_are_few() {
        assert!(
            Scale::Log {
                min: 1e-3,
                max: 1e6
            }
            .ticks(4)
            .len()
                <= 6
        );
        assert!(Scale::Linear { min: 0.0, max: 7.0 }.ticks(4).len() <= 6);
    }

    #[test]
    fn scale_clamps_to_its_ends() {
        let scale = Scale::Log {
            min: 1.0,
            max: 100.0,
        };
        assert_eq!(scale.place(0.0), 0.0);
        assert_eq!(scale.place(10.0), 0.5);
        assert_eq!(scale.place(1e9), 1.0);
    }
}
