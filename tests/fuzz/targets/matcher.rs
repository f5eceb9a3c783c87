#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: weir_fuzz::matcher::Input| weir_fuzz::matcher::run(&input));
