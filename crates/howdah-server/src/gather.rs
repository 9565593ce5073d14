//! Bytes that arrive in pieces and are kept until all of them are there. However small the pieces, they take about
//! twice their length of memory at most. Small pieces are copied together, because each separate piece costs an
//! allocation and keeps alive the whole buffer that it is a part of.

use bytes::Bytes;

/// Pieces shorter than this are copied together.
const SHORT_PIECE_BYTES: usize = 4 << 10;
/// A copy is closed at this length, because a longer one would be moved as it grows.
const MAX_TAIL_BYTES: usize = 64 << 10;

/// A byte string that arrives in pieces.
#[derive(Debug, Default)]
pub struct Gathered {
    pieces: Vec<Bytes>,
    /// Short pieces after the others, copied together.
    tail: Vec<u8>,
    length: usize,
}

impl Gathered {
    /// Appends a piece. The first, which is usually the only one, is not copied.
    pub fn push(&mut self, piece: Bytes) {
        let is_first = self.length == 0;
        self.length += piece.len();
        if piece.len() < SHORT_PIECE_BYTES && !is_first {
            self.tail.extend_from_slice(&piece);
            if self.tail.len() >= MAX_TAIL_BYTES {
                self.close();
            }
        } else if !piece.is_empty() {
            self.close();
            self.pieces.push(piece);
        }
    }

    fn close(&mut self) {
        if !self.tail.is_empty() {
            self.pieces
                .push(Bytes::from(std::mem::take(&mut self.tail)));
        }
    }

    /// Returns the length in bytes of all pieces together.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Drops all pieces.
    pub fn clear(&mut self) {
        *self = Gathered::default();
    }

    /// Returns all bytes in order, in few pieces.
    pub fn into_pieces(mut self) -> Vec<Bytes> {
        self.close();
        self.pieces
    }

    /// Joins all pieces into one buffer.
    pub fn into_bytes(self) -> Bytes {
        let mut pieces = self.into_pieces();
        match pieces.len() {
            0 => Bytes::new(),
            1 => pieces.remove(0),
            _ => Bytes::from(pieces.concat()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathered_bytes_come_back_in_order() {
        let bytes: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        for size in [1, 7, 4095, 4096, 5000, 70_000, 200_000] {
            let mut gathered = Gathered::default();
            for piece in bytes.chunks(size) {
                gathered.push(Bytes::copy_from_slice(piece));
            }
            assert_eq!(gathered.len(), bytes.len());
            assert!(gathered.into_bytes() == bytes, "pieces of {size}");
        }
        assert!(Gathered::default().into_bytes().is_empty());
    }

    #[test]
    fn gathered_short_pieces_become_few() {
        let mut gathered = Gathered::default();
        for _ in 0..100_000 {
            gathered.push(Bytes::from_static(b"x"));
        }
        let pieces = gathered.into_pieces();
        assert_eq!(pieces.len(), 3, "the first, a full copy and its rest");
    }

    #[test]
    fn gathered_single_piece_is_not_copied() {
        let piece = Bytes::from(vec![1; 10]);
        let at = piece.as_ptr();
        let mut gathered = Gathered::default();
        gathered.push(piece);
        assert_eq!(gathered.into_bytes().as_ptr(), at);
    }
}
