//! Writes and reads the numbers, strings and lists of a description.

use bytes::Bytes;

use super::{FORMAT_VERSION, FileDamage, HEAD_BYTES, MAGIC, MAX_DESCRIPTION_BYTES, Owner};

/// Writes a description, then the head before it.
pub(super) struct RecordWriter(Vec<u8>);

impl RecordWriter {
    pub(super) fn begin(owner: &Owner, key: &[u8], kind: u8) -> RecordWriter {
        let mut out = RecordWriter(vec![0; HEAD_BYTES]);
        out.0.push(kind);
        out.0.extend_from_slice(&owner.site);
        out.0.extend_from_slice(&owner.policy);
        out.bytes(key);
        out
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        // A string that is too long for a description is detected at the end.
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn list(&mut self, items: &[Vec<u8>]) {
        self.u32(u32::try_from(items.len()).unwrap_or(u32::MAX));
        for item in items {
            self.bytes(item);
        }
    }

    pub(super) fn finish(mut self) -> Option<Bytes> {
        let description = &self.0[HEAD_BYTES..];
        if description.len() > MAX_DESCRIPTION_BYTES {
            return None;
        }
        let mut head = MAGIC.to_vec();
        let checksum = crc32fast::hash(description);
        for number in [FORMAT_VERSION, description.len() as u32, checksum] {
            head.extend_from_slice(&number.to_le_bytes());
        }
        let checksum = crc32fast::hash(&head);
        head.extend_from_slice(&checksum.to_le_bytes());
        self.0[..HEAD_BYTES].copy_from_slice(&head);
        Some(self.0.into())
    }
}

/// Parses a description; no length is trusted beyond the available bytes.
pub(in crate::store::disk) struct RecordReader<'a>(pub(in crate::store::disk) &'a [u8]);

impl<'a> RecordReader<'a> {
    pub(in crate::store::disk) fn take(&mut self, length: usize) -> Result<&'a [u8], FileDamage> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(FileDamage::Corrupt)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(in crate::store::disk) fn array<const N: usize>(&mut self) -> Result<[u8; N], FileDamage> {
        self.take(N)?.try_into().map_err(|_| FileDamage::Corrupt)
    }

    pub(in crate::store::disk) fn u32(&mut self) -> Result<u32, FileDamage> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(in crate::store::disk) fn u64(&mut self) -> Result<u64, FileDamage> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(in crate::store::disk) fn bytes(&mut self) -> Result<&'a [u8], FileDamage> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    pub(super) fn list(&mut self) -> Result<Vec<Vec<u8>>, FileDamage> {
        let count = self.u32()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(self.bytes()?.to_vec());
        }
        Ok(items)
    }

    pub(in crate::store::disk) fn end(&self) -> Result<(), FileDamage> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(FileDamage::Corrupt),
        }
    }
}
