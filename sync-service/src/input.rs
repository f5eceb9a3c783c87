//! Files that commands read.

use std::fs::File;
use std::io::{self, Read as _};

use weir_rules::document::DOCUMENT_BYTES_MAX;

/// The largest file: a plugin configuration, which is a rule set and some more fields.
pub(crate) const FILE_BYTES_MAX: usize = 2 * DOCUMENT_BYTES_MAX;
/// Stands for the standard input where a command takes a file.
pub(crate) const STDIN: &str = "-";

/// The bytes of the file at `path`, or of the standard input; if there are more than `bytes_max`, just enough of them to
/// tell.
pub(crate) fn read(path: &str, bytes_max: usize) -> io::Result<Vec<u8>> {
    let most = bytes_max as u64 + 1;
    let mut bytes = Vec::new();
    if path == STDIN {
        io::stdin().take(most).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(most).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
