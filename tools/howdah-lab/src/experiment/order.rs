//! The order within a block.

/// Returns the order of the items in a block: every second block runs backwards, and every second pair of blocks begins
/// one item further on.
pub(super) fn block_order(block: usize, items: usize) -> Vec<usize> {
    let first = block / 2 % items.max(1);
    let mut order: Vec<usize> = (0..items).map(|n| (first + n) % items).collect();
    if block % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_order_contains_everything_once_and_alternates() {
        assert_eq!(block_order(0, 3), [0, 1, 2]);
        assert_eq!(block_order(1, 3), [2, 1, 0]);
        assert_eq!(block_order(2, 3), [1, 2, 0]);
        assert_eq!(block_order(3, 3), [0, 2, 1]);
        assert!(block_order(3, 0).is_empty());
    }

    #[test]
    fn block_order_of_two_arms_is_abba() {
        let orders: Vec<Vec<usize>> = (0..4).map(|block| block_order(block, 2)).collect();
        assert_eq!(orders[0], [0, 1]);
        assert_eq!(orders[1], [1, 0]);
        let firsts = orders.iter().filter(|order| order[0] == 0).count();
        assert_eq!(firsts, 2);
    }

    #[test]
    fn block_order_gives_every_arm_every_place_equally_often() {
        for arms in [2, 3, 4, 5] {
            let mut places = vec![vec![0; arms]; arms];
            for block in 0..2 * arms {
                for (place, arm) in block_order(block, arms).into_iter().enumerate() {
                    places[arm][place] += 1;
                }
            }
            assert!(places.iter().flatten().all(|n| *n == 2), "{places:?}");
        }
    }
}
