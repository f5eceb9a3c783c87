//! The files of a crate import one another in one direction: no file imports one that imports it, directly or through
//! others. (Between crates the compiler sees to that.)
//!
//! A file imports the module that a path of its own beginning with `crate` or `super` leads to, up to a brace. A name
//! that a module passes on (`pub use`) counts as that module's; a child may use its ancestors. So may tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The folders with the crates.
const FOLDERS: [&str; 2] = ["filter", "sync-service"];
/// The crates' files import one another more often than this, or the imports are not found any more.
const IMPORTS_MIN: usize = 300;

/// The imports of each file, by their modules' paths from the crate's root.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Adds the modules in `folder`, which is `module`'s, with their texts up to their tests.
fn read(folder: &Path, module: &str, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("a file").path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let inside = format!("{module}::{name}");
        match (name.as_str(), path.is_dir()) {
            // A program beside its library imports that as another crate.
            ("tests" | "main" | "bin", _) => {}
            (_, true) => read(&path, &inside, files),
            _ if path.extension().is_some_and(|extension| extension != "rs") => {}
            _ => {
                let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
                let module = if matches!(name.as_str(), "lib" | "mod") { module.to_owned() } else { inside };
                files.insert(module, text);
            }
        }
    }
}

/// The longest path of a module that `path`, in the file of `module`, begins with.
fn target(files: &BTreeMap<String, String>, module: &str, path: &str) -> Option<String> {
    let (mut at, mut rest) = (module.to_owned(), path);
    if let Some(path) = path.strip_prefix("crate::") {
        (at, rest) = ("crate".to_owned(), path);
    }
    while let Some(path) = rest.strip_prefix("super::") {
        (at, rest) = (at.rsplit_once("::")?.0.to_owned(), path);
    }
    let mut parts = rest.split("::");
    while let Some(inside) = parts.next().map(|part| format!("{at}::{part}")).filter(|path| files.contains_key(path)) {
        at = inside;
    }
    Some(at)
}

fn imports(files: &BTreeMap<String, String>) -> Imports {
    let of = |(module, text): (&String, &String)| {
        let mut code: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
        code.retain(|line| !line.contains("pub use") && !line.contains(") use"));
        let code = code.join("\n");
        let words = code.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        let named = words.filter(|word| word.starts_with("crate::") || word.starts_with("super::"));
        let found = named.filter_map(|path| target(files, module, path));
        let others = found.filter(|found| found != module && !module.starts_with(&format!("{found}::")));
        (module.clone(), others.collect())
    };
    files.iter().map(of).collect()
}

/// The files left once every file is taken away that imports none of those left: the circles, and their importers.
fn circles(mut imports: Imports) -> Imports {
    loop {
        let free: BTreeSet<String> =
            imports.iter().filter(|(_, of)| of.is_empty()).map(|(module, _)| module.clone()).collect();
        if free.is_empty() {
            return imports;
        }
        imports.retain(|module, _| !free.contains(module));
        for of in imports.values_mut() {
            of.retain(|module| !free.contains(module));
        }
    }
}

#[test]
fn imports_form_no_cycle() {
    let mut count = 0;
    for folder in FOLDERS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
        let inside = fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("a folder").path());
        for root in inside.chain([folder.clone()]).map(|path| path.join("src")).filter(|src| src.is_dir()) {
            let mut files = BTreeMap::new();
            read(&root, "crate", &mut files);
            let imports = imports(&files);
            count += imports.values().map(BTreeSet::len).sum::<usize>();
            let circles = circles(imports);
            assert!(circles.is_empty(), "{}: files that import one another: {circles:#?}", root.display());
        }
    }
    assert!(count > IMPORTS_MIN, "expected imports between files, found {count}");
}
