//! What compaction asks of a batch's records: to note their keys, and which of them stay. Twins of `_note` and `_keep` in
//! `barnabas.logdir.compaction.key_map`.

use std::collections::TryReserveError;

use crate::key_map::KeyMap;
use crate::varint::{Cursor, push};

/// A record of a batch. Its value and headers are not looked into.
struct Record<'a> {
    start: usize,
    end: usize,
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&'a [u8]>,
    is_tombstone: bool,
}

fn next<'a>(cursor: &mut Cursor<'a>) -> Option<Record<'a>> {
    let start = cursor.at();
    let length = usize::try_from(cursor.varint()?).ok()?;
    let end = cursor.at().checked_add(length)?;
    cursor.byte()?; // attributes
    let timestamp_delta = cursor.varlong()?;
    let offset_delta = cursor.varint()?;
    let key_length = cursor.varint()?;
    let key = cursor.bytes(key_length)?;
    let value_length = cursor.byte()?; // the first byte of it, whose lowest bit is the sign
    if offset_delta < 0 || cursor.at() > end {
        return None;
    }
    cursor.move_to(end)?;
    Some(Record {
        start,
        end,
        timestamp_delta,
        offset_delta,
        key: (key_length >= 0).then_some(key),
        is_tombstone: value_length & 1 != 0,
    })
}

/// Whether all records were noted, and the offset of the last that was.
pub type Noted = (bool, Option<i64>);

/// Note the keys of the `count` records that are `data`, of those from offset `first` on. `None` if something is wrong
/// with them, and then nothing is noted. They are looked through twice, so that no memory is needed for them.
///
/// # Errors
/// There is no memory for a larger table.
pub fn note(
    map: &mut KeyMap,
    data: &[u8],
    count: i64,
    base: i64,
    first: i64,
) -> Result<Option<Noted>, TryReserveError> {
    if !are_good(data, count, base) {
        return Ok(None);
    }
    let mut cursor = Cursor::new(data);
    let mut last = None;
    for _ in 0..count {
        let Some(record) = next(&mut cursor) else {
            return Ok(None);
        };
        let offset = base + i64::from(record.offset_delta);
        if let Some(key) = record.key
            && offset >= first
        {
            if !map.put(key, offset)? {
                return Ok(Some((false, last)));
            }
            last = Some(offset);
        }
    }
    Ok(Some((true, last)))
}

fn are_good(data: &[u8], count: i64, base: i64) -> bool {
    let mut cursor = Cursor::new(data);
    count >= 0
        && (0..count)
            .all(|_| next(&mut cursor).is_some_and(|record| base.checked_add(i64::from(record.offset_delta)).is_some()))
        && cursor.at() == data.len()
}

/// What is asked of a batch beside its records.
#[derive(Clone, Copy)]
pub struct Batch {
    /// Of records.
    pub count: i64,
    /// The offset from which deltas count.
    pub base_offset: i64,
    /// The time from which deltas count.
    pub base_timestamp: i64,
    /// The one time of all records, where the broker gave them one.
    pub append_time: Option<i64>,
    /// Since when, or until when, tombstones of the batch are kept.
    pub horizon: Option<i64>,
}

/// What is asked of the run.
#[derive(Clone, Copy)]
pub struct Run {
    /// Offsets above this one are newer than the map.
    pub latest: i64,
    /// Tombstones of the batch go.
    pub past_horizon: bool,
    /// The horizon of a batch that has a tombstone and no horizon.
    pub new_horizon: i64,
}

/// What is left of a batch.
pub struct Left {
    /// How many records.
    pub kept: usize,
    /// How many went because they have no key.
    pub keyless: usize,
    /// One of those that stay is a tombstone.
    pub has_tombstone: bool,
    /// If the records are not what they were: they, the time from which their deltas count, and the latest of theirs.
    pub written: Option<(Vec<u8>, i64, i64)>,
}

/// Which of the batch's records, that are `data`, stay. `None` if something is wrong with them. Takes memory in
/// proportion to `data`.
#[must_use]
pub fn keep(map: &KeyMap, data: &[u8], batch: Batch, run: Run) -> Option<Left> {
    let mut cursor = Cursor::new(data);
    let mut kept = Vec::new();
    let mut keyless = 0;
    let mut has_tombstone = false;
    let mut first = 0;
    let mut newest = i64::MIN;
    if batch.count < 0 {
        return None;
    }
    for _ in 0..batch.count {
        let record = next(&mut cursor)?;
        let offset = batch.base_offset.checked_add(i64::from(record.offset_delta))?;
        if offset <= run.latest {
            let Some(key) = record.key else {
                keyless += 1;
                continue;
            };
            if (record.is_tombstone && run.past_horizon) || offset < map.get(key) {
                continue;
            }
        }
        if kept.is_empty() {
            first = record.timestamp_delta;
        }
        has_tombstone |= record.is_tombstone;
        newest = newest.max(record.timestamp_delta);
        kept.push((record.start, record.end));
    }
    if cursor.at() != data.len() {
        return None;
    }
    let sets_horizon = has_tombstone && batch.horizon.is_none();
    let is_all = i64::try_from(kept.len()).ok()? == batch.count;
    let written = if kept.is_empty() || (is_all && !sets_horizon) {
        None
    } else {
        let horizon = if sets_horizon {
            Some(run.new_horizon)
        } else {
            batch.horizon
        };
        let new_base = horizon.filter(|horizon| *horizon >= 0);
        let latest = batch.base_timestamp.checked_add(newest);
        match (new_base, batch.append_time, first, latest) {
            (None, None, 0, Some(latest)) => Some((joined(data, &kept), batch.base_timestamp, latest.max(-1))),
            _ => Some(moved(data, &kept, batch, new_base)?),
        }
    };
    Some(Left {
        kept: kept.len(),
        keyless,
        has_tombstone,
        written,
    })
}

/// Records as they are: neighbours at once.
fn joined(data: &[u8], kept: &[(usize, usize)]) -> Vec<u8> {
    let mut body = Vec::with_capacity(kept.iter().map(|(start, end)| end - start).sum());
    let mut kept = kept.iter();
    if let Some(&(mut from, mut to)) = kept.next() {
        for &(start, end) in kept {
            if start != to {
                body.extend_from_slice(data.get(from..to).unwrap_or_default());
                from = start;
            }
            to = end;
        }
        body.extend_from_slice(data.get(from..to).unwrap_or_default());
    }
    body
}

/// Records whose timestamps count from another time: `new_base`, or the first one's.
fn moved(data: &[u8], kept: &[(usize, usize)], batch: Batch, mut new_base: Option<i64>) -> Option<(Vec<u8>, i64, i64)> {
    let mut body = Vec::with_capacity(kept.iter().map(|(start, end)| end - start).sum());
    let mut latest = -1;
    for &(start, end) in kept {
        let mut cursor = Cursor::new(data);
        cursor.move_to(start)?;
        cursor.varint()?; // length
        cursor.byte()?; // attributes
        let delta = cursor.varlong()?;
        let time = batch
            .append_time
            .unwrap_or_else(|| batch.base_timestamp.wrapping_add(delta));
        let base = *new_base.get_or_insert(time);
        latest = latest.max(time);
        let mut delta = Vec::with_capacity(10);
        push(&mut delta, time.wrapping_sub(base));
        let rest = data.get(cursor.at()..end)?;
        push(&mut body, i64::try_from(1 + delta.len() + rest.len()).ok()?);
        body.push(0);
        body.extend_from_slice(&delta);
        body.extend_from_slice(rest);
    }
    Some((body, new_base?, batch.append_time.unwrap_or(latest)))
}

#[cfg(test)]
mod tests {
    use super::{Batch, Run, keep, note};
    use crate::key_map::KeyMap;

    // Key k, value v; timestamp and offset deltas 0 and 1; then key k, no value, deltas 2.
    const RECORDS: [u8; 26] = [
        0x10, 0, 0, 0, 2, b'k', 2, b'v', 0, // .
        0x10, 0, 2, 2, 2, b'j', 2, b'v', 0, // .
        0x0e, 0, 4, 4, 2, b'k', 1, 0,
    ];
    const BATCH: Batch = Batch {
        count: 3,
        base_offset: 100,
        base_timestamp: 5000,
        append_time: None,
        horizon: None,
    };
    const RUN: Run = Run {
        latest: 102,
        past_horizon: false,
        new_horizon: 9000,
    };

    fn noted() -> KeyMap {
        let mut map = KeyMap::new(100, 90, &[1; 16]).unwrap();
        assert_eq!(note(&mut map, &RECORDS, 3, 100, 0), Ok(Some((true, Some(102)))));
        map
    }

    #[test]
    fn noting() {
        let map = noted();
        assert_eq!((map.get(b"k"), map.get(b"j"), map.len()), (102, 101, 2));
        let mut map = KeyMap::new(2, 1, &[1; 16]).unwrap();
        assert_eq!(note(&mut map, &RECORDS, 3, 100, 0), Ok(Some((false, Some(100)))));
        assert_eq!(note(&mut map, &RECORDS, 3, 200, 201), Ok(Some((false, None))));
        assert_eq!(note(&mut map, &RECORDS, 3, 300, 400), Ok(Some((true, None))));
    }

    #[test]
    fn what_is_damaged_is_not_noted() {
        let mut map = KeyMap::new(100, 90, &[1; 16]).unwrap();
        for count in [i64::MIN, -1, 0, 2, 4, i64::MAX] {
            assert_eq!(note(&mut map, &RECORDS, count, 100, 0), Ok(None));
            let batch = Batch { count, ..BATCH };
            assert!(keep(&map, &RECORDS, batch, RUN).is_none());
        }
        assert_eq!(note(&mut map, &RECORDS, 3, i64::MAX - 1, 0), Ok(None));
        assert!(map.is_empty());
    }

    #[test]
    fn a_tombstone_is_kept_with_a_horizon() {
        let left = keep(&noted(), &RECORDS, BATCH, RUN).unwrap();
        assert_eq!((left.kept, left.keyless, left.has_tombstone), (2, 0, true));
        let body = vec![
            0x12, 0, 0xbd, 0x3e, 2, 2, b'j', 2, b'v', 0, // 5001 - 9000
            0x10, 0, 0xbb, 0x3e, 4, 2, b'k', 1, 0,
        ];
        assert_eq!(left.written, Some((body, 9000, 5002)));
    }

    #[test]
    fn times_at_the_ends_of_their_width() {
        for base_timestamp in [i64::MIN, i64::MAX, i64::MAX - 1, 0] {
            for append_time in [None, Some(i64::MIN), Some(i64::MAX)] {
                for horizon in [None, Some(i64::MIN), Some(-1), Some(0), Some(i64::MAX)] {
                    let batch = Batch {
                        base_timestamp,
                        append_time,
                        horizon,
                        ..BATCH
                    };
                    let left = keep(&noted(), &RECORDS, batch, RUN).unwrap();
                    assert_eq!(left.kept, 2);
                    assert!(left.written.is_some());
                }
            }
        }
    }
}
