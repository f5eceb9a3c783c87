//! Buffers for the host's results, kept for reuse, so that a request answered by the local cache needs no allocation.
//!
//! To return bytes, a host first requests memory from the module through an export, and then returns its address. The
//! buffer is kept here until then, so a result is accepted only if it is in a buffer lent for it.

use std::cell::RefCell;

/// Maximum number of buffers kept for reuse.
const SPARE_MAX: usize = 4;
/// Maximum size of a buffer kept for reuse, in bytes; larger ones are rare.
const SPARE_BYTES_MAX: usize = 4_096;

thread_local! {
    static MEMORY: RefCell<Memory> = const { RefCell::new(Memory { lent: Vec::new(), spare: Vec::new() }) };
}

struct Memory {
    /// Buffers lent to the host for calls that have not returned: several if the host calls back.
    lent: Vec<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

impl Memory {
    fn reuse(&mut self, spare: Vec<u8>) {
        if (1..=SPARE_BYTES_MAX).contains(&spare.capacity()) && self.spare.len() < SPARE_MAX {
            self.spare.push(spare);
        }
    }
}

/// A call into the host that may return bytes.
pub(crate) struct Loan {
    /// Number of buffers lent before, for enclosing calls.
    before: usize,
}

impl Loan {
    pub(crate) fn begin() -> Self {
        Self { before: MEMORY.with_borrow(|memory| memory.lent.len()) }
    }

    /// Ends a call that has returned `size` bytes at `data`; `None` if they are not in a buffer lent for it.
    pub(crate) fn end(self, data: *const u8, size: usize) -> Option<Vec<u8>> {
        MEMORY.with_borrow_mut(|memory| {
            let mut named = None;
            while memory.lent.len() > self.before {
                match memory.lent.pop()? {
                    mut lent if lent.as_ptr() == data && lent.len() >= size => {
                        lent.truncate(size);
                        named = Some(lent);
                    }
                    other => memory.reuse(other),
                }
            }
            named
        })
    }
}

/// Lends the host `size` bytes for the current call.
pub(crate) fn lend(size: usize) -> *mut u8 {
    MEMORY.with_borrow_mut(|memory| {
        let fits = memory.spare.iter().position(|spare| spare.capacity() >= size);
        let mut lent = fits.map_or_else(Vec::new, |at| memory.spare.swap_remove(at));
        lent.resize(size, 0);
        let at = lent.as_mut_ptr();
        memory.lent.push(lent);
        at
    })
}

pub(crate) fn reuse(spare: Vec<u8>) {
    MEMORY.with_borrow_mut(|memory| memory.reuse(spare));
}
