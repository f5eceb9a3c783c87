//! Files that commands read.

use std::fs::File;
use std::io::{self, Read as _};

use weir_rules::document::DOCUMENT_BYTES_MAX;

/// Maximum size of a file: a plugin configuration, which is a rule set and some more fields.
pub(crate) const FILE_BYTES_MAX: usize = 2 * DOCUMENT_BYTES_MAX;
/// File name that stands for the standard input.
pub(crate) const STDIN: &str = "-";

/// Reads the file at `path`, or the standard input. Of a larger file it returns `bytes_max + 1` bytes.
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
