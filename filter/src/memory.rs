//! Memory for what the host answers, used again and again: a request is decided without asking the allocator.
//!
//! A host that returns bytes asks the module for memory first, through an export, and names that when it returns. It is
//! kept here meanwhile, so an answer is taken over only where it is in memory that was lent for it.

use std::cell::RefCell;

/// The most pieces that are kept.
const SPARE_MAX: usize = 4;
/// The longest of them, in bytes: what is longer came but once in a while.
const SPARE_BYTES_MAX: usize = 4_096;

thread_local! {
    static MEMORY: RefCell<Memory> = const { RefCell::new(Memory { lent: None, spare: Vec::new() }) };
}

struct Memory {
    /// What the host was lent last, until its call returns.
    lent: Option<Vec<u8>>,
    /// What nobody needs now.
    spare: Vec<Vec<u8>>,
}

/// Lends the host `size` bytes, for the call that is under way to return.
pub(crate) fn lend(size: usize) -> *mut u8 {
    MEMORY.with_borrow_mut(|memory| {
        let fits = memory.spare.iter().position(|spare| spare.capacity() >= size);
        let mut lent = fits.map_or_else(Vec::new, |at| memory.spare.swap_remove(at));
        lent.resize(size, 0);
        // A host that asks again before its call returns may still write to what it got first.
        std::mem::forget(memory.lent.take());
        memory.lent.insert(lent).as_mut_ptr()
    })
}

/// What the host was lent last, if anything: its call has returned.
pub(crate) fn take_back() -> Option<Vec<u8>> {
    MEMORY.with_borrow_mut(|memory| memory.lent.take())
}

/// Keeps memory that nobody needs now for answers to come.
pub(crate) fn reuse(spare: Vec<u8>) {
    MEMORY.with_borrow_mut(|memory| {
        if (1..=SPARE_BYTES_MAX).contains(&spare.capacity()) && memory.spare.len() < SPARE_MAX {
            memory.spare.push(spare);
        }
    });
}
