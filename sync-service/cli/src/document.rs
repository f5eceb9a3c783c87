//! Rule sets as operators write them: one document, JSON or YAML.

pub mod source;
mod yaml_errors;

use serde_json::{Map, Value};
use weir_rules::config::{CONFIG_BYTES_MAX, PluginConfig};
use weir_rules::reading::{ConfigError, ErrorCollector, ShortForm};
use weir_rules::{RuleSet, document};

use source::{FILE_BYTES_MAX, Misread, position};

pub use weir_rules::document::DOCUMENT_BYTES_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Json,
    Yaml,
    /// JSON if the text begins with a brace and can be parsed as JSON; otherwise YAML.
    Either,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentError {
    Text(Misread),
    Fields(Vec<ConfigError>),
}

impl From<Vec<ConfigError>> for DocumentError {
    fn from(errors: Vec<ConfigError>) -> Self {
        Self::Fields(errors)
    }
}

#[derive(Clone, Debug)]
pub struct Document {
    value: Value,
    rules: RuleSet,
    /// Short forms in the original text.
    pub(crate) short_forms: Vec<ShortForm>,
}

impl Document {
    /// Parses a document. Returns every error with its place.
    pub fn read(bytes: &[u8], form: Form) -> Result<Self, Vec<ConfigError>> {
        check_size(bytes.len(), "")?;
        Self::of_value(value(bytes, form).map_err(|misread| nowhere(misread.to_string()))?)
    }

    /// Converts a value to a document. Returns every error with its place.
    pub fn of_value(value: Value) -> Result<Self, Vec<ConfigError>> {
        let document = Self::of_any_size(value)?;
        check_size(document.text().len(), " as JSON")?;
        Ok(document)
    }

    fn of_any_size(mut value: Value) -> Result<Self, Vec<ConfigError>> {
        let errors = ErrorCollector::default();
        let rules = document::read(&value, &errors);
        let short_forms = errors.take_short_forms();
        let rules = errors.into_result(rules)?;
        write_out(&mut value, &short_forms);
        Ok(Self { value, rules, short_forms })
    }

    /// The document as compact JSON, which is the same for equal documents.
    pub fn text(&self) -> String {
        self.value.to_string()
    }

    /// The document as it was written, with short forms expanded.
    pub fn value(&self) -> &Value {
        &self.value
    }

    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    pub fn into_rules(self) -> RuleSet {
        self.rules
    }

    /// Returns the document with its field `enforce` set.
    #[must_use]
    pub fn with_enforce(mut self, enforce: bool) -> Self {
        if let Some(object) = self.value.as_object_mut() {
            object.insert("enforce".into(), enforce.into());
        }
        self
    }
}

/// Fields that only a plugin configuration has.
const OF_A_PLUGIN: [&str; 3] = ["table", "filter_state", "sync"];

/// A valid file: a document, or a whole plugin configuration.
#[derive(Debug)]
pub struct Whole {
    pub document: Document,
    /// The plugin configuration, if the file is one.
    pub plugin: Option<PluginConfig>,
}

impl Whole {
    /// True if an object looks like Weir's plugin configuration, and not like another plugin's.
    pub(crate) fn is_of_weir(value: &Value) -> bool {
        ["rules", "sync", "table"].iter().any(|name| value.get(name).is_some())
    }

    /// Parses a plugin configuration if the text has fields that only these have, and otherwise a document.
    pub fn read(bytes: &[u8], form: Form) -> Result<Self, DocumentError> {
        if bytes.len() > FILE_BYTES_MAX {
            return Err(nowhere(format!("expected at most {FILE_BYTES_MAX} bytes")).into());
        }
        match value(bytes, form).map_err(DocumentError::Text)? {
            Value::Object(fields) if OF_A_PLUGIN.iter().any(|name| fields.contains_key(*name)) => {
                Ok(Self::of_plugin(fields)?)
            }
            value => {
                check_size(bytes.len(), "")?;
                Ok(Self { document: Document::of_value(value)?, plugin: None })
            }
        }
    }

    /// Parses a plugin configuration as the filter does.
    pub(crate) fn of_plugin(mut fields: Map<String, Value>) -> Result<Self, Vec<ConfigError>> {
        let json = Value::Object(fields.clone()).to_string();
        if json.len() > CONFIG_BYTES_MAX {
            let found = json.len();
            let problem = format!("expected at most {CONFIG_BYTES_MAX} bytes of configuration as JSON, found {found}");
            return Err(nowhere(problem));
        }
        let plugin = PluginConfig::parse(json.as_bytes())?;
        fields.retain(|name, _| !OF_A_PLUGIN.contains(&name.as_str()));
        Ok(Self { document: Document::of_any_size(Value::Object(fields))?, plugin: Some(plugin) })
    }
}

pub(crate) fn value(bytes: &[u8], form: Form) -> Result<Value, Misread> {
    let json = || source::json(bytes).map_err(|error| of_json(&error, bytes));
    match form {
        Form::Json => json(),
        Form::Either if bytes.trim_ascii_start().starts_with(b"{") => json()
            .or_else(|error| source::yaml(bytes).map_err(|other| if is_json_meant(bytes) { error } else { other })),
        Form::Yaml | Form::Either => source::yaml(bytes),
    }
}

/// True if the first field of an unparsable object suggests that it was meant to be JSON.
fn is_json_meant(bytes: &[u8]) -> bool {
    let rest = bytes.trim_ascii_start().strip_prefix(b"{").unwrap_or_default();
    rest.trim_ascii_start().first().is_none_or(|byte| matches!(byte, b'"' | b'}'))
}

fn of_json(error: &serde_json::Error, bytes: &[u8]) -> Misread {
    let text = error.to_string();
    // The library's text ends with the position.
    let problem = text.rsplit_once(" at line ").map_or(&*text, |(problem, _)| problem);
    // The library counts columns in bytes. For an incomplete line, it states the column of the line's end.
    let lines: usize = bytes.split_inclusive(|byte| *byte == b'\n').take(error.line() - 1).map(<[u8]>::len).sum();
    let end = (lines + error.column().saturating_sub(1)).min(bytes.len());
    let at = Some(position(bytes.get(..end).unwrap_or_default()));
    Misread { at, problem: format!("no JSON: {problem}") }
}

/// Checks the size of a document, as received or as the JSON that is stored and fetched.
fn check_size(bytes: usize, of: &str) -> Result<(), Vec<ConfigError>> {
    let problem = || format!("expected at most {DOCUMENT_BYTES_MAX} bytes{of}, found {bytes}");
    if bytes <= DOCUMENT_BYTES_MAX { Ok(()) } else { Err(nowhere(problem())) }
}

/// Error outside any field.
fn nowhere(problem: String) -> Vec<ConfigError> {
    vec![ConfigError { place: String::new(), problem }]
}

/// Replaces each short form with its full form. `forms` are in reading order: outer ones first.
fn write_out(document: &mut Value, forms: &[ShortForm]) {
    for ShortForm { written, place, full } in forms {
        let (parent, field) = split(place);
        let Some(parent) = steps(parent).try_fold(&mut *document, |at, step| within(at, step)) else {
            continue;
        };
        match within(parent, field) {
            // The form is the only item of a list that was written without brackets.
            Some(Value::Array(items)) if !full.is_array() && !items.is_empty() => items[0] = full.clone(),
            Some(value) => *value = full.clone(),
            // The field has another name in its full form.
            None => {
                if let Some(fields) = object(parent) {
                    fields.remove(split(written).1);
                    fields.insert(field.to_owned(), full.clone());
                }
            }
        }
    }
}

/// Value at `step`, the name of a field or the index of an item.
fn within<'a>(value: &'a mut Value, step: &str) -> Option<&'a mut Value> {
    match step.parse::<usize>() {
        Ok(place) if value.is_array() => value.get_mut(place),
        _ => object(value)?.get_mut(step),
    }
}

/// The value as an object; for a list, its only item.
fn object(value: &mut Value) -> Option<&mut Map<String, Value>> {
    match value {
        Value::Array(items) => items.first_mut()?.as_object_mut(),
        value => value.as_object_mut(),
    }
}

/// Splits a place into its parent and its last step.
fn split(place: &str) -> (&str, &str) {
    let at = place.rfind(['.', '[']).unwrap_or(0);
    let (parent, last) = place.split_at(at);
    (parent, last.trim_start_matches(['.', '[']).trim_end_matches(']'))
}

/// Steps of a place such as `rules[0].rate`.
pub(crate) fn steps(place: &str) -> impl Iterator<Item = &str> {
    place.split(['.', '[']).map(|step| step.trim_end_matches(']')).filter(|step| !step.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const YAML: &str = "# of the edge\nrules:\n- {name: a, key: [client_address], rate: 5/s}\n";

    fn errors(text: &str, form: Form) -> Vec<String> {
        let errors = Document::read(text.as_bytes(), form).unwrap_err();
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn short_forms_are_written_out() {
        let short = "{deny: {method: TRACE, path: /x}, rules: {name: a, key: {header: x}, rate: 9/minute, burst: '7', \
                     match: {method: [GET], hosts: h, paths: [/a, '/b/*']}, tiers: {name: t, when: {paths: /c}, \
                     rate: 9/hour}, response: {headers: retry_after}}}";
        let full = json!({
            "deny": [{"methods": ["TRACE"], "path": {"exact": "/x"}}],
            "rules": [{
                "name": "a", "key": [{"header": "x"}], "rate": "9/m", "burst": 7,
                "match": {"methods": ["GET"], "hosts": ["h"], "paths": [{"exact": "/a"}, {"glob": "/b/*"}]},
                "tiers": [{"name": "t", "when": {"paths": [{"exact": "/c"}]}, "rate": "9/h"}],
                "response": {"headers": ["retry_after"]},
            }],
        });
        let read = Document::read(short.replace("rules: {", "rules: [{").replace("}}}", "}}]}").as_bytes(), Form::Yaml);
        let read = read.unwrap();
        assert_eq!(read.value(), &full);
        assert!(!read.short_forms.is_empty());
        let again = Document::of_value(full).unwrap();
        assert_eq!((again.rules(), again.text(), &again.short_forms[..]), (read.rules(), read.text(), &[][..]));
    }

    #[test]
    fn only_true_and_false_are_truth_values() {
        let rule = "{name: a, key: [all], rate: 5/s, mode: off, match: {routes: [y, no, on]}}";
        let document = Document::read(format!("enforce: false\nrules: [{rule}]").as_bytes(), Form::Yaml).unwrap();
        assert_eq!(document.rules().rules()[0].enforcement.mode, weir_rules::mode::Mode::Off);
        assert!(!document.rules().is_enforced());
        assert_eq!(errors(&format!("enforce: off\n{YAML}"), Form::Yaml).len(), 1);
    }

    #[test]
    fn every_error_is_returned() {
        let found = errors("rules:\n- {name: A, rate: fast}\ntable: {addresses: 1}\n", Form::Yaml);
        let places: Vec<_> = found.iter().filter_map(|line| line.split(": ").next()).collect();
        assert_eq!(places, ["rules[0].name", "rules[0].key", "rules[0].rate", "table"], "{found:?}");
        assert!(errors("rules: [\n", Form::Either)[0].contains("line"), "{:?}", errors("rules: [\n", Form::Either));
        let twice = errors("a: 1\na: 2\n", Form::Yaml);
        assert_eq!(twice, ["no YAML: a is given twice: expected it once (line 2, column 1)"]);
        let braces = |text| errors(text, Form::Either)[0].clone();
        assert_eq!(braces("{\"a\": 1,\n \"\u{e9}\" 5}"), "no JSON: expected `:` (line 2, column 6)");
        assert!(braces("{a: 1").starts_with("no YAML: found no `}`"), "{}", braces("{a: 1"));
        assert_eq!(errors("", Form::Yaml), ["expected an object, found null"]);
        assert!(Document::read(&[0xff], Form::Either).is_err());
    }

    // I2
    #[test]
    fn size_is_bounded_as_it_arrives_and_as_it_is_kept() {
        let rule = |n: usize| format!("- {{name: r{n}, key: [client_address], rate: 5/s}}\n");
        let most = (0..1_000).map(rule).collect::<Vec<_>>().concat();
        Document::read(format!("rules:\n{most}").as_bytes(), Form::Yaml).unwrap();
        let large = format!("{YAML}#{}", "x".repeat(DOCUMENT_BYTES_MAX));
        assert!(errors(&large, Form::Yaml)[0].starts_with("expected at most 1048576 bytes, found"));
        let fits = format!("{YAML}#{}", "x".repeat(DOCUMENT_BYTES_MAX - YAML.len() - 1));
        Document::read(fits.as_bytes(), Form::Yaml).unwrap();
        // An alias is short in YAML; as JSON, it is what it stands for.
        let aliases = |hosts: usize| {
            let hosts = vec![format!("h{}", "x".repeat(249)); hosts].join(", ");
            let rule = |n: usize| {
                let matches = if n == 0 { format!("&m {{hosts: [{hosts}]}}") } else { "*m".into() };
                format!("- {{name: r{n}, key: [client_address], rate: 5/s, match: {matches}}}\n")
            };
            format!("rules:\n{}", (0..90).map(rule).collect::<Vec<_>>().concat())
        };
        Document::read(aliases(40).as_bytes(), Form::Yaml).unwrap();
        let found = errors(&aliases(50), Form::Yaml);
        assert!(found[0].starts_with("expected at most 1048576 bytes as JSON, found"), "{found:?}");
    }
}
