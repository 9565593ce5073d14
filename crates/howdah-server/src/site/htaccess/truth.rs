//! Whether a condition holds, where it may depend on what is not known here: who the visitor is, or
//! what a line means. Pure.
//!
//! A value that is not certain still has an answer for a *stranger*: a visitor who is on no list, has
//! no password and no variable set. Combined as in Kleene's three-valued logic.

/// See the file's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Truth {
    /// The answer for a stranger.
    pub stranger: bool,
    /// It is everybody's answer.
    pub certain: bool,
}

impl Truth {
    pub(super) const YES: Truth = Truth::known(true);
    pub(super) const NO: Truth = Truth::known(false);

    pub(super) const fn known(holds: bool) -> Truth {
        Truth {
            stranger: holds,
            certain: true,
        }
    }

    /// Depends on the visitor; this is the answer for a stranger.
    pub(super) const fn depends(stranger: bool) -> Truth {
        Truth {
            stranger,
            certain: false,
        }
    }

    pub(super) fn is_yes(self) -> bool {
        self == Truth::YES
    }

    pub(super) fn is_no(self) -> bool {
        self == Truth::NO
    }

    pub(super) fn and(self, other: Truth) -> Truth {
        if self.is_no() || other.is_no() {
            return Truth::NO;
        }
        Truth {
            stranger: self.stranger && other.stranger,
            certain: self.certain && other.certain,
        }
    }

    pub(super) fn or(self, other: Truth) -> Truth {
        self.not().and(other.not()).not()
    }

    pub(super) fn not(self) -> Truth {
        Truth {
            stranger: !self.stranger,
            certain: self.certain,
        }
    }

    /// A stranger's answer taken for everybody's.
    pub(super) fn as_for_a_stranger(self) -> Truth {
        Truth::known(self.stranger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_certain_on_one_side_may_decide_alone() {
        let (listed, stranger) = (Truth::depends(false), Truth::depends(true));
        assert_eq!(Truth::NO.and(stranger), Truth::NO);
        assert_eq!(Truth::YES.or(listed), Truth::YES);
        assert_eq!(Truth::YES.and(listed), listed);
        assert_eq!(Truth::NO.or(stranger), stranger);
        assert_eq!(listed.or(stranger), stranger);
        assert_eq!(listed.not(), stranger);
        assert_eq!(listed.as_for_a_stranger(), Truth::NO);
    }
}
