//! Parts of a path.

/// The segments of a path that are not empty.
pub(super) fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    path.split(|&b| b == b'/').filter(|segment| !segment.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn empty_segments_do_not_count() {
        assert_eq!(segments(b"//a/b//c/").collect::<Vec<_>>(), vec![b"a", b"b", b"c"]);
        assert_eq!(segments(b"/").count(), 0);
    }
}
