//! Plugin configurations in other files: an Envoy bootstrap, a `WasmPlugin`, an `EnvoyExtensionPolicy`.

use serde_json::{Map, Value};

use crate::document::{Form, Whole, source, value};

/// Suffixes of the types of Envoy filters that can contain Weir, each with the pointer to its configuration.
const FILTERS: [(&str, &str); 2] = [
    (".filters.http.wasm.v3.Wasm", "/config/configuration"),
    (".filters.http.dynamic_modules.v3.DynamicModuleFilter", "/filter_config"),
];
/// Fields that identify an Envoy or Kubernetes document; one is enough.
const OF_A_HOST: [&str; 5] = ["kind", "static_resources", "resources", "@type", "typed_config"];

pub(super) struct Embedded {
    pub(super) document: usize,
    pub(super) place: String,
    pub(super) value: Value,
}

/// Plugin configurations in an Envoy or Kubernetes file, or an error if it has none; `None` for any other file.
pub(super) fn of(bytes: &[u8]) -> Option<Result<Vec<Embedded>, String>> {
    let documents = match value(bytes, Form::Either) {
        Ok(document) => vec![document],
        Err(_) => source::documents(bytes)?,
    };
    let is_hosts = |document: &Value| OF_A_HOST.iter().any(|field| document.get(field).is_some());
    if !documents.iter().any(is_hosts) {
        return None;
    }
    let mut found = Vec::new();
    for (document, value) in documents.iter().enumerate() {
        let mut within = |place: String, value: Value| found.push(Embedded { document, place, value });
        search(value, "", &mut within);
    }
    let expected = "expected a configuration of Weir in it: a WasmPlugin, an EnvoyExtensionPolicy, or Envoy's filter \
                    wasm or dynamic_modules with rules";
    Some(if found.is_empty() { Err(expected.into()) } else { Ok(found) })
}

fn search(value: &Value, place: &str, found: &mut dyn FnMut(String, Value)) {
    match value {
        Value::Object(fields) => {
            if let Some((at, configuration)) = of_object(value, fields) {
                found(format!("{place}{}", at.replace('/', ".")), configuration);
                return;
            }
            for (name, value) in fields {
                search(value, &format!("{place}.{name}"), found);
            }
        }
        Value::Array(items) => {
            for (i, value) in items.iter().enumerate() {
                search(value, &format!("{place}[{i}]"), found);
            }
        }
        _ => {}
    }
}

/// Pointer to the configuration in a filter's object, and the configuration.
fn of_object(value: &Value, fields: &Map<String, Value>) -> Option<(String, Value)> {
    let named = |name: &str| fields.get(name).and_then(Value::as_str);
    let pointer = match named("type_url").or(named("@type")) {
        Some(kind) => {
            let (_, pointer) = FILTERS.iter().find(|(filter, _)| kind.ends_with(filter))?;
            // A TypedStruct has the filter's fields under `value`.
            if fields.contains_key("type_url") { format!("/value{pointer}") } else { (*pointer).to_owned() }
        }
        None if named("kind") == Some("WasmPlugin") => "/spec/pluginConfig".into(),
        // An entry of an EnvoyExtensionPolicy's `wasm`.
        None if fields.contains_key("code") && fields.contains_key("config") => "/config".into(),
        None => return None,
    };
    let configuration = value.pointer(&pointer)?;
    // A StringValue contains JSON as text. A Struct with an `@type` also has its content under `value`.
    let (pointer, configuration) = match configuration.get("value").filter(|_| configuration.get("@type").is_some()) {
        Some(inner) => (pointer + "/value", inner),
        None => (pointer, configuration),
    };
    let configuration = match configuration {
        Value::String(text) => self::value(text.as_bytes(), Form::Either).ok()?,
        other => other.clone(),
    };
    Whole::is_of_weir(&configuration).then_some((pointer, configuration))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "{rules: [{name: a, key: client_address, rate: 5/s}]}";

    fn places(text: &str) -> Vec<(usize, String)> {
        let found = of(text.as_bytes()).expect("a host's file").unwrap_or_default();
        found.into_iter().map(|one| (one.document, one.place)).collect()
    }

    #[test]
    fn each_way_to_hand_rules_to_the_filter_is_found() {
        let wasm = "'@type': type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
        let string = "'@type': type.googleapis.com/google.protobuf.StringValue";
        let as_struct = "'@type': type.googleapis.com/google.protobuf.Struct";
        let json = r#"'{"rules": [{"name": "a", "key": "host", "rate": "5/s"}]}'"#;
        for (text, expected) in [
            (format!("kind: WasmPlugin\nspec: {{pluginConfig: {RULES}}}"), ".spec.pluginConfig"),
            (
                format!("kind: EnvoyExtensionPolicy\nspec: {{wasm: [{{name: weir, code: {{}}, config: {RULES}}}]}}"),
                ".spec.wasm[0].config",
            ),
            (
                format!("static_resources: [{{{wasm}, config: {{configuration: {{{as_struct}, value: {RULES}}}}}}}]"),
                ".static_resources[0].config.configuration.value",
            ),
            (
                format!("resources: {{{wasm}, config: {{configuration: {{{string}, value: {json}}}}}}}"),
                ".resources.config.configuration.value",
            ),
            (
                format!(
                    "resources: [{{'@type': a/udpa.type.v1.TypedStruct, type_url: x.filters.http.wasm.v3.Wasm, value: \
                     {{config: {{configuration: {{{as_struct}, value: {RULES}}}}}}}}}]"
                ),
                ".resources[0].value.config.configuration.value",
            ),
            (
                format!(
                    "typed_config: {{'@type': x/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter, \
                     filter_config: {{{as_struct}, value: {RULES}}}}}"
                ),
                ".typed_config.filter_config.value",
            ),
        ] {
            assert_eq!(places(&text), [(0, expected.to_owned())], "{text}");
            let after = format!("kind: Role\nrules: [{{apiGroups: ['']}}]\n---\n{text}");
            assert_eq!(places(&after), [(1, expected.to_owned())], "{after}");
        }
    }

    #[test]
    fn a_file_without_rules_of_weir_is_no_rule_set() {
        assert!(of(RULES.as_bytes()).is_none() && of(b"a: [").is_none() && of(b"[]").is_none());
        for text in
            ["kind: HTTPRoute\nspec: {rules: [{matches: []}]}", "kind: WasmPlugin\nspec: {pluginConfig: {a: 1}}"]
        {
            assert!(of(text.as_bytes()).unwrap().is_err(), "{text}");
        }
    }
}
