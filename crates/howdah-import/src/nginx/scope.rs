//! Resolves directives as nginx inherits them: a block without directives of a name uses those of the innermost
//! enclosing block that has any.

use super::variables::{Constants, replace_constants};
use crate::directive::Directive;
use crate::ledger::ImportLedger;

/// A block with its enclosing blocks, the outermost first.
#[derive(Clone, Debug)]
pub struct NginxScope<'a> {
    blocks: Vec<&'a [Directive]>,
}

impl<'a> NginxScope<'a> {
    /// Creates the scope of an outermost block.
    pub fn outermost(directives: &'a [Directive]) -> NginxScope<'a> {
        NginxScope {
            blocks: vec![directives],
        }
    }

    /// Returns the scope of a block within this one.
    pub fn inner(&self, directives: &'a [Directive]) -> NginxScope<'a> {
        let mut blocks = self.blocks.clone();
        blocks.push(directives);
        NginxScope { blocks }
    }

    /// Returns all directives with one of these names in the innermost block that has one.
    pub fn all(&self, names: &[&str]) -> Vec<&'a Directive> {
        let of = |block: &&'a [Directive]| -> Vec<&'a Directive> {
            let block = block.iter();
            block.filter(|d| names.contains(&d.name.as_str())).collect()
        };
        let mut blocks = self.blocks.iter().rev().map(of);
        blocks.find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// Returns the last directive of that name.
    pub fn last(&self, name: &str) -> Option<&'a Directive> {
        self.all(&[name]).pop()
    }

    /// Returns the directives of that name in the innermost block itself.
    pub fn in_own_block(&self, name: &str) -> impl Iterator<Item = &'a Directive> {
        let block = self.blocks.last().copied().unwrap_or_default();
        block.iter().filter(move |d| d.name == name)
    }
}

/// Returns the variables to which `set` gives a single value in these directives, added to `known`.
pub fn set_constants(directives: &[Directive], known: &Constants) -> Constants {
    let mut constants = known.clone();
    for set in directives.iter().filter(|d| d.name == "set") {
        let name = set.arg(0).trim_start_matches('$').to_owned();
        let value = replace_constants(set.arg(1), &constants);
        // A variable that is set twice, or within an `if`, has no single value.
        let again = |d: &&Directive| d.name == "set" && d.arg(0) == set.arg(0);
        let mut several = 0;
        for directive in directives {
            directive.walk(&mut |d| several += usize::from(again(&d)));
        }
        if several == 1 && !value.contains('$') {
            constants.insert(name, value);
        }
    }
    constants
}

/// Returns the variables to which a `map` gives the same value for every input: `map '' $upstream { default php; }`.
pub fn map_constants(directives: &[Directive], ledger: &ImportLedger) -> Constants {
    let mut constants = Constants::new();
    for map in directives.iter().filter(|d| d.name == "map") {
        let [only] = map.inner() else { continue };
        let value = only.arg(0);
        if only.name != "default" || value.contains('$') {
            continue;
        }
        let name = map.arg(1).trim_start_matches('$').to_owned();
        map.walk(&mut |d| ledger.mark_carried(d.id));
        constants.insert(name, value.to_owned());
    }
    constants
}
