//! wasmtime as a runtime of the mock host: a compiler, where the tests of the main workspace have an interpreter.

use std::path::Path;
use std::sync::LazyLock;

use wasmtime::{
    AsContextMut, Caller, Engine, Error, Extern, ExternType, Func, Instance, Linker, Memory, Module, Store,
    Val,
};
use weir_tests::artefact;
use weir_tests::mock_host::{Host, Runtime, Vm, answer};

/// A module, compiled.
struct Compiler {
    module: Module,
    imports: Vec<String>,
    exports: Vec<String>,
}

/// wasmtime with the module, which is compiled once per test process.
pub fn compiler() -> &'static dyn Runtime {
    static FILTER: LazyLock<Compiler> = LazyLock::new(|| Compiler::of(&artefact::filter_wasm()));
    &*FILTER
}

impl Compiler {
    fn of(path: &Path) -> Self {
        let module = Module::from_file(&Engine::default(), path)
            .unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
        let imports = module.imports().map(|import| import.name().to_owned()).collect();
        let functions = module.exports().filter(|export| matches!(export.ty(), ExternType::Func(_)));
        let exports = functions.map(|export| export.name().to_owned()).collect();
        Self { module, imports, exports }
    }

    fn begin(&self, host: Host) -> Result<Between, Error> {
        let engine = self.module.engine();
        let (mut store, mut linker) = (Store::new(engine, host), Linker::new(engine));
        for import in self.module.imports() {
            let ExternType::Func(kind) = import.ty() else {
                return Err(Error::msg("an import is no function"));
            };
            let name = import.name().to_owned();
            linker.func_new(import.module(), import.name(), kind, move |caller, args, results| {
                let args: Vec<u64> = args.iter().map(number).collect();
                let status = answer(&mut Within::of(caller)?, &name, &args).map_err(Error::msg)?;
                results.fill(Val::I32(status.cast_signed()));
                Ok(())
            })?;
        }
        let instance = linker.instantiate(&mut store, &self.module)?;
        let memory = instance.get_memory(&mut store, "memory").ok_or_else(no_memory)?;
        Ok(Between { store, instance, memory })
    }
}

impl Runtime for Compiler {
    fn imports(&self) -> &[String] {
        &self.imports
    }

    fn exports(&self) -> &[String] {
        &self.exports
    }

    fn start(&self, host: Host) -> Result<Box<dyn Vm>, String> {
        let between = self.begin(host).map_err(|error| format!("{error:?}"))?;
        Ok(Box::new(between))
    }
}

/// Between callbacks.
struct Between {
    store: Store<Host>,
    instance: Instance,
    memory: Memory,
}

impl Vm for Between {
    fn host(&self) -> &Host {
        self.store.data()
    }

    fn host_mut(&mut self) -> &mut Host {
        self.store.data_mut()
    }

    fn memory(&mut self) -> &mut [u8] {
        self.memory.data_mut(&mut self.store)
    }

    fn call(&mut self, export: &str, args: &[u32]) -> Result<Option<u32>, String> {
        let function = self.instance.get_func(&mut self.store, export);
        call(&mut self.store, function, args)
    }
}

/// While the module calls its host.
struct Within<'a> {
    caller: Caller<'a, Host>,
    memory: Memory,
}

impl<'a> Within<'a> {
    fn of(mut caller: Caller<'a, Host>) -> Result<Self, Error> {
        let memory = caller.get_export("memory").and_then(Extern::into_memory).ok_or_else(no_memory)?;
        Ok(Self { caller, memory })
    }
}

impl Vm for Within<'_> {
    fn host(&self) -> &Host {
        self.caller.data()
    }

    fn host_mut(&mut self) -> &mut Host {
        self.caller.data_mut()
    }

    fn memory(&mut self) -> &mut [u8] {
        self.memory.data_mut(&mut self.caller)
    }

    fn call(&mut self, export: &str, args: &[u32]) -> Result<Option<u32>, String> {
        let function = self.caller.get_export(export).and_then(Extern::into_func);
        call(&mut self.caller, function, args)
    }
}

fn call(
    mut context: impl AsContextMut<Data = Host>,
    function: Option<Func>,
    args: &[u32],
) -> Result<Option<u32>, String> {
    let function = function.ok_or("the module exports no such function")?;
    let args: Vec<Val> = args.iter().map(|arg| Val::I32(arg.cast_signed())).collect();
    let mut results = vec![Val::I32(0); function.ty(&context).results().len()];
    function.call(&mut context, &args, &mut results).map_err(|error| format!("{error:?}"))?;
    Ok(results.first().map(|result| u32::try_from(number(result)).unwrap_or(0)))
}

fn number(value: &Val) -> u64 {
    match value {
        Val::I32(n) => u64::from(n.cast_unsigned()),
        Val::I64(n) => n.cast_unsigned(),
        _ => 0,
    }
}

fn no_memory() -> Error {
    Error::msg("the module exports no memory")
}
