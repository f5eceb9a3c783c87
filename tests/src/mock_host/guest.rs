//! A VM, and its memory as a host function reads and writes it.

use std::ops::Range;

use super::host::Host;

/// The reason why a host function ends the callback that the module is in.
pub(super) type Error = String;

/// A VM and its host, between callbacks or while the module calls its host.
pub(super) trait Vm {
    /// The host.
    fn host(&self) -> &Host;
    /// The host, to change it.
    fn host_mut(&mut self) -> &mut Host;
    /// The module's linear memory.
    fn memory(&mut self) -> &mut [u8];
    /// Calls what the module exports under this name. What that returns, or why it trapped.
    fn call(&mut self, export: &str, args: &[u32]) -> Result<Option<u32>, Error>;
}

/// A call of the module into the host: its memory, and the host's state.
pub(super) struct Guest<'a>(pub(super) &'a mut dyn Vm);

impl Guest<'_> {
    pub(super) fn host(&mut self) -> &mut Host {
        self.0.host_mut()
    }

    /// Bytes of the module. Those outside its memory are the module's error, and end the call.
    pub(super) fn bytes(&mut self, at: u32, size: u32) -> Result<Vec<u8>, Error> {
        let memory = self.0.memory();
        let bytes = range(at, size as usize).and_then(|range| memory.get(range));
        let complaint = || format!("the module named {size} bytes at {at}, outside its memory");
        bytes.map(<[u8]>::to_vec).ok_or_else(complaint)
    }

    pub(super) fn text(&mut self, at: u32, size: u32) -> Result<String, Error> {
        String::from_utf8(self.bytes(at, size)?).map_err(|_| "the module gave text that is none".into())
    }

    pub(super) fn u32(&mut self, at: u32) -> Result<u32, Error> {
        let bytes = self.bytes(at, 4)?;
        Ok(bytes.iter().rev().fold(0, |n, byte| n << 8 | u32::from(*byte)))
    }

    pub(super) fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), Error> {
        let memory = self.0.memory();
        let there = range(at, bytes.len()).and_then(|range| memory.get_mut(range));
        let complaint = || format!("the module asked for an answer at {at}, outside its memory");
        there.ok_or_else(complaint)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Hands `bytes` over in memory that the module allocates for them.
    pub(super) fn give(&mut self, bytes: &[u8], data_at: u32, size_at: u32) -> Result<(), Error> {
        let size = u32::try_from(bytes.len()).map_err(|_| "more bytes than a module can hold")?;
        // As real hosts do, nothing is allocated for nothing.
        let data = if size == 0 { 0 } else { self.allocate(size)? };
        self.write(data, bytes)?;
        self.write(data_at, &data.to_le_bytes())?;
        self.write(size_at, &size.to_le_bytes())
    }

    /// Asks the module for memory.
    pub(super) fn allocate(&mut self, size: u32) -> Result<u32, Error> {
        self.host().lent += 1;
        let place = self.call("proxy_on_memory_allocate", &[size])?;
        place.ok_or_else(|| "the module's allocator returns nothing".into())
    }

    /// Calls the module back.
    pub(super) fn call(&mut self, export: &str, args: &[u32]) -> Result<Option<u32>, Error> {
        self.host().count(export);
        self.0.call(export, args)
    }

    /// A serialized map: a count, sizes, then names and values, each ended by NUL.
    pub(super) fn map(&mut self, at: u32, size: u32) -> Result<Vec<(String, String)>, Error> {
        let malformed = || Error::from("the module gave a malformed map");
        let bytes = self.bytes(at, size)?;
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        let number = |at: usize| -> Option<usize> {
            let four = bytes.get(at..at + 4)?.try_into().ok()?;
            usize::try_from(u32::from_le_bytes(four)).ok()
        };
        let pairs = number(0).ok_or_else(malformed)?;
        let mut end = 4 + 8 * pairs;
        let mut take = |size: usize| -> Option<String> {
            let text = bytes.get(end..end + size)?.to_vec();
            (bytes.get(end + size) == Some(&0)).then_some(())?;
            end += size + 1;
            String::from_utf8(text).ok()
        };
        (0..pairs)
            .map(|i| Some((take(number(4 + 8 * i)?)?, take(number(8 + 8 * i)?)?)))
            .collect::<Option<_>>()
            .ok_or_else(malformed)
    }
}

fn range(at: u32, size: usize) -> Option<Range<usize>> {
    let at = at as usize;
    Some(at..at.checked_add(size)?)
}
