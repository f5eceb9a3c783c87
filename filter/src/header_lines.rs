//! All lines of the headers of a request or response. By name, a host returns only the first line of a
//! header; the others are only in the list of all pairs.

use weir_rules::request::LINE_BREAK;

use crate::host::{self, Headers};
use crate::memory;

/// The pairs of a header map, in the host's form: count, sizes, then names and values, each terminated by
/// NUL.
pub(crate) struct HeaderLines(Vec<u8>);

impl HeaderLines {
    /// Fetches the pairs; `None` if the host returns none, or malformed ones.
    pub(crate) fn of(map: Headers) -> Option<Self> {
        let lines = Self(host::headers(map).ok()?);
        lines.are_whole().then_some(lines)
    }

    /// Writes the lines of the header to `room`, with [`LINE_BREAK`] between them; false if there are none.
    pub(crate) fn write(&self, name: &str, room: &mut Vec<u8>) -> bool {
        room.clear();
        let mut count = 0;
        let sizes = self.sizes().unwrap_or_default();
        let mut rest = self.0.get(4 + sizes.len()..).unwrap_or_default();
        for (name_size, size) in pairs_of(sizes) {
            let Some((pair, behind)) = rest.split_at_checked(size) else { break };
            rest = behind;
            let found = pair.get(..name_size).unwrap_or_default();
            if name_size == name.len() && found.eq_ignore_ascii_case(name.as_bytes()) {
                if count > 0 {
                    room.push(LINE_BREAK);
                }
                count += 1;
                room.extend_from_slice(pair.get(name_size + 1..pair.len() - 1).unwrap_or_default());
            }
        }
        count > 0
    }

    /// The sizes of each name and its value; `None` if they are incomplete.
    fn sizes(&self) -> Option<&[u8]> {
        let (count, rest) = self.0.split_first_chunk()?;
        rest.get(..(u32::from_le_bytes(*count) as usize).checked_mul(8)?)
    }

    /// True if the sizes add up to the length of the bytes.
    fn are_whole(&self) -> bool {
        self.sizes().is_some_and(|sizes| {
            let all = pairs_of(sizes).map(|(_, size)| size);
            all.fold(4 + sizes.len(), usize::saturating_add) == self.0.len()
        })
    }
}

impl Drop for HeaderLines {
    fn drop(&mut self) {
        memory::reuse(std::mem::take(&mut self.0));
    }
}

/// The size of each name, and the total size of its pair.
fn pairs_of(sizes: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    let size = |bytes: [u8; 4]| u32::from_le_bytes(bytes) as usize;
    sizes.chunks_exact(8).filter_map(move |pair| {
        let (name, value) = pair.split_first_chunk()?;
        let (name, value) = (size(*name), size(*value.first_chunk()?));
        Some((name, name.saturating_add(value).saturating_add(2)))
    })
}
