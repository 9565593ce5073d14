//! Table versions: a page that is known to be made of some tables is old when one of these was written
//! to since before its render began, and through all other writes it stays. Any other page is old after
//! every write.
//!
//! Versions are [`crate::generation`]'s numbers, and no store of their own: a page carries a tag for each
//! table, or one that says that nothing is known, and a write is a purge of two tags, the table's and that
//! one. So all that holds for purges holds for them: no page is searched for, a render that began before
//! is discarded, what is written down outlives the process, and when there are more names than are
//! remembered, more is old, never less.

use crate::generation::{Force, Generations, Purge};
use crate::pass::Pass;
use crate::policy::Storable;

/// Begins tags of tables: no field can carry it, and a script that gives a page such a tag has its own
/// page old more often.
const TABLE: &[u8] = b"\x01table ";
/// The tag of pages of which it is not known what they are made of.
const UNKNOWN: &[u8] = b"\x01any table";

fn tag_of(table: &[u8]) -> Vec<u8> {
    [TABLE, table].concat()
}

/// What a page is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MadeOf {
    /// These tables, and nothing else that is written to in any other way; in small letters.
    Tables(Vec<Vec<u8>>),
    /// Nobody knows.
    Unknown,
}

impl MadeOf {
    /// Gives a page that is to be stored the tags for it.
    pub fn tag(&self, storable: &mut Storable) -> Result<(), Pass> {
        match self {
            MadeOf::Tables(tables) => tables
                .iter()
                .try_for_each(|table| storable.tag(&tag_of(table))),
            MadeOf::Unknown => storable.tag(UNKNOWN),
        }
    }
}

/// Makes pages old that are made of a table, or of nobody knows what. Its name is in small letters.
pub fn written(generations: &Generations, table: &[u8]) {
    generations.purge(&Purge::Tag(tag_of(table)), Force::Hard);
    generations.purge(&Purge::Tag(UNKNOWN.to_vec()), Force::Hard);
}

/// The tables of those a page was made of that were written to since it was born.
pub fn written_since<'t>(
    generations: &Generations,
    born: u64,
    tables: &'t [Vec<u8>],
) -> Vec<&'t [u8]> {
    let since = |table: &&Vec<u8>| generations.last_of_tag(&tag_of(table)) > born;
    tables
        .iter()
        .filter(since)
        .map(|table| &table[..])
        .collect()
}

/// Whether a tag is one of these, and no name an application gave.
pub fn is_one(tag: &[u8]) -> bool {
    tag.starts_with(TABLE) || tag == UNKNOWN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::Validity;
    use crate::policy::Rules;
    use crate::policy::response::{ResponseFacts, judge};

    fn tags(made_of: &MadeOf) -> Vec<Vec<u8>> {
        let facts = ResponseFacts {
            status: 200,
            fields: &[],
            authorized: false,
            requested: 0,
            received: 0,
            effect: None,
        };
        let mut storable = judge(&facts, &Rules::default()).unwrap();
        made_of.tag(&mut storable).unwrap();
        storable.tags().to_vec()
    }

    #[test]
    fn a_page_is_old_after_a_write_to_a_table_it_is_made_of_and_after_any_if_nothing_is_known() {
        let known = tags(&MadeOf::Tables(vec![b"posts".to_vec(), b"users".to_vec()]));
        let nothing = tags(&MadeOf::Tables(Vec::new()));
        let unknown = tags(&MadeOf::Unknown);
        let generations = Generations::default();
        let born = generations.now();
        let valid = |tags: &[Vec<u8>]| generations.judge(born, b"/a", tags) == Validity::Valid;
        assert!(valid(&known) && valid(&nothing) && valid(&unknown));
        written(&generations, b"logs");
        assert!(valid(&known) && valid(&nothing) && !valid(&unknown));
        written(&generations, b"users");
        assert!(!valid(&known) && valid(&nothing));
        generations.purge(&Purge::All, Force::Hard);
        assert!(!valid(&nothing));
    }

    #[test]
    fn the_tables_that_made_a_page_old_are_told() {
        let generations = Generations::default();
        written(&generations, b"a");
        let born = generations.now();
        written(&generations, b"b");
        let tables = [b"a".to_vec(), b"b".to_vec(), b"c".to_vec()];
        assert_eq!(written_since(&generations, born, &tables), [b"b"]);
    }
}
