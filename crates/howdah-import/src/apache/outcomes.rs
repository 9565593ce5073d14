//! The outcomes of sections that are not carried over as a whole, and of directives that no translator has used.

use super::known;
use crate::directive::Directive;
use crate::ledger::ImportLedger;

/// Puts a section with everything in it on the list.
pub fn list_section(block: &Directive, need: &str, ledger: &ImportLedger) {
    let protects = |d: &Directive| known::restricts_access(d);
    ledger.mark_missing(block.id, need);
    for inner in block.inner() {
        inner.walk(&mut |d| match known::irrelevant_reason(d) {
            _ if ledger.has_outcome(d.id) => {}
            Some(why) => ledger.mark_irrelevant(d.id, why),
            None if protects(d) => {
                ledger.mark_missing_protection(d.id, "its section is not carried over")
            }
            None => ledger.mark_missing(d.id, "its section is not carried over"),
        });
    }
}

/// Gives an outcome to the directives that have none yet: they have no meaning in Howdah, or they are added to the list
/// of missing directives.
pub fn record_remaining_outcomes(tree: &[Directive], ledger: &ImportLedger) {
    for directive in tree {
        if !ledger.has_outcome(directive.id) {
            if let Some((need, protects)) = known::missing_remark(directive)
                && directive.block.is_some()
            {
                list_section(directive, need, ledger);
                if protects {
                    ledger.mark_missing_protection(directive.id, need);
                }
            } else if let Some(why) = known::irrelevant_reason(directive) {
                ledger.mark_irrelevant(directive.id, why);
            } else if let Some((need, protects)) = known::missing_remark(directive) {
                match protects {
                    true => ledger.mark_missing_protection(directive.id, need),
                    false => ledger.mark_missing(directive.id, need),
                }
            } else if known::is_directory_section(directive) {
                directive.walk(&mut |d| {
                    if !ledger.has_outcome(d.id) {
                        ledger.mark_irrelevant(d.id, "no site serves files of this directory");
                    }
                });
            }
        }
        record_remaining_outcomes(directive.inner(), ledger);
    }
}
