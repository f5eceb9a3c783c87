//! A small grammar of good rule sets, and requests that come close to them: few values, each of a byte, so that what
//! a request has and what a rule asks for are often the same.

use arbitrary::Arbitrary;
use serde_json::{Map, Value, json};
use weir_rules::request::{Attribute, Request};

const HOSTS: [&str; 5] = ["a.example", "*.example", "*.a.example", "b.example", "x.a.example"];
const METHODS: [&str; 3] = ["GET", "POST", "DELETE"];
const PATHS: [&str; 10] = ["/", "/a", "/a/b", "/a/bc", "/ab", "/*/b", "/a/**", "/**/b", "/a*", "//"];
/// Names of headers, cookies, parameters and claims.
pub const NAMES: [&str; 3] = ["x-a", "x-b", "q"];
const VALUES: [&str; 4] = ["a", "ab", "gold", "7"];
const PATTERNS: [&str; 4] = ["^a", "(a|b)+$", "[0-9]{1,3}", "^$"];
const NETWORKS: [&str; 6] = ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7", "2001:db8::/32", "::/0", "0.0.0.0/0"];
const ADDRESSES: [&str; 5] = ["10.1.2.3:80", "192.0.2.7", "[2001:db8::1]:443", "/run/socket", "::ffff:10.0.0.1"];
const ROUTES: [&str; 2] = ["main", "other"];
/// The most rules of a set, and the most conditions of a list.
const CONDITIONS_MAX: usize = 40;

fn pick<'a>(of: &[&'a str], by: u8) -> &'a str {
    of[usize::from(by) % of.len()]
}

/// A rule set.
#[derive(Arbitrary, Debug)]
pub struct Rules {
    list: Vec<(Meets, Option<Listed>)>,
    allow: Option<Meets>,
    deny: Option<Meets>,
}

/// Two tiers of a rule that counts by a header: for some values of it, and for others under a condition.
#[derive(Arbitrary, Debug)]
struct Listed {
    first: [u8; 2],
    second: [u8; 2],
    when: Meets,
}

/// A condition.
#[derive(Arbitrary, Debug)]
struct Meets {
    all: Clause,
    any: Option<Clause>,
    not: Option<Clause>,
}

#[derive(Arbitrary, Debug)]
struct Clause {
    /// The fields that are given, a bit for each.
    given: u16,
    hosts: [u8; 2],
    method: u8,
    paths: [u8; 2],
    header: [u8; 2],
    cookie: [u8; 2],
    query: [u8; 2],
    claim: [u8; 2],
    network: u8,
    route: u8,
}

impl Rules {
    /// The document; it is a good one.
    pub fn document(&self) -> Value {
        let rule = |i: usize, meets: Value| {
            let name = format!("r{i}");
            json!({"name": name, "match": meets, "key": ["all"], "rate": "1/s"})
        };
        let mut rules: Vec<_> = (self.list.iter().take(CONDITIONS_MAX).enumerate())
            .map(|(i, (meets, listed))| {
                let mut rule = rule(i, meets.value());
                if let Some(listed) = listed {
                    rule["key"] = json!([{"header": NAMES[0]}]);
                    rule["tiers"] = listed.value();
                }
                rule
            })
            .collect();
        if rules.is_empty() {
            rules.push(rule(0, json!({})));
        }
        let mut document = Map::new();
        document.insert("rules".to_owned(), json!(rules));
        for (name, meets) in [("allow", &self.allow), ("deny", &self.deny)] {
            if let Some(value) = meets.as_ref().map(Meets::value).filter(|value| *value != json!({})) {
                document.insert(name.to_owned(), json!([value]));
            }
        }
        Value::Object(document)
    }
}

impl Listed {
    fn value(&self) -> Value {
        let values = |by: [u8; 2]| by.map(|by| pick(&VALUES, by));
        json!([
            {"name": "a", "keys": values(self.first), "times": 2},
            {"name": "b", "when": self.when.value(), "keys": values(self.second), "times": 3},
        ])
    }
}

impl Meets {
    fn value(&self) -> Value {
        let mut object = self.all.object();
        let clause = |clause: &Option<Clause>| clause.as_ref().map(Clause::object).filter(|c| !c.is_empty());
        if let Some(any) = clause(&self.any) {
            object.insert("any".to_owned(), json!([any, {"methods": ["PUT"]}]));
        }
        if let Some(not) = clause(&self.not) {
            object.insert("not".to_owned(), Value::Object(not));
        }
        Value::Object(object)
    }
}

impl Clause {
    fn object(&self) -> Map<String, Value> {
        let fields = [
            ("hosts", self.hosts.map(|by| json!(pick(&HOSTS, by))).to_vec()),
            ("methods", vec![json!(pick(&METHODS, self.method))]),
            ("paths", self.paths.map(path).to_vec()),
            ("headers", vec![test(self.header)]),
            ("query", vec![test(self.query)]),
            ("addresses", vec![json!(pick(&NETWORKS, self.network))]),
            ("routes", vec![json!(pick(&ROUTES, self.route))]),
            ("cookies", vec![test(self.cookie)]),
            ("claims", vec![claim_test(self.claim)]),
        ];
        let given = (0..).zip(fields).filter(|(bit, _)| self.given >> bit & 1 == 1);
        given.map(|(_, (name, list)): (u16, _)| (name.to_owned(), Value::Array(list))).collect()
    }
}

fn path(by: u8) -> Value {
    let kind = ["exact", "prefix", "glob"][usize::from(by) % 3];
    json!({kind: pick(&PATHS, by / 3)})
}

fn test([by, value]: [u8; 2]) -> Value {
    let name = pick(&NAMES, by);
    match by / 3 % 6 {
        0 => json!({"name": name, "equals": pick(&VALUES, value)}),
        1 => json!({"name": name, "in": [pick(&VALUES, value), "x"]}),
        2 => json!({"name": name, "prefix": pick(&VALUES, value)}),
        3 => json!({"name": name, "regex": pick(&PATTERNS, value)}),
        is_there => json!({"name": name, "present": is_there == 4}),
    }
}

fn claim_test(by: [u8; 2]) -> Value {
    let mut test = test(by);
    test["name"] = json!(["payload", test["name"]]);
    test
}

/// A request.
#[derive(Arbitrary, Clone, Debug)]
pub struct Asked {
    /// The attributes that it has, a bit for each.
    given: u16,
    address: u8,
    method: u8,
    path: u8,
    parameter: u8,
    host: u8,
    route: u8,
    headers: [u8; 3],
    cookies: [u8; 3],
    claims: [u8; 3],
    /// One of the attributes is this instead.
    odd: Option<(u8, Vec<u8>)>,
}

impl Asked {
    fn one(&self, bit: u8, known: impl FnOnce() -> String) -> Option<Vec<u8>> {
        if let Some((at, bytes)) = &self.odd
            && at % 12 == bit
        {
            return Some(bytes.clone());
        }
        // A missing attribute is the exception.
        (self.given >> bit & 1 == 0).then(|| known().into_bytes())
    }
}

impl Request for Asked {
    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        let query = || format!("?q={}", pick(&VALUES, self.parameter));
        match attribute {
            Attribute::SourceAddress => self.one(0, || pick(&ADDRESSES, self.address).to_owned()),
            Attribute::Method => self.one(1, || pick(&METHODS, self.method).to_owned()),
            Attribute::Path => self.one(2, || pick(&PATHS, self.path).to_owned() + &query()),
            Attribute::Authority => self.one(3, || pick(&HOSTS, self.host).replace('*', "y")),
            Attribute::Route => self.one(4, || pick(&ROUTES, self.route).to_owned()),
            Attribute::Header(name) if name == "cookie" => self.one(8, || {
                let pairs = NAMES.iter().zip(self.cookies).filter(|(_, by)| by % 2 == 0);
                let pairs: Vec<_> = pairs.map(|(name, by)| format!("{name}={}", pick(&VALUES, by / 2))).collect();
                pairs.join("; ")
            }),
            Attribute::Header(name) => {
                let place = NAMES.iter().position(|known| known == name)?;
                let bit = u8::try_from(place).ok()? + 5;
                self.one(bit, || pick(&VALUES, self.headers[place]).to_owned())
            }
            Attribute::Claim(names) => {
                let place = NAMES.iter().position(|known| names.get(1).is_some_and(|name| name == known))?;
                let bit = u8::try_from(place).ok()? + 9;
                self.one(bit, || pick(&VALUES, self.claims[place]).to_owned())
            }
        }
    }
}
