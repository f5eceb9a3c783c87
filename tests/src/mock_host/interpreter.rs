//! The module's interpreter, which gives the same run for the same script on every machine, and begins a
//! run in no time.

use std::path::Path;
use std::sync::LazyLock;

use wasmi::{AsContextMut, Caller, Engine, Error, ExternType, Func, Instance, Linker, Memory, Module, Store, Val};

use super::guest::Vm;
use super::host::Host;
use super::imports::answer;
use crate::artefact;

/// The module as the interpreter has it.
struct Filter {
    module: Module,
    imports: Vec<String>,
    exports: Vec<String>,
}

/// Read once per test process.
static FILTER: LazyLock<Filter> = LazyLock::new(|| Filter::of(&artefact::filter_wasm()));

/// The names of the functions that the module imports.
pub fn imports() -> &'static [String] {
    &FILTER.imports
}

/// The names of those that it exports.
pub fn exports() -> &'static [String] {
    &FILTER.exports
}

/// A VM of the module, in which [`answer`] is every function that it imports; or why there is none.
pub(super) fn start(host: Host) -> Result<Box<dyn Vm>, String> {
    let between = FILTER.begin(host).map_err(|error| error.to_string())?;
    Ok(Box::new(between))
}

impl Filter {
    fn of(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let module =
            Module::new(&Engine::default(), &bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
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
                return Err(Error::new("an import is no function"));
            };
            let name = import.name().to_owned();
            linker.func_new(import.module(), import.name(), kind.clone(), move |caller, args, results| {
                let args: Vec<u64> = args.iter().map(number).collect();
                let status = answer(&mut Within::of(caller)?, &name, &args).map_err(Error::new)?;
                results.fill(Val::I32(status.cast_signed()));
                Ok(())
            })?;
        }
        let instance = linker.instantiate_and_start(&mut store, &self.module)?;
        let memory = instance.get_memory(&store, "memory").ok_or_else(no_memory)?;
        Ok(Between { store, instance, memory })
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
        let function = self.instance.get_func(&self.store, export);
        call(&mut self.store, function, args)
    }
}

/// While the module calls its host.
struct Within<'a> {
    caller: Caller<'a, Host>,
    memory: Memory,
}

impl<'a> Within<'a> {
    fn of(caller: Caller<'a, Host>) -> Result<Self, Error> {
        let memory = caller.get_export("memory").and_then(wasmi::Extern::into_memory).ok_or_else(no_memory)?;
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
        let function = self.caller.get_export(export).and_then(wasmi::Extern::into_func);
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
    function.call(&mut context, &args, &mut results).map_err(|error| error.to_string())?;
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
    Error::new("the module exports no memory")
}
