//! Memory for what the host returns, reused for the next answer: a request that the deny cache answers is decided
//! without calling the allocator.
//!
//! To return bytes, a host first asks the module for memory, through an export, and then returns its address. The
//! memory is kept here meanwhile, so an answer is accepted only if it is in memory that was lent for it.

use std::cell::RefCell;

/// The most pieces that are kept to be reused.
const SPARE_MAX: usize = 4;
/// The longest piece that is kept, in bytes: longer ones are rare.
const SPARE_BYTES_MAX: usize = 4_096;

thread_local! {
    static MEMORY: RefCell<Memory> = const { RefCell::new(Memory { lent: Vec::new(), spare: Vec::new() }) };
}

struct Memory {
    /// What the host was lent for calls that have not returned. There may be several, because a host may call back.
    lent: Vec<Vec<u8>>,
    /// Pieces that are free.
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
    /// How many pieces were lent before: they are for calls around this one.
    before: usize,
}

impl Loan {
    /// The call begins.
    pub(crate) fn begin() -> Self {
        Self { before: MEMORY.with_borrow(|memory| memory.lent.len()) }
    }

    /// The call has returned `size` bytes at `data`. None if they are not in memory that was lent for it.
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

/// Lends the host `size` bytes for the call under way.
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

/// Keeps free memory for later answers.
pub(crate) fn reuse(spare: Vec<u8>) {
    MEMORY.with_borrow_mut(|memory| memory.reuse(spare));
}
