//! Destinations of the values of a key's parts: a hash, a list to show, a look-up.

use alloc::vec::Vec;

use super::fleet_secret::PartsHash;
use crate::matching::Texts;

/// Receives the values that a request has for the parts of a key.
pub(super) trait PartSink {
    fn put(&mut self, value: &[u8]);
    /// Announces the number of values that follow for one part.
    fn put_count(&mut self, count: usize);
}

impl PartSink for PartsHash {
    fn put(&mut self, value: &[u8]) {
        self.put(value);
    }

    fn put_count(&mut self, count: usize) {
        self.put_count(count);
    }
}

impl PartSink for Vec<Vec<u8>> {
    fn put(&mut self, value: &[u8]) {
        self.push(value.to_vec());
    }

    fn put_count(&mut self, _: usize) {}
}

/// Looks up the value that is put. Leading segments of a path are joined by `/` first.
pub(super) struct Among<'a> {
    texts: &'a Texts,
    is_found: bool,
    segments: Option<Vec<u8>>,
}

impl<'a> Among<'a> {
    pub(super) fn new(texts: &'a Texts) -> Self {
        Self { texts, is_found: false, segments: None }
    }

    pub(super) fn is_found(&self) -> bool {
        self.segments.as_ref().map_or(self.is_found, |segments| self.texts.contains(segments))
    }
}

impl PartSink for Among<'_> {
    fn put(&mut self, value: &[u8]) {
        let Some(segments) = &mut self.segments else {
            self.is_found = self.texts.contains(value);
            return;
        };
        if !segments.is_empty() {
            segments.push(b'/');
        }
        segments.extend_from_slice(value);
    }

    fn put_count(&mut self, _: usize) {
        self.segments = Some(Vec::new());
    }
}
