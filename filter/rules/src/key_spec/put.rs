//! What the values of a key's parts are handed to.

/// Where the values of a request's parts go.
pub(super) trait Put {
    fn put(&mut self, value: &[u8]);
    /// How many values follow.
    fn put_count(&mut self, count: usize);
}
