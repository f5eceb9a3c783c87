//! What runs the module: the host is the same over each runtime of WebAssembly that does this.

use super::host::Host;

/// A runtime that has compiled the module.
pub trait Runtime: Sync {
    /// The names of the functions that the module imports.
    fn imports(&self) -> &[String];
    /// The names of those that it exports.
    fn exports(&self) -> &[String];
    /// A VM of the module, in which [`answer`](super::answer) is every function that it imports; or why there is none.
    fn start(&self, host: Host) -> Result<Box<dyn Vm>, String>;
}

/// A VM and its host, between callbacks or while the module calls its host.
pub trait Vm {
    /// The host.
    fn host(&self) -> &Host;
    /// The host, to change it.
    fn host_mut(&mut self) -> &mut Host;
    /// The module's linear memory.
    fn memory(&mut self) -> &mut [u8];
    /// Calls what the module exports under this name. What that returns, or why it trapped.
    fn call(&mut self, export: &str, args: &[u32]) -> Result<Option<u32>, String>;
}
