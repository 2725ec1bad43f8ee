//! The deep check of a batch's records: twin of `_scan` in `barnabas.kproto.records_scan`.

use crate::varint::Cursor;

/// What good records are like: every one has a key; their offset deltas are 0, 1, 2, ...; lowest and highest timestamp
/// delta; how many headers more there could have been.
pub type Found = (bool, bool, i64, i64, i64);

/// Of the `count` records that are `data`, `None` if something is wrong with them: that the twin puts into words.
///
/// More than `odd_max` records must have consecutive offset deltas, and there may be `room` headers. Takes no memory,
/// and no longer than `data` is: a record, or a header, of no bytes does not pass.
#[must_use]
pub fn scan(data: &[u8], count: i64, odd_max: i64, room: i64) -> Option<Found> {
    let mut cursor = Cursor::new(data);
    let mut all_keys = true;
    let mut consecutive = true;
    let mut low = i64::MAX;
    let mut high = i64::MIN;
    let mut room = room;
    for index in 0..count {
        let length = usize::try_from(cursor.varint()?).ok()?;
        let end = cursor.at().checked_add(length)?;
        cursor.byte()?; // attributes
        let timestamp_delta = cursor.varlong()?;
        low = low.min(timestamp_delta);
        high = high.max(timestamp_delta);
        if i64::from(cursor.varint()?) != index {
            if count > odd_max {
                return None;
            }
            consecutive = false;
        }
        let key_length = cursor.varint()?;
        all_keys &= key_length >= 0;
        cursor.bytes(key_length)?;
        let value_length = cursor.varint()?;
        cursor.bytes(value_length)?;
        let headers = i64::from(cursor.varint()?);
        if headers != 0 {
            if !(0..=room).contains(&headers) {
                return None;
            }
            room -= headers;
            skip_headers(&mut cursor, headers)?;
        }
        if cursor.at() != end {
            return None;
        }
    }
    (cursor.at() == data.len()).then_some((all_keys, consecutive, low, high, room))
}

#[cold]
fn skip_headers(cursor: &mut Cursor, count: i64) -> Option<()> {
    for _ in 0..count {
        let key_length = cursor.varint()?;
        if key_length < 0 {
            return None;
        }
        cursor.bytes(key_length)?;
        let value_length = cursor.varint()?;
        cursor.bytes(value_length)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::scan;

    const PLAIN: [u8; 9] = [0x10, 0, 0, 0, 2, b'k', 2, b'v', 0];
    const EMPTY: (bool, bool, i64, i64, i64) = (true, true, i64::MAX, i64::MIN, 7);

    #[test]
    fn a_plain_record() {
        assert_eq!(scan(&PLAIN, 1, 1, 7), Some((true, true, 0, 0, 7)));
        assert_eq!(scan(&[], 0, 0, 7), Some(EMPTY));
        assert_eq!(scan(&[], -5, 0, 7), Some(EMPTY));
        assert_eq!(scan(&PLAIN, 0, 0, 7), None);
    }

    #[test]
    fn counts_at_the_ends_of_their_width() {
        for count in [2, i64::from(i32::MAX), i64::MAX] {
            assert_eq!(scan(&PLAIN, count, i64::MAX, i64::MAX), None);
        }
        assert_eq!(scan(&PLAIN, i64::MIN, 0, i64::MIN), None);
    }

    #[test]
    fn billions_of_headers() {
        // Length and header count are the largest there are; room is left for all of them.
        let data = [
            0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 1, 1, 0xf0, 0xff, 0xff, 0xff, 0x0f, 0, 0,
        ];
        assert_eq!(scan(&data, 1, 1, i64::MAX), None);
    }

    #[test]
    fn room_is_for_headers() {
        let data = [0x14, 0, 0, 0, 1, 1, 4, 0, 1, 0, 0];
        assert_eq!(scan(&data, 1, 1, 2), Some((false, true, 0, 0, 0)));
        assert_eq!(scan(&data, 1, 1, 1), None);
        assert_eq!(scan(&data, 1, 1, -1), None);
    }
}
