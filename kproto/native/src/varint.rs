//! Zigzag varints, as `barnabas.kproto.varint` reads them: needless continuation bytes are fine, bits beyond the width
//! are cut off.

/// A place in bytes that moves forward. Whatever lies behind the end, or is no varint, is `None`.
pub struct Cursor<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// At the beginning of `data`.
    #[must_use]
    pub fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0 }
    }

    /// How many bytes lie before this place.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Before the byte `at`, or behind the last.
    pub fn move_to(&mut self, at: usize) -> Option<()> {
        (at <= self.data.len()).then(|| self.at = at)
    }

    /// The next byte.
    #[inline]
    pub fn byte(&mut self) -> Option<u8> {
        let byte = *self.data.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// The next `count` bytes, none if it is negative.
    #[inline]
    pub fn bytes(&mut self, count: i32) -> Option<&'a [u8]> {
        let count = usize::try_from(count).unwrap_or(0);
        let found = self.data.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(found)
    }

    /// 32 bits in at most five bytes.
    #[inline]
    pub fn varint(&mut self) -> Option<i32> {
        let mut byte = self.byte()?;
        let mut raw = u32::from(byte & 127);
        let mut shift = 7;
        while byte > 127 {
            if shift > 28 {
                return None;
            }
            byte = self.byte()?;
            raw |= u32::from(byte & 127) << shift;
            shift += 7;
        }
        Some(zigzag32(raw))
    }

    /// 64 bits in at most ten bytes.
    #[inline]
    pub fn varlong(&mut self) -> Option<i64> {
        let mut byte = self.byte()?;
        let mut raw = u64::from(byte & 127);
        let mut shift = 7;
        while byte > 127 {
            if shift > 63 {
                return None;
            }
            byte = self.byte()?;
            raw |= u64::from(byte & 127) << shift;
            shift += 7;
        }
        Some(zigzag64(raw))
    }
}

/// Write a number, in as few bytes as it takes.
#[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)] // that is what it is for
pub fn push(out: &mut Vec<u8>, value: i64) {
    let mut raw = (value << 1 ^ value >> 63) as u64;
    while raw > 127 {
        out.push(raw as u8 | 128);
        raw >>= 7;
    }
    out.push(raw as u8);
}

#[allow(clippy::cast_possible_wrap)] // that is what it is for
fn zigzag32(raw: u32) -> i32 {
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

#[allow(clippy::cast_possible_wrap)]
fn zigzag64(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::{Cursor, push};

    fn varint(data: &[u8]) -> Option<i32> {
        Cursor::new(data).varint()
    }

    fn varlong(data: &[u8]) -> Option<i64> {
        Cursor::new(data).varlong()
    }

    #[test]
    fn bits_beyond_the_width_are_cut_off() {
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Some(i32::MIN));
        assert_eq!(varint(&[0xfe, 0xff, 0xff, 0xff, 0x7f]), Some(i32::MAX));
        assert_eq!(
            varlong(&[0xff; 9].iter().copied().chain([1]).collect::<Vec<_>>()),
            Some(i64::MIN)
        );
        assert_eq!(
            varlong(
                &[0xfe; 1]
                    .iter()
                    .copied()
                    .chain([0xff; 8])
                    .chain([0x7f])
                    .collect::<Vec<_>>()
            ),
            Some(i64::MAX)
        );
    }

    #[test]
    fn without_an_end() {
        assert_eq!(varint(&[0x80; 4]), None);
        assert_eq!(varint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]), None);
        assert_eq!(varlong(&[0x80; 9]), None);
        assert_eq!(
            varlong(&[0x80; 10].iter().copied().chain([0]).collect::<Vec<_>>()),
            None
        );
        assert_eq!(varint(&[]), None);
    }

    #[test]
    fn needless_bytes() {
        assert_eq!(varint(&[0x82, 0x80, 0]), Some(1));
        assert_eq!(
            varlong(&[0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0]),
            Some(-1)
        );
    }

    #[test]
    fn lengths_that_reach_behind_the_end() {
        for count in [4, i32::MAX] {
            let mut cursor = Cursor::new(&[1, 2, 3]);
            assert_eq!(cursor.bytes(count), None);
            assert_eq!(cursor.at(), 0);
        }
        let mut cursor = Cursor::new(&[1, 2, 3]);
        assert_eq!(cursor.bytes(i32::MIN), Some(&[][..]));
        assert_eq!(cursor.bytes(3), Some(&[1, 2, 3][..]));
        assert_eq!(cursor.bytes(0), Some(&[][..]));
        assert_eq!(cursor.byte(), None);
    }

    #[test]
    fn what_is_written_is_read() {
        for value in [0, -1, 1, 63, -64, 64, 8191, 8192, 1 << 40, i64::MAX, i64::MIN] {
            let mut data = Vec::new();
            push(&mut data, value);
            assert_eq!(varlong(&data), Some(value));
            assert!(data.last().is_some_and(|last| *last > 0 || data.len() == 1));
        }
    }

    #[test]
    fn moving() {
        let mut cursor = Cursor::new(&[1, 2, 3]);
        assert_eq!((cursor.move_to(4), cursor.at()), (None, 0));
        assert_eq!((cursor.move_to(3), cursor.byte()), (Some(()), None));
        assert_eq!((cursor.move_to(1), cursor.byte()), (Some(()), Some(2)));
    }
}
