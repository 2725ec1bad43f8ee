//! `barnabas_native`: functions of `barnabas.kproto` where interpreted code is the limit.
//!
//! Each has a twin in Python, which is the specification. A function here says `None` to what it does not take; the twin
//! is asked then, and puts the refusal into words. Nothing here knows a clock, or does IO; the one thing with state is
//! `KeyMap`, which belongs to who made it.
//!
//! The interpreter is held while a function runs, as another thread that takes it may keep it for a switch interval,
//! which is longer than any function needs for less than [`RELEASE_BYTES`]. Above that it is released: such data come
//! in threads that others should not wait for.
#![forbid(unsafe_code)]

pub mod compaction;
pub mod key_map;
pub mod scan;
pub mod varint;

/// From this size on of what is looked at, other threads may run meanwhile. At most a millisecond is spent on less.
pub const RELEASE_BYTES: usize = 1 << 20;

/// Compiled functions for barnabas; see docs/native.md there.
#[pyo3::pymodule]
mod barnabas_native {
    use pyo3::exceptions::{PyMemoryError, PyValueError};
    use pyo3::prelude::*;
    use pyo3::types::{PyBytes, PyList};

    use crate::{RELEASE_BYTES, compaction, key_map, scan};

    /// Counts what the functions mean; `barnabas.kproto.compiled` wants one, and uses no other.
    #[pymodule_export]
    const FACE: u32 = 2;

    /// The version of this distribution.
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// See `_scan` in `barnabas.kproto.records_scan`; None where that raises.
    #[pyfunction]
    #[pyo3(name = "scan", signature = (data, count, odd_max, room, /))]
    fn scan_(py: Python<'_>, data: &[u8], count: i64, odd_max: i64, room: i64) -> Option<scan::Found> {
        if data.len() < RELEASE_BYTES {
            scan::scan(data, count, odd_max, room)
        } else {
            py.detach(|| scan::scan(data, count, odd_max, room))
        }
    }

    /// The keys of a log with their last offsets. See `OffsetMap` in `barnabas.logdir.compaction.offset_map` and `KeyMap`
    /// in `barnabas.logdir.compaction.key_map`.
    #[pyclass]
    struct KeyMap(key_map::KeyMap);

    /// Records that stay, how many had no key, whether there is a tombstone, and if it is not all that there was: the
    /// records, the base of their timestamps, and the largest.
    type Left<'py> = (usize, usize, bool, Option<(Bound<'py, PyBytes>, i64, i64)>);

    #[pymethods]
    impl KeyMap {
        #[new]
        #[pyo3(signature = (slots, room, secret, /))]
        fn new(slots: usize, room: usize, secret: &[u8]) -> PyResult<Self> {
            let secret = secret
                .try_into()
                .map_err(|_| PyValueError::new_err("the secret has 16 bytes"))?;
            Ok(Self(key_map::KeyMap::new(slots, room, secret).map_err(no_memory)?))
        }

        fn __len__(&self) -> usize {
            self.0.len()
        }

        /// See `OffsetMap.put`.
        #[pyo3(signature = (keys, offsets, /))]
        fn put(&mut self, keys: &Bound<'_, PyList>, offsets: &Bound<'_, PyAny>) -> PyResult<usize> {
            let mut taken = 0;
            for (key, offset) in keys.iter().zip(offsets.try_iter()?) {
                let key: &[u8] = key.extract()?;
                if !self.0.put(key, offset?.extract()?).map_err(no_memory)? {
                    break;
                }
                taken += 1;
            }
            Ok(taken)
        }

        /// See `OffsetMap.get`.
        #[pyo3(signature = (keys, /))]
        fn get<'py>(&self, keys: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyList>> {
            let found = PyList::empty(keys.py());
            for key in keys {
                let key: Option<&[u8]> = key.extract()?;
                found.append(key.map_or(-1, |key| self.0.get(key)))?;
            }
            Ok(found)
        }

        /// See `KeyMap.note` in `barnabas.logdir.compaction.key_map`; None where its twin raises, and in some cases where
        /// it does not.
        #[pyo3(signature = (data, count, base, first, /))]
        fn note(
            &mut self,
            py: Python<'_>,
            data: &[u8],
            count: i64,
            base: i64,
            first: i64,
        ) -> PyResult<Option<compaction::Noted>> {
            let map = &mut self.0;
            let found = if data.len() < RELEASE_BYTES {
                compaction::note(map, data, count, base, first)
            } else {
                py.detach(|| compaction::note(map, data, count, base, first))
            };
            found.map_err(no_memory)
        }

        /// See `KeyMap.keep` in `barnabas.logdir.compaction.key_map`; None as of `note`.
        ///
        /// batch: records, base offset, base timestamp, the time of all records where there is one, horizon. run: latest
        /// offset that was noted, whether tombstones go, the horizon for a batch that needs one.
        #[pyo3(signature = (data, batch, run, /))]
        fn keep<'py>(
            &self,
            py: Python<'py>,
            data: &[u8],
            batch: (i64, i64, i64, Option<i64>, Option<i64>),
            run: (i64, bool, i64),
        ) -> Option<Left<'py>> {
            let map = &self.0;
            let (count, base_offset, base_timestamp, append_time, horizon) = batch;
            let batch = compaction::Batch {
                count,
                base_offset,
                base_timestamp,
                append_time,
                horizon,
            };
            let (latest, past_horizon, new_horizon) = run;
            let run = compaction::Run {
                latest,
                past_horizon,
                new_horizon,
            };
            let left = if data.len() < RELEASE_BYTES {
                compaction::keep(map, data, batch, run)
            } else {
                py.detach(|| compaction::keep(map, data, batch, run))
            }?;
            let written = left
                .written
                .map(|(body, base, latest)| (PyBytes::new(py, &body), base, latest));
            Some((left.kept, left.keyless, left.has_tombstone, written))
        }
    }

    #[allow(clippy::needless_pass_by_value)] // map_err passes it so
    fn no_memory(error: std::collections::TryReserveError) -> PyErr {
        PyMemoryError::new_err(error.to_string())
    }
}
