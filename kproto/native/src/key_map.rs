//! Key to last offset, for compaction: twin of `OffsetMap` in `barnabas.logdir.compaction.offset_map`, and holds as many
//! keys as that does.
//!
//! 128 bits of SipHash-2-4 stand for a key. Whoever does not know the secret can neither make two keys fall together,
//! but by trying 2**64 of them on the broker, nor crowd a part of the table.

use std::collections::TryReserveError;

use siphasher::sip128::SipHasher24;

/// 24 bytes. A half that is 0 marks an empty one.
#[derive(Clone, Copy, Default)]
struct Slot {
    high: u64,
    low: u64,
    offset: i64,
}

/// So many slots there are at first.
const SLOTS_MIN: usize = 1024;

/// See the module. Keys are never taken out.
pub struct KeyMap {
    slots: Vec<Slot>,
    slots_max: usize,
    room: usize,
    entries: usize,
    hasher: SipHasher24,
}

impl KeyMap {
    /// For at most `room` keys, fewer than `slots_max`: a search ends at an empty slot. While the table grows, up to a
    /// third of `slots_max` is there a second time.
    ///
    /// # Errors
    /// There is no memory for the first slots.
    pub fn new(slots_max: usize, room: usize, secret: &[u8; 16]) -> Result<Self, TryReserveError> {
        let mut made = Self {
            slots: Vec::new(),
            slots_max,
            room: room.min(slots_max.saturating_sub(1)),
            entries: 0,
            hasher: SipHasher24::new_with_key(secret),
        };
        made.slots = empty(made.size_for(SLOTS_MIN))?;
        Ok(made)
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// A table of so many slots, or of all if the step from there to all would be more than the memory.
    fn size_for(&self, wanted: usize) -> usize {
        if wanted > self.slots_max / 3 {
            self.slots_max
        } else {
            wanted
        }
    }

    fn hash(&self, key: &[u8]) -> (u64, u64) {
        let hash = self.hasher.hash(key);
        (hash.h1.max(1), hash.h2)
    }

    /// The slot that holds the hash, or the empty one where it belongs.
    fn find(&self, (high, low): (u64, u64)) -> usize {
        let slots = &self.slots[..];
        let mut at = scaled(high, slots.len());
        loop {
            let slot = &slots[at];
            if slot.high == 0 || (slot.high == high && slot.low == low) {
                return at;
            }
            at += 1;
            if at == slots.len() {
                at = 0;
            }
        }
    }

    /// The offset of a key, -1 for one that is not known.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> i64 {
        if self.entries == 0 {
            return -1; // there may be no slot
        }
        let slot = &self.slots[self.find(self.hash(key))];
        if slot.high == 0 { -1 } else { slot.offset }
    }

    /// Note the offset of a key in place of what was known. False where there is no room for another key.
    ///
    /// # Errors
    /// There is no memory for a larger table; everything is as it was.
    pub fn put(&mut self, key: &[u8], offset: i64) -> Result<bool, TryReserveError> {
        if self.room == 0 {
            return Ok(false);
        }
        let (high, low) = self.hash(key);
        let mut at = self.find((high, low));
        if self.slots[at].high == 0 {
            if self.entries >= self.room {
                return Ok(false);
            }
            if self.slots.len() < self.slots_max && self.entries >= self.slots.len() / 4 * 3 {
                self.grow()?;
                at = self.find((high, low));
            }
            self.entries += 1;
        }
        self.slots[at] = Slot { high, low, offset };
        Ok(true)
    }

    #[cold]
    fn grow(&mut self) -> Result<(), TryReserveError> {
        let larger = empty(self.size_for(self.slots.len() * 2))?;
        let before = std::mem::replace(&mut self.slots, larger);
        for slot in before.into_iter().filter(|slot| slot.high != 0) {
            let at = self.find((slot.high, slot.low));
            self.slots[at] = slot;
        }
        Ok(())
    }
}

fn empty(count: usize) -> Result<Vec<Slot>, TryReserveError> {
    let mut slots = Vec::new();
    slots.try_reserve_exact(count)?;
    slots.resize(count, Slot::default());
    Ok(slots)
}

/// Where in 0..`count` a hash lies in 0..2**64.
#[allow(clippy::cast_possible_truncation)] // it is less than count
fn scaled(hash: u64, count: usize) -> usize {
    ((u128::from(hash) * count as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::KeyMap;

    fn map(slots: usize, room: usize) -> KeyMap {
        KeyMap::new(slots, room, &[7; 16]).unwrap()
    }

    #[test]
    fn it_is_a_map() {
        for (slots, room) in [(2, 1), (100, 99), (5000, 4500), (20_000, 18_000)] {
            let mut tested = map(slots, room);
            let mut known = HashMap::new();
            let mut seed = 1_u64;
            for offset in 0..200_000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let key = ((seed >> 33) % (room as u64 + 20)).to_le_bytes();
                let taken = tested.put(&key, offset).unwrap();
                assert_eq!(taken, known.contains_key(&key) || known.len() < room);
                if taken {
                    known.insert(key, offset);
                }
            }
            assert_eq!(tested.len(), room);
            assert_eq!(tested.slots.len(), slots);
            for (key, offset) in &known {
                assert_eq!(tested.get(key), *offset);
            }
            assert_eq!(tested.get(b"not there"), -1);
        }
    }

    #[test]
    fn its_memory_is_bounded_while_it_grows() {
        for slots in [1, 1023, 3071, 3072, 3073, 40_000] {
            let mut tested = map(slots, slots);
            let mut size = tested.slots.len();
            let mut offset = 0_i64;
            while tested.put(&offset.to_le_bytes(), offset).unwrap() {
                offset += 1;
                if tested.slots.len() > size {
                    assert!(tested.slots.len() + size <= slots + slots / 3);
                    size = tested.slots.len();
                }
            }
            assert_eq!(tested.len(), slots - 1);
            assert_eq!(tested.slots.len(), slots);
        }
    }

    #[test]
    fn no_room_at_all() {
        for slots in [0, 1] {
            let mut tested = map(slots, 5);
            assert!(!tested.put(b"", 3).unwrap());
            assert_eq!(tested.get(b""), -1);
            assert!(tested.is_empty());
        }
        assert!(KeyMap::new(usize::MAX, 5, &[0; 16]).is_ok());
    }

    #[test]
    fn the_hash_is_siphash_2_4() {
        // The first of the reference's vectors for 128 bits: key 00 01 ... 0f, no input.
        let key = core::array::from_fn(|at| u8::try_from(at).unwrap());
        let tested = KeyMap::new(10, 9, &key).unwrap();
        assert_eq!(tested.hash(b""), (0xe6a8_25ba_047f_81a3, 0x9302_55c7_1472_f66d));
    }
}
