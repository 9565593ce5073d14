//! Servers in turns: in blocks, each of which measures every server once. The order within a block
//! is turned round from block to block (AB BA AB BA), so that a steady drift of the machine falls on
//! all alike; with more than two the blocks also begin with another one each time.

use super::Session;
use crate::error::BenchError;
use crate::experiment::{Arm, Comparison, Window};
use crate::plan::Plan;

/// How servers are compared.
#[derive(Clone, Copy, Debug)]
pub struct CompareOptions {
    /// Number of blocks; each gives one pair of every server with the first.
    pub blocks: u32,
    /// Whether to measure the first server once more in every block, as a control: the noise floor.
    pub control: bool,
    /// Differences below this share are "the same".
    pub margin: f64,
    /// Seed of the resampling.
    pub seed: u64,
}

impl Default for CompareOptions {
    fn default() -> Self {
        CompareOptions {
            blocks: 10,
            control: true,
            margin: 0.03,
            seed: 1,
        }
    }
}

/// Measures the plans in turns; the first plan is the base, and each turn is a window. After an
/// interruption it returns the complete windows.
pub fn compare(
    plans: &[Plan],
    options: CompareOptions,
    session: &mut Session<'_>,
) -> Result<Comparison, BenchError> {
    let [base, others @ ..] = plans else {
        return Err(BenchError::Impossible(
            "there is nothing to compare".to_owned(),
        ));
    };
    if options.blocks == 0 {
        return Err(BenchError::Impossible(
            "a comparison of no blocks: ask for at least one pair".to_owned(),
        ));
    }
    let mut arms = vec![(arm("A".to_owned(), base, false), base)];
    for (number, plan) in others.iter().enumerate() {
        arms.push((arm(name(number + 1), plan, false), plan));
    }
    if options.control {
        arms.push((arm("A again".to_owned(), base, true), base));
    }
    for (_, plan) in &arms {
        plan.check()?;
    }
    let of = arms.len() * options.blocks as usize;
    let mut windows = Vec::new();
    'blocks: for block in 0..options.blocks {
        for arm in order(block as usize, arms.len()) {
            let (what, plan) = &arms[arm];
            let number = windows.len() + 1;
            let Some(run) = session.measure(plan, number, Some(of), &what.name)? else {
                break 'blocks;
            };
            windows.push(Window { block, arm, run });
        }
    }
    Ok(Comparison {
        arms: arms.into_iter().map(|(arm, _)| arm).collect(),
        windows,
        margin: options.margin,
        seed: options.seed,
    })
}

/// The name of an arm: `A` to `Z`, then a number.
fn name(index: usize) -> String {
    match u8::try_from(index) {
        Ok(index @ 0..26) => char::from(b'A' + index).to_string(),
        _ => format!("server {}", index + 1),
    }
}

fn arm(name: String, plan: &Plan, control: bool) -> Arm {
    Arm {
        name,
        url: plan
            .targets
            .first()
            .map_or_else(String::new, |t| t.text().to_owned()),
        control,
    }
}

/// The order of the arms in a block: every second block runs backwards, and every second pair of blocks
/// begins one arm further on.
pub fn order(block: usize, arms: usize) -> Vec<usize> {
    let first = block / 2 % arms.max(1);
    let mut order: Vec<usize> = (0..arms).map(|n| (first + n) % arms).collect();
    if block % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_comes_once_in_each_block_and_the_order_turns() {
        assert_eq!(order(0, 3), [0, 1, 2]);
        assert_eq!(order(1, 3), [2, 1, 0]);
        assert_eq!(order(2, 3), [1, 2, 0]);
        assert_eq!(order(3, 3), [0, 2, 1]);
        assert!(order(3, 0).is_empty());
    }

    #[test]
    fn two_arms_take_turns_as_abba() {
        let orders: Vec<Vec<usize>> = (0..4).map(|block| order(block, 2)).collect();
        assert_eq!(orders[0], [0, 1]);
        assert_eq!(orders[1], [1, 0]);
        let firsts = orders.iter().filter(|order| order[0] == 0).count();
        assert_eq!(firsts, 2);
    }

    #[test]
    fn over_a_full_round_every_arm_has_every_place_equally_often() {
        for arms in [2, 3, 4, 5] {
            let mut places = vec![vec![0; arms]; arms];
            for block in 0..2 * arms {
                for (place, arm) in order(block, arms).into_iter().enumerate() {
                    places[arm][place] += 1;
                }
            }
            assert!(places.iter().flatten().all(|n| *n == 2), "{places:?}");
        }
    }
}
