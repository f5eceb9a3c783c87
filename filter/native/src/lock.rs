//! Locks that a panic does not close.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the lock guards. A panic while it was held left it as whole as it was.
pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
