//! Every function of the host with every status, in an interpreter and in wasmtime: no trap, a decision for each request, and
//! the same run to the byte.

use weir_conformance::compiler;
use weir_tests::conformance::{CALLS, STATUSES, difference, left_out, run, sweep};
use weir_tests::mock_host::{Answer, Proxy, Runtime, Script, interpreter};

fn runtimes(proxy: Proxy) -> [&'static dyn Runtime; 2] {
    [interpreter(proxy), compiler(proxy)]
}

/// What differs between the two, or does not hold in one; none if all is well.
fn complaint(proxy: Proxy, function: &str, status: u32) -> Option<String> {
    let [one, other] = runtimes(proxy).map(|runtime| sweep(runtime, proxy, function, status));
    match (one, other) {
        (Ok(one), Ok(other)) => difference(&one, &other)
            .map(|parted| format!("{proxy:?}: {function} returns {status}: the runs part\n{parted}")),
        (one, other) => one.err().or(other.err()),
    }
}

fn holds(proxy: Proxy) {
    let complaints: Vec<_> = CALLS
        .iter()
        .flat_map(|call| STATUSES.map(|status| complaint(proxy, call.name, status)))
        .flatten()
        .collect();
    assert!(complaints.is_empty(), "{} runs do not hold:\n{}", complaints.len(), complaints.join("\n\n"));
    let [functions, statuses] = [CALLS.len(), STATUSES.len()];
    let exports = compiler(proxy).exports().len();
    println!(
        "{proxy:?}: {exports} callbacks, {functions} functions x {statuses} statuses: two runtimes agree"
    );
}

#[test]
fn envoys_module_holds_whatever_status_a_function_returns() {
    holds(Proxy::Envoy);
}

#[test]
fn the_lean_module_holds_whatever_status_a_function_returns() {
    holds(Proxy::Lean);
}

#[test]
fn nginxs_module_holds_whatever_status_a_function_returns() {
    holds(Proxy::Nginx);
}

#[test]
fn every_function_that_a_module_imports_or_exports_is_covered() {
    for proxy in [Proxy::Envoy, Proxy::Lean, Proxy::Nginx] {
        let runtime = compiler(proxy);
        let run = run(runtime, proxy, Script::work()).unwrap();
        assert_eq!(left_out(runtime, &run), [""; 0], "{proxy:?}");
    }
}

/// A host that asks for all memory at once has the module trap: no other way is known.
#[test]
fn a_trap_is_seen_in_each_runtime() {
    for runtime in runtimes(Proxy::Envoy) {
        let greedy = Answer::Stray { asks: vec![u32::MAX], place: None, bytes: 0 };
        let script = Script::only("proxy_get_property", 3, greedy);
        let trap = run(runtime, Proxy::Envoy, script).err().expect("it traps");
        assert!(format!("{trap:?}").contains(" trapped: "), "{trap:?}");
    }
}

#[test]
fn one_call_with_another_answer_is_a_difference() {
    let [one, other] = runtimes(Proxy::Envoy);
    // It is asked for what is not there yet: status 1.
    let bad_argument = Script::only("proxy_get_shared_data", 1, Answer::Status(2));
    let one = run(one, Proxy::Envoy, Script::work()).unwrap().transcript;
    let other = run(other, Proxy::Envoy, bad_argument).unwrap().transcript;
    let parted = difference(&one, &other).expect("they differ");
    for (of, status) in [("<", 1), (">", 2)] {
        let line = |line: &str| {
            line.starts_with(&format!("{of}   proxy_get_shared_data["))
                && line.ends_with(&format!(" = {status}"))
        };
        assert!(parted.lines().any(line), "{parted}");
    }
}
