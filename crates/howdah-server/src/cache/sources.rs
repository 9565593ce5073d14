//! What one run reads and writes, as it tells it: enough to know whether its page is made of tables
//! alone, and whether all it changed for others was in tables. A run that has not said it is tracked, or
//! that went beyond, may have done anything.

use std::mem;

use howdah_cache::tables::MadeOf;

/// Most tables that are remembered of a run, read or written.
const MAX_TABLES: usize = 64;

/// What a run has written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Written {
    /// Nothing that changes a page.
    #[default]
    Nothing,
    /// These tables.
    Tables(Vec<Vec<u8>>),
    /// Perhaps anything.
    Anything,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Sources {
    tracked: bool,
    beyond: Option<String>,
    reads: Vec<Vec<u8>>,
    written: Written,
}

/// Adds a name; false: there are too many.
fn put(names: &mut Vec<Vec<u8>>, name: &[u8]) -> bool {
    if names.iter().any(|known| known == name) {
        return true;
    }
    let fits = names.len() < MAX_TABLES;
    if fits {
        names.push(name.to_vec());
    }
    fits
}

impl Sources {
    /// What is not told from now on is not done.
    pub fn tracked(&mut self) {
        self.tracked = true;
    }

    /// A table is about to be read or written.
    pub fn read(&mut self, table: &[u8]) {
        if table.is_empty() {
            self.beyond("a table without a name".to_owned());
        } else if !put(&mut self.reads, &table.to_ascii_lowercase()) {
            self.beyond("more tables than are remembered".to_owned());
        }
    }

    /// The run does something else. The first time counts.
    pub fn beyond(&mut self, what: String) {
        self.beyond.get_or_insert(what);
        if self.written != Written::Nothing {
            self.written = Written::Anything;
        }
    }

    /// A table is about to be written to; none: any. Gives what is to be made old for it.
    pub fn write(&mut self, table: Option<&[u8]>) -> Written {
        let Some(table) = table.filter(|_| self.is_contained()) else {
            self.written = Written::Anything;
            return Written::Anything;
        };
        let table = table.to_ascii_lowercase();
        self.written = match mem::take(&mut self.written) {
            Written::Nothing => Written::Tables(vec![table.clone()]),
            Written::Tables(mut tables) => match put(&mut tables, &table) {
                true => Written::Tables(tables),
                false => Written::Anything,
            },
            Written::Anything => Written::Anything,
        };
        match &self.written {
            Written::Anything => Written::Anything,
            _ => Written::Tables(vec![table]),
        }
    }

    /// All that it has written so far.
    pub fn written(&self) -> &Written {
        &self.written
    }

    /// Whether tables are all it has changed for others so far.
    pub fn is_contained(&self) -> bool {
        self.tracked && self.beyond.is_none()
    }

    /// What its page is made of.
    pub fn made_of(&self) -> MadeOf {
        match self.is_contained() {
            true => MadeOf::Tables(self.reads.clone()),
            false => MadeOf::Unknown,
        }
    }

    /// For people: why it is not known what its page is made of.
    pub fn why_unknown(&self) -> &str {
        match &self.beyond {
            Some(what) => what,
            None => "PHP did not tell",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(names: &[&str]) -> Vec<Vec<u8>> {
        names.iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_page_is_made_of_what_was_read_if_the_run_was_tracked_and_never_went_beyond() {
        let mut sources = Sources::default();
        sources.read(b"posts");
        assert_eq!(sources.made_of(), MadeOf::Unknown);
        sources.tracked();
        sources.read(b"Users");
        sources.read(b"posts");
        assert_eq!(
            sources.made_of(),
            MadeOf::Tables(tables(&["posts", "users"]))
        );
        sources.beyond("apcu_fetch()".to_owned());
        sources.beyond("later".to_owned());
        assert_eq!(sources.made_of(), MadeOf::Unknown);
        assert_eq!(sources.why_unknown(), "apcu_fetch()");
    }

    #[test]
    fn a_write_is_to_its_table_until_something_is_not_known() {
        let mut sources = Sources::default();
        sources.tracked();
        assert_eq!(
            sources.write(Some(b"Posts")),
            Written::Tables(tables(&["posts"]))
        );
        assert_eq!(
            sources.write(Some(b"users")),
            Written::Tables(tables(&["users"]))
        );
        assert_eq!(
            *sources.written(),
            Written::Tables(tables(&["posts", "users"]))
        );
        sources.beyond("a file removed".to_owned());
        assert_eq!(*sources.written(), Written::Anything);
        assert_eq!(sources.write(Some(b"posts")), Written::Anything);
        let mut other = Sources::default();
        assert_eq!(other.write(Some(b"posts")), Written::Anything, "untracked");
        let mut any = Sources::default();
        any.tracked();
        assert_eq!(any.write(None), Written::Anything);
        assert_eq!(any.write(Some(b"posts")), Written::Anything);
    }

    #[test]
    fn more_tables_than_are_remembered_are_anything() {
        let mut sources = Sources::default();
        sources.tracked();
        for n in 0..=MAX_TABLES {
            sources.read(n.to_string().as_bytes());
        }
        assert_eq!(sources.made_of(), MadeOf::Unknown);
        let mut sources = Sources::default();
        sources.tracked();
        for n in 0..=MAX_TABLES {
            sources.write(Some(n.to_string().as_bytes()));
        }
        assert_eq!(*sources.written(), Written::Anything);
    }
}
