//! A list of names and values that behaves like APR's tables: names are compared without regard to case, keep their
//! order, and may occur more than once; a lookup returns the first value.

/// Names and values, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table(Vec<(BoxedBytes, BoxedBytes)>);

type BoxedBytes = Box<[u8]>;

impl Table {
    /// Returns the first value of a name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let mut found = self.0.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| &**value)
    }

    /// Replaces all values of a name with one.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        let mut value = Some(value);
        self.0.retain_mut(|(n, v)| {
            if !n.eq_ignore_ascii_case(name) {
                return true;
            }
            match value.take() {
                Some(value) => {
                    *v = value.into();
                    true
                }
                None => false,
            }
        });
        if let Some(value) = value {
            self.0.push((name.into(), value.into()));
        }
    }

    /// Adds a value to those that the name already has.
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        self.0.push((name.into(), value.into()));
    }

    /// Removes all values of a name.
    pub fn unset(&mut self, name: &[u8]) {
        self.0.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
    }

    /// Appends to the first value of the name, after a comma.
    pub fn merge(&mut self, name: &[u8], value: &[u8]) {
        let mut found = self
            .0
            .iter_mut()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name));
        match found.next() {
            Some((_, old)) => *old = [old, &b", "[..], value].concat().into(),
            None => self.add(name, value),
        }
    }

    /// Appends the entries of `base`, so that a lookup prefers those of `self`.
    pub fn overlay(&mut self, base: &Table) {
        self.0.extend(base.0.iter().cloned());
    }

    /// Returns all entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns true if the table has no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of bytes in all names and values.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(n, v)| n.len() + v.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_ignore_case_and_the_first_value_is_read() {
        let mut table = Table::default();
        table.add(b"A", b"1");
        table.add(b"a", b"2");
        assert_eq!(table.get(b"a"), Some(&b"1"[..]));
        table.merge(b"A", b"3");
        assert_eq!(table.get(b"a"), Some(&b"1, 3"[..]));
        table.set(b"a", b"4");
        assert_eq!(table.iter().count(), 1);
        table.unset(b"A");
        assert!(table.is_empty());
    }
}
