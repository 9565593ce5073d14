use super::*;

const BLOCKS: u32 = 12;

/// Returns blocks of varying speed in which the candidate is 6 % faster at each level, give or take 16 %.
fn level(at: u32) -> LevelPairs {
    let wobble = |n: u32| 1.0 + 0.16 * f64::from(i32::try_from(n % 5).unwrap() - 2) / 2.0;
    let blocks = |ratio: f64, by: u32| -> BTreeMap<u32, (f64, f64)> {
        (0..BLOCKS)
            .map(|block| {
                let host = 100.0 * (1.0 + 0.3 * f64::from(block % 4)) / f64::from(at + 1);
                let turn = block * by + at * 2;
                (block, (host, host * ratio * wobble(turn)))
            })
            .collect()
    };
    LevelPairs {
        compared: blocks(1.06, 7),
        control: blocks(1.0, 3),
    }
}

fn alone(level: LevelPairs) -> Judgement {
    judge_all_levels(&[level], JudgementSettings::default()).unwrap()
}

#[test]
fn all_levels_together_show_what_no_single_level_does() {
    let levels: Vec<LevelPairs> = (0..5).map(level).collect();
    let all = judge_all_levels(&levels, JudgementSettings::default()).unwrap();
    assert!(
        matches!(all.verdict, ComparisonVerdict::Faster { .. }),
        "{all:?}"
    );
    assert_eq!(all.pairs.len(), BLOCKS as usize);
    // The ratio of each block is the geometric mean over the levels.
    for (block, ratio) in all.pairs.iter().enumerate() {
        let product: f64 = levels
            .iter()
            .map(|level| level.compared[&(block as u32)])
            .map(|(base, candidate)| candidate / base)
            .product();
        assert!((product.powf(0.2) - ratio).abs() < 1e-9, "{block}");
    }
    // The noise floor is computed from the same mean.
    let floor = all.noise_floor.unwrap();
    for level in (0..5).map(level).map(alone) {
        assert!(floor < level.noise_floor.unwrap(), "{floor} {level:?}");
        let open = matches!(level.verdict, ComparisonVerdict::CannotTell { .. });
        assert!(open, "{level:?}");
    }
}

#[test]
fn blocks_without_all_levels_are_omitted() {
    let mut levels: Vec<LevelPairs> = (0..3).map(level).collect();
    levels[2].compared.remove(&4);
    levels[0].compared.remove(&9);
    let all = judge_all_levels(&levels, JudgementSettings::default()).unwrap();
    assert_eq!(all.pairs.len(), BLOCKS as usize - 2);
    levels[1].compared.retain(|block, _| *block < 1);
    assert!(judge_all_levels(&levels, JudgementSettings::default()).is_none());
}
