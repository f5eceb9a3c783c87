//! What runs the module in the mock host: an interpreter, which gives the same run for the same script on every machine. All
//! that its API says otherwise than wasmtime's is here, so that a compiler can take its place.

pub(crate) use wasmi::{
    Caller, Engine, Error, Extern, ExternType, Instance, Linker, Memory, Module, Store, Val, WasmParams,
    WasmResults,
};

/// An error of a host function, which ends the callback that the module is in.
pub(crate) fn error(text: impl Into<String>) -> Error {
    Error::new(text)
}

/// What an error says.
pub(crate) fn told(error: &Error) -> String {
    error.to_string()
}

/// The module, started.
pub(crate) fn instantiate<T>(
    linker: &Linker<T>,
    store: &mut Store<T>,
    module: &Module,
) -> Result<Instance, Error> {
    linker.instantiate_and_start(store, module)
}

/// What the calling module exports under this name.
pub(crate) fn export<T>(caller: &mut Caller<'_, T>, name: &str) -> Option<Extern> {
    caller.get_export(name)
}
