//! Every function of the host with every status, in an interpreter and in wasmtime: no trap, a decision for each
//! request, and the same run to the byte.

use weir_conformance::compiler;
use weir_tests::conformance::{CALLS, STATUSES, difference, left_out, run, sweep};
use weir_tests::mock_host::{Answer, Runtime, Script, interpreter};

fn runtimes() -> [&'static dyn Runtime; 2] {
    [interpreter(), compiler()]
}

/// What differs between the two, or does not hold in one; none if all is well.
fn complaint(function: &str, status: u32) -> Option<String> {
    let [one, other] = runtimes().map(|runtime| sweep(runtime, function, status));
    match (one, other) {
        (Ok(one), Ok(other)) => difference(&one, &other)
            .map(|parted| format!("{function} returns {status}: the runs part\n{parted}")),
        (one, other) => one.err().or(other.err()),
    }
}

#[test]
fn the_module_holds_whatever_status_a_function_returns() {
    let complaints: Vec<_> = CALLS
        .iter()
        .flat_map(|call| STATUSES.map(|status| complaint(call.name, status)))
        .flatten()
        .collect();
    assert!(complaints.is_empty(), "{} runs do not hold:\n{}", complaints.len(), complaints.join("\n\n"));
    let [functions, statuses] = [CALLS.len(), STATUSES.len()];
    let exports = compiler().exports().len();
    println!("{exports} callbacks, {functions} functions x {statuses} statuses: two runtimes agree");
}

#[test]
fn every_function_that_a_module_imports_or_exports_is_covered() {
    let run = run(compiler(), Script::work()).unwrap();
    assert_eq!(left_out(compiler(), &run), [""; 0]);
}

/// A host that asks for all memory at once has the module trap: no other way is known.
#[test]
fn a_trap_is_seen_in_each_runtime() {
    for runtime in runtimes() {
        let greedy = Answer::Stray { asks: vec![u32::MAX], place: None, bytes: 0 };
        let script = Script::only("proxy_get_property", 3, greedy);
        let trap = run(runtime, script).err().expect("it traps");
        assert!(format!("{trap:?}").contains(" trapped: "), "{trap:?}");
    }
}

#[test]
fn one_call_with_another_answer_is_a_difference() {
    let [one, other] = runtimes();
    // It is asked for what is not there yet: status 1.
    let bad_argument = Script::only("proxy_get_shared_data", 1, Answer::Status(2));
    let one = run(one, Script::work()).unwrap().transcript;
    let other = run(other, bad_argument).unwrap().transcript;
    let parted = difference(&one, &other).expect("they differ");
    for (of, status) in [("<", 1), (">", 2)] {
        let line = |line: &str| {
            line.starts_with(&format!("{of}   proxy_get_shared_data["))
                && line.ends_with(&format!(" = {status}"))
        };
        assert!(parted.lines().any(line), "{parted}");
    }
}
