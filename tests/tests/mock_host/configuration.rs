//! Good and bad configurations.

use weir_tests::mock_host::{Answer, Host, Script, Worker};

use crate::harness::{client, plugin, report, rule, shared, synced};

const LOG_ERROR: u32 = 4;

fn started() -> Worker {
    Worker::try_start(Host::new(&shared())).unwrap()
}

#[test]
fn an_invalid_configuration_is_refused() {
    let nested = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    let protobuf_nested = (0..200).fold(Vec::new(), |inner, _| {
        [b"\n".to_vec(), vec![u8::try_from(inner.len().min(127)).unwrap()], inner].concat()
    });
    let good = plugin(&rule("1/h", 1)).to_string().into_bytes();
    let huge = [good, vec![b' '; 1024 * 1024]].concat();
    for bytes in [Vec::new(), b"rules: []".to_vec(), vec![0xff; 40], vec![0; 1000], nested, protobuf_nested, huge] {
        let mut worker = started();
        assert!(!worker.configure(bytes.clone()), "{:?}...", bytes.get(..20));
        assert!(worker.host().logs.iter().any(|(level, _)| *level == LOG_ERROR));
    }
    // A good one that the host does not hand over.
    for answer in [Answer::Status(1), Answer::Status(12), Answer::Nothing] {
        let script = Script::always("proxy_get_buffer_bytes", answer.clone());
        let mut worker = Worker::try_start(Host::new(&shared()).with(script)).unwrap();
        assert!(!worker.configure(plugin(&rule("1/h", 1)).to_string()), "{answer:?}");
    }
}

#[test]
fn requests_pass_without_an_accepted_configuration() {
    let mut worker = started();
    assert_eq!(worker.allowed_of(3, &client(1)), 3, "before any configuration");
    worker.tick();
    assert!(!worker.configure("{}"));
    assert_eq!(worker.allowed_of(3, &client(1)), 3, "after a refused one");
    worker.tick();
    assert!(worker.host().shared_keys().is_empty(), "a refused configuration leaves nothing behind");
}

#[test]
fn the_last_counts_of_a_replaced_configuration_are_kept() {
    let mut worker = Worker::configured(&shared(), &plugin(&rule("1/h", 9)));
    assert_eq!(worker.allowed_of(3, &client(1)), 3);
    assert!(worker.update(plugin(&rule("1/m", 9)).to_string()));
    assert_eq!(worker.host().metric("weir.rule.per-address.allowed"), Some(3));
    assert_eq!(worker.allowed_of(2, &client(1)), 2);
    assert_eq!(worker.counted("weir.rule.per-address.allowed"), 5);
}

/// A configuration that does not name the POP.
fn unnamed() -> serde_json::Value {
    let mut plugin = synced(&rule("1/h", 2));
    plugin["sync"].as_object_mut().unwrap().remove("pop");
    plugin
}

#[test]
fn the_proxys_node_names_an_unnamed_pop() {
    let name = |property: &str, id: &str| {
        let mut host = Host::new(&shared());
        host.properties.insert(property.into(), id.into());
        let mut worker = Worker::configured_on(host, &unnamed());
        worker.tick();
        report(&worker).1.pop
    };
    assert_eq!(["xds\0node\0id", "node\0id"].map(|property| name(property, "edge-7")), ["edge-7"; 2]);
    assert_eq!(name("node\0id", &"x".repeat(64)), "x".repeat(64));
    // As Istio writes them.
    let pod = |pod: &str| {
        let id = format!("router~10.244.0.12~istio-ingressgateway-7d8f9c6b5-{pod}.istio-ingress~istio-ingress.svc.x");
        name("node\0id", &id)
    };
    let one = pod("abcde");
    assert!(one.starts_with("router~10.244.0.12~istio-ingressgateway-7d8f9c6b5-abc-"), "{one}");
    assert!((55..=64).contains(&one.len()), "{one}");
    assert_eq!(pod("abcde"), one, "after a restart as well");
    assert!(pod("fghij") != one && pod("abcde2") != one, "what was cut off counts");
}

#[test]
fn a_pop_without_any_name_is_refused() {
    for id in [None, Some(Vec::new()), Some(vec![0xff; 9])] {
        let mut host = Host::new(&shared());
        host.properties.extend(id.map(|id| ("node\0id".to_owned(), id)));
        let mut worker = Worker::try_start(host).unwrap();
        assert!(!worker.configure(unnamed().to_string()));
        assert_eq!(worker.host().logged("weir: sync.pop: missing: expected"), 1);
        assert_eq!(worker.allowed_of(5, &client(1)), 5);
    }
}
