//! Both targets on inputs that are the same each time, and on what a search has left in `corpus` and `artifacts`.

use std::fs;
use std::path::Path;

use arbitrary::{Arbitrary, Unstructured};
use weir_fuzz::{matcher, parser};

/// Generated inputs of a target.
const INPUTS: u64 = 2_000;
/// The longest of them, in bytes: as long as those of `make fuzz`.
const BYTES_MAX: usize = 4_096;

#[test]
fn any_input_is_parsed_within_bounds() {
    run("parser", parser::run);
}

#[test]
fn the_index_agrees_with_the_conditions() {
    run("matcher", matcher::run);
}

fn run<Input: for<'a> Arbitrary<'a>>(target: &str, run: impl Fn(&Input)) {
    for input in saved(target).chain((0..INPUTS).map(generated)) {
        if let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(&input)) {
            run(&input);
        }
    }
}

fn generated(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let len = random.usize(..=BYTES_MAX);
    (0..len).map(|_| random.u8(..)).collect()
}

/// The inputs that libFuzzer keeps of a target, if it has ever run here.
fn saved(target: &str) -> impl Iterator<Item = Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["corpus", "artifacts"].map(|kind| root.join(kind).join(target));
    folders.into_iter().flat_map(fs::read_dir).flatten().flatten().flat_map(|file| fs::read(file.path()))
}
