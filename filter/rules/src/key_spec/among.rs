//! Looks a part's value up in a list.

use alloc::vec::Vec;

use super::put::Put;
use crate::matching::Texts;

/// Looks up the value that is put. Leading segments of a path are joined to one text by `/`.
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

impl Put for Among<'_> {
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
