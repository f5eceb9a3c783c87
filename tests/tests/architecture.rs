//! The files of a crate import one another in one direction: no file imports one that imports it, directly or through
//! others.
//!
//! A file imports what it names in `use` and in paths that begin with `crate`, `super`, `self` or one of its modules.
//! A name that a module only passes on (`pub use`) counts as the file's that it is from. So a parent that declares its
//! children and re-exports from them is in no circle with them; one whose own items the children use is, if it uses
//! theirs. Tests may import as they like.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The crates, by the folders of their sources.
const CRATES: [&str; 7] = [
    "filter/native/src",
    "filter/protocol/src",
    "filter/rules/src",
    "filter/core/src",
    "filter/src",
    "sync-service/core/src",
    "sync-service/src",
];
/// Each crate has more imports between its files than this, or they are not found in it any more.
const IMPORTS_MIN: usize = 3;

/// A module's path from its crate's root, which is empty.
type Module = Vec<String>;
/// Which files import which, by their modules' paths.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// What a file says of other files.
#[derive(Default)]
struct Source {
    /// Each path in a `use`, and the name that it goes by; `*` is a name.
    uses: Vec<(Vec<String>, String)>,
    /// Each path elsewhere.
    paths: Vec<Vec<String>>,
}

type Sources = BTreeMap<Module, Source>;

/// The words and signs of a file without its comments, texts and tests.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let (mut tokens, mut at) = (Vec::new(), 0);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    while let Some(&c) = chars.get(at) {
        let rest = &chars[at..];
        let begins = |sign: &str| sign.chars().eq(rest.iter().copied().take(sign.len()));
        let find = |from: usize, ends: &str| {
            let ends: Vec<char> = ends.chars().collect();
            let found = rest[from..].windows(ends.len()).position(|window| window == ends);
            found.map_or(rest.len(), |found| from + found + ends.len())
        };
        at += if begins("//") {
            find(2, "\n")
        } else if begins("/*") {
            find(2, "*/")
        } else if begins("r\"") {
            find(2, "\"")
        } else if begins("r#\"") {
            find(3, "\"#")
        } else if c == '"' {
            let mut len = 1;
            while let Some(&c) = rest.get(len).filter(|c| **c != '"') {
                len += if c == '\\' { 2 } else { 1 };
            }
            len + 1
        } else if begins("'\\") {
            find(3, "'")
        } else if c == '\'' && rest.get(2) == Some(&'\'') {
            3
        } else if begins("::") {
            tokens.push("::".to_owned());
            2
        } else if is_word(c) {
            let word: String = rest.iter().copied().take_while(|c| is_word(*c)).collect();
            tokens.push(word.clone());
            word.chars().count()
        } else {
            if !c.is_whitespace() {
                tokens.push(c.to_string());
            }
            1
        };
    }
    without_tests(&tokens)
}

/// Without the items behind `#[cfg(test)]`.
fn without_tests(tokens: &[String]) -> Vec<String> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        if !tokens[at..].iter().map(String::as_str).take(MARK.len()).eq(MARK) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        at += MARK.len();
        let mut depth = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token.as_str() {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            if depth == 0 && matches!(token.as_str(), ";" | "}") {
                break;
            }
        }
    }
    kept
}

/// Reads the tree of a `use` at `at`, behind `before`; returns where it ends.
fn read_use(
    tokens: &[String],
    mut at: usize,
    before: &[String],
    uses: &mut Vec<(Vec<String>, String)>,
) -> usize {
    let mut path = before.to_vec();
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = read_use(tokens, at, &path, uses);
                    at += usize::from(tokens.get(at).is_some_and(|token| token == ","));
                }
                return at + 1;
            }
            "," | "}" | ";" => break,
            "as" => {
                uses.push((path, tokens[at + 1].clone()));
                return at + 2;
            }
            "::" => {}
            "self" if !path.is_empty() => {}
            word => path.push(word.to_owned()),
        }
        at += 1;
    }
    let name = path.last().cloned().unwrap_or_default();
    uses.push((path, name));
    at
}

impl Source {
    fn read(text: &str) -> Self {
        let (tokens, mut source, mut at) = (tokens(text), Self::default(), 0);
        while at < tokens.len() {
            // `use<'a>` says what a return type captures.
            if tokens[at] == "use" && tokens.get(at + 1).is_some_and(|token| token != "<") {
                at = read_use(&tokens, at + 1, &[], &mut source.uses);
                continue;
            }
            let mut path = vec![tokens[at].clone()];
            at += 1;
            while tokens.get(at).is_some_and(|token| token == "::")
                && let Some(word) = tokens.get(at + 1)
            {
                path.push(word.clone());
                at += 2;
            }
            source.paths.extend((path.len() > 1).then_some(path));
        }
        source
    }
}

/// The file that `path`, in the file of `module`, leads to; none if to another crate.
fn target(sources: &Sources, module: &Module, path: &[String], depth: usize) -> Option<Module> {
    let child = |module: &Module, name: &str| -> Option<Module> {
        let child: Module = module.iter().cloned().chain([name.to_owned()]).collect();
        sources.contains_key(&child).then_some(child)
    };
    let (first, mut rest) = path.split_first()?;
    let mut at = match first.as_str() {
        "crate" => Module::new(),
        "self" => module.clone(),
        "super" => module[..module.len().checked_sub(1)?].to_vec(),
        name => match child(module, name) {
            Some(child) => child,
            // A module that was imported by its name.
            None => return passed_on(sources, module, name, rest, depth),
        },
    };
    while let Some((name, behind)) = rest.split_first() {
        rest = behind;
        at = match child(&at, name) {
            Some(child) => child,
            None if name == "super" => at[..at.len().checked_sub(1)?].to_vec(),
            None if name == "*" => return Some(at),
            None => return passed_on(sources, &at, name, rest, depth).or(Some(at)),
        };
    }
    Some(at)
}

/// Where `name`, which the file of `module` imports, and `rest` behind it lead to.
fn passed_on(
    sources: &Sources,
    module: &Module,
    name: &str,
    rest: &[String],
    depth: usize,
) -> Option<Module> {
    let (path, _) = sources[module].uses.iter().find(|(_, known)| known == name)?;
    let path: Vec<String> = path.iter().chain(rest).cloned().collect();
    if depth == 0 { None } else { target(sources, module, &path, depth - 1) }
}

/// Whether the path leads to a module, and not to something in it.
fn is_module(sources: &Sources, module: &Module, path: &[String]) -> bool {
    let of = |end: usize| target(sources, module, &path[..end], 8);
    let last = path.last().map(String::as_str).unwrap_or_default();
    of(path.len()).is_some_and(|found| found.last().is_some_and(|name| name == last))
}

fn imports(sources: &Sources) -> Imports {
    let mut imports = Imports::new();
    for (module, source) in sources {
        // What a module is imported for shows in the paths that begin with its name.
        let named = source.uses.iter().map(|(path, _)| path);
        let named = named.filter(|path| !is_module(sources, module, path));
        let found = named.chain(&source.paths).filter_map(|path| target(sources, module, path, 8));
        imports.insert(module.clone(), found.filter(|found| found != module).collect());
    }
    imports
}

/// The shortest way from `from` back to it.
fn circle(imports: &Imports, from: &Module) -> Option<Vec<Module>> {
    let (mut seen, mut ways) = (BTreeSet::new(), vec![vec![from.clone()]]);
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for next in way.last().and_then(|last| imports.get(last)).into_iter().flatten() {
                let way: Vec<Module> = way.iter().cloned().chain([next.clone()]).collect();
                if next == from {
                    return Some(way);
                }
                if seen.insert(next.clone()) {
                    longer.push(way);
                }
            }
        }
        ways = longer;
    }
    None
}

/// Every file's shortest circle, each circle once.
fn circles(imports: &Imports) -> Vec<String> {
    let mut circles = BTreeMap::<BTreeSet<Module>, String>::new();
    for circle in imports.keys().filter_map(|from| circle(imports, from)) {
        let name = |module: &Module| if module.is_empty() { "lib".to_owned() } else { module.join("/") };
        let text = circle.iter().map(name).collect::<Vec<_>>().join(" -> ");
        circles.entry(circle.into_iter().collect()).or_insert(text);
    }
    circles.into_values().collect()
}

/// Reads the files in `folder`, which is `module`'s.
fn read_folder(folder: &Path, module: &Module, sources: &mut Sources) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("a file").path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let inside = |name: String| module.iter().cloned().chain([name]).collect::<Module>();
        if path.is_dir() && name != "tests" {
            read_folder(&path, &inside(name), sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests" {
            let module = match name.as_str() {
                // A program beside its library imports that as another crate.
                "main" => continue,
                "lib" | "mod" => module.clone(),
                _ => inside(name),
            };
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            sources.insert(module, Source::read(&text));
        }
    }
}

fn sources(of: &str) -> Sources {
    let mut sources = Sources::new();
    read_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(of), &Module::new(), &mut sources);
    sources
}

#[test]
fn no_file_imports_one_that_imports_it() {
    let mut wrong = Vec::new();
    for of in CRATES {
        let imports = imports(&sources(of));
        let count: usize = imports.values().map(BTreeSet::len).sum();
        assert!(count > IMPORTS_MIN, "{of}: expected imports between its files, found {count}");
        wrong.extend(circles(&imports).into_iter().map(|circle| format!("{of}: {circle}")));
    }
    assert!(wrong.is_empty(), "expected no circles, found {}:\n{}", wrong.len(), wrong.join("\n"));
}

fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    let module = |name: &str| name.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    circles(&imports(&files.iter().map(|(name, text)| (module(name), Source::read(text))).collect()))
}

#[test]
fn a_circle_is_found_however_it_is_written() {
    for (a, b) in [
        ("use crate::b::B; pub struct A;", "use crate::a::A; pub struct B;"),
        ("pub struct A; fn f() { crate::b::g(); }", "use super::a::{self}; fn g() -> a::A { a::A }"),
        ("use crate::{b::{B as C}, x}; pub struct A;", "pub(crate) use crate::a::A;"),
        ("use super::b; fn f() { b::g() }", "use crate::a::*; fn g() {}"),
    ] {
        assert_eq!(circles_of(&[("", "mod a; mod b;"), ("a", a), ("b", b)]), ["a -> b -> a"], "{a} {b}");
    }
    let three = [("", ""), ("a", "use crate::b::B;"), ("b", "use crate::c::C;"), ("c", "use crate::a::A;")];
    assert_eq!(circles_of(&three), ["a -> b -> c -> a"]);
    let calls_back =
        [("p", "mod c; use c::C; pub struct P;"), ("p/c", "use super::P; pub struct C;"), ("", "")];
    assert_eq!(circles_of(&calls_back), ["p -> p/c -> p"]);
}

#[test]
fn what_is_no_circle_is_not_taken_for_one() {
    let passes_on = [
        ("", "pub mod p;"),
        ("p", "mod c; mod d; pub use c::C; pub(super) use d::D;"),
        ("p/c", "use super::D; use crate::p::d; pub struct C;"),
        ("p/d", "// use super::C;\nconst T: &str = \"use super::C;\"; pub struct D;"),
    ];
    assert_eq!(circles_of(&passes_on), Vec::<String>::new());
    let tests_only = [
        ("", ""),
        ("a", "use crate::b::B; #[cfg(test)] mod tests { use super::*; }"),
        ("b", "#[cfg(test)] use crate::a::A; fn f(_: &'static str, c: char) -> bool { c == '\"' }"),
    ];
    assert_eq!(circles_of(&tests_only), Vec::<String>::new());
}
