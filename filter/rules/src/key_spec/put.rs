//! A receiver for the values of a key's parts.

/// Receives the values that a request has for the parts of a key.
pub(super) trait Put {
    fn put(&mut self, value: &[u8]);
    /// Says how many values follow.
    fn put_count(&mut self, count: usize);
}
