//! The VM's memory, as a host function reads and writes it.

use super::host::Host;
use crate::runtime::{self, Caller, Error, Extern, Memory, WasmParams, WasmResults};

/// A call of the module into the host: its memory, and the host's state.
pub(super) struct Guest<'a> {
    caller: Caller<'a, Host>,
    memory: Memory,
}

impl<'a> Guest<'a> {
    pub(super) fn new(mut caller: Caller<'a, Host>) -> Result<Self, Error> {
        let memory = runtime::export(&mut caller, "memory").and_then(Extern::into_memory);
        let memory = memory.ok_or_else(|| runtime::error("the module exports no memory"))?;
        Ok(Self { caller, memory })
    }

    pub(super) fn host(&mut self) -> &mut Host {
        self.caller.data_mut()
    }

    /// Bytes of the module. Those outside its memory are the module's error, and end the call.
    pub(super) fn bytes(&self, at: u32, size: u32) -> Result<Vec<u8>, Error> {
        let (at, size) = (at as usize, size as usize);
        let memory = self.memory.data(&self.caller);
        let bytes = at.checked_add(size).and_then(|end| memory.get(at..end));
        let complaint =
            || runtime::error(format!("the module named {size} bytes at {at}, outside its memory"));
        bytes.map(<[u8]>::to_vec).ok_or_else(complaint)
    }

    pub(super) fn text(&self, at: u32, size: u32) -> Result<String, Error> {
        String::from_utf8(self.bytes(at, size)?)
            .map_err(|_| runtime::error("the module gave text that is none"))
    }

    pub(super) fn u32(&self, at: u32) -> Result<u32, Error> {
        let bytes = self.bytes(at, 4)?;
        Ok(bytes.iter().rev().fold(0, |n, byte| n << 8 | u32::from(*byte)))
    }

    pub(super) fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), Error> {
        let written = self.memory.write(&mut self.caller, at as usize, bytes);
        written.map_err(|_| {
            runtime::error(format!("the module asked for an answer at {at}, outside its memory"))
        })
    }

    /// Hands `bytes` over in memory that the module allocates for them.
    pub(super) fn give(&mut self, bytes: &[u8], data_at: u32, size_at: u32) -> Result<(), Error> {
        let size =
            u32::try_from(bytes.len()).map_err(|_| runtime::error("more bytes than a module can hold"))?;
        // As real hosts do, nothing is allocated for nothing.
        let data = if size == 0 { 0 } else { self.allocate(size)? };
        self.write(data, bytes)?;
        self.write(data_at, &data.to_le_bytes())?;
        self.write(size_at, &size.to_le_bytes())
    }

    /// Asks the module for memory.
    pub(super) fn allocate(&mut self, size: u32) -> Result<u32, Error> {
        self.host().lent += 1;
        self.call("proxy_on_memory_allocate", size)
    }

    /// Calls the module back.
    pub(super) fn call<P: WasmParams, R: WasmResults>(&mut self, name: &str, params: P) -> Result<R, Error> {
        let export = runtime::export(&mut self.caller, name).and_then(Extern::into_func);
        let export = export.ok_or_else(|| runtime::error(format!("the module exports no {name}")))?;
        export.typed::<P, R>(&self.caller)?.call(&mut self.caller, params)
    }

    /// A serialized map: a count, sizes, then names and values, each ended by NUL.
    pub(super) fn map(&self, at: u32, size: u32) -> Result<Vec<(String, String)>, Error> {
        let malformed = || runtime::error("the module gave a malformed map");
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
