//! Memory for what the host answers, used again for the next: a request that the deny cache answers is decided without
//! asking the allocator.
//!
//! A host that returns bytes asks the module for memory first, through an export, and names that when it returns. It is
//! kept here meanwhile, so an answer is taken over only where it is in memory that was lent for it.

use std::cell::RefCell;

/// The most pieces that are kept.
const SPARE_MAX: usize = 4;
/// The longest of them, in bytes: what is longer came but once in a while.
const SPARE_BYTES_MAX: usize = 4_096;

thread_local! {
    static MEMORY: RefCell<Memory> = const { RefCell::new(Memory { lent: Vec::new(), spare: Vec::new() }) };
}

struct Memory {
    /// What the host was lent for calls that have not returned. One that calls back may have several under way.
    lent: Vec<Vec<u8>>,
    /// What nobody needs now.
    spare: Vec<Vec<u8>>,
}

impl Memory {
    fn reuse(&mut self, spare: Vec<u8>) {
        if (1..=SPARE_BYTES_MAX).contains(&spare.capacity()) && self.spare.len() < SPARE_MAX {
            self.spare.push(spare);
        }
    }
}

/// A call of the host that may return bytes.
pub(crate) struct Loan {
    /// What was lent before is for calls around this one.
    before: usize,
}

impl Loan {
    /// The call begins.
    pub(crate) fn begin() -> Self {
        Self { before: MEMORY.with_borrow(|memory| memory.lent.len()) }
    }

    /// The call has returned, and named `size` bytes at `data`; none where they are not in memory that was lent for it.
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

/// Lends the host `size` bytes for the call that is under way.
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

/// Keeps memory that nobody needs now for answers to come.
pub(crate) fn reuse(spare: Vec<u8>) {
    MEMORY.with_borrow_mut(|memory| memory.reuse(spare));
}
