#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: weir_fuzz::parser::Input| weir_fuzz::parser::run(&input));
