//! Request described on the command line.

use std::collections::BTreeMap;
use std::fmt;

use clap::ArgMatches;
use serde_json::{Value, json};
use weir_rules::address;
use weir_rules::request::{Attribute, Request};

/// Described request. The host has no value for anything that is not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Described {
    method: String,
    path: String,
    host: Option<String>,
    /// Header lines; names are in lower case.
    headers: Vec<(String, String)>,
    address: Option<String>,
    route: Option<String>,
    /// Claims; names of the metadata are joined by dots.
    claims: Vec<(String, String)>,
}

impl Described {
    /// Parses the command line. The error has one line per problem.
    pub(super) fn of(matches: &ArgMatches) -> Result<Self, String> {
        let one = |name| matches.get_one::<String>(name).cloned();
        let mut errors = Vec::new();
        let mut pairs = |name: &str, at: char, expected: &str| {
            let mut read = Vec::new();
            for text in matches.get_many::<String>(name).into_iter().flatten() {
                match text.split_once(at).filter(|(name, _)| !name.trim().is_empty()) {
                    Some((name, value)) => read.push((name.trim().to_owned(), value.trim().to_owned())),
                    None => errors.push(format!("--{name}: expected {expected}, found {text:?}")),
                }
            }
            read
        };
        let headers = pairs("header", ':', "a header, as in 'x-api-key: abc'");
        let claims = pairs("claim", '=', "a claim, as in payload.sub=abc");
        let (path, address) = (one("path").unwrap_or_default(), one("address"));
        if !path.starts_with(['/', '*']) {
            errors.push(format!("--path: expected a path that begins with /, found {path:?}"));
        }
        if let Some(text) = address.as_ref().filter(|text| address::parse(text.as_bytes()).is_none()) {
            errors.push(format!("--address: expected an address, as in 192.0.2.1, found {text:?}"));
        }
        let headers = headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
        let method = one("method").unwrap_or_default();
        let (host, route) = (one("host"), one("route"));
        if errors.is_empty() {
            Ok(Self { method, path, host, headers, address, route, claims })
        } else {
            Err(errors.join("\n"))
        }
    }
}

impl Described {
    /// The request as the JSON of a check at the gateway.
    pub(super) fn json(&self) -> Value {
        let mut headers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, value) in &self.headers {
            headers.entry(name).or_default().push(value);
        }
        let mut claims = json!({});
        for (path, value) in &self.claims {
            put(&mut claims, path, value);
        }
        let mut request =
            json!({"method": self.method, "path": self.path, "headers": headers, "claims": claims});
        for (name, text) in [("host", &self.host), ("address", &self.address)] {
            if let Some(text) = text {
                request[name] = text.as_str().into();
            }
        }
        request
    }
}

/// Inserts `text` into `object` under the dotted path `names`. A text in the way is replaced.
fn put(object: &mut Value, names: &str, text: &str) {
    let mut at = object;
    for name in names.split('.') {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[name];
    }
    *at = text.into();
}

impl Request for Described {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        let text = match attribute {
            Attribute::SourceAddress => self.address.clone()?,
            Attribute::Method => self.method.clone(),
            Attribute::Path => self.path.clone(),
            Attribute::Authority => self.host.clone()?,
            Attribute::Route => self.route.clone()?,
            Attribute::Header(name) => {
                let values = self.headers.iter().filter(|(known, _)| known == name);
                let values: Vec<_> = values.map(|(_, value)| value.as_str()).collect();
                (!values.is_empty()).then(|| values.join("\n"))?
            }
            Attribute::Claim(names) => {
                let name = names.join(".");
                self.claims.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())?
            }
        };
        Some(text.into_bytes())
    }
}

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)?;
        for (says, what) in [("to", &self.host), ("from", &self.address), ("on route", &self.route)] {
            if let Some(what) = what {
                write!(f, " {says} {what}")?;
            }
        }
        for (name, value) in &self.headers {
            write!(f, ", {name}: {value}")?;
        }
        for (name, value) in &self.claims {
            write!(f, ", claim {name}={value}")?;
        }
        Ok(())
    }
}
