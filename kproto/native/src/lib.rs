//! `barnabas_native`: functions of `barnabas.kproto` where interpreted code is the limit.
//!
//! Each has a twin in Python, which is the specification. A function here says `None` to what it does not take; the twin
//! is asked then, and puts the refusal into words. Nothing here has state, knows a clock, or does IO.
//!
//! The interpreter is held while a function runs, as another thread that takes it may keep it for a switch interval,
//! which is longer than any function needs for less than [`RELEASE_BYTES`]. Above that it is released: such data come
//! in threads that others should not wait for.
#![forbid(unsafe_code)]

pub mod scan;
pub mod varint;

/// From this size on of what is looked at, other threads may run meanwhile. At most a millisecond is spent on less.
pub const RELEASE_BYTES: usize = 1 << 20;

/// Compiled functions for barnabas; see docs/native.md there.
#[pyo3::pymodule]
mod barnabas_native {
    use pyo3::prelude::*;

    use crate::{RELEASE_BYTES, scan};

    /// Counts what the functions mean; `barnabas.kproto.compiled` wants one, and uses no other.
    #[pymodule_export]
    const FACE: u32 = 1;

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
}
