//! What is asked: the attributes of a request that somebody else serves.

use std::net::IpAddr;
use std::sync::Arc;

use weir_rules::request::{Attribute, Request};

/// The claim that says what stands beside a check.
const BESIDE: [&str; 2] = ["ratelimit", "beside"];

/// The parts of a request of which each is a check. Their text is made when a rule asks for it: for all checks together it
/// would be as long as the request, times their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The text of each part.
    pub parts: Arc<[String]>,
    /// Which part the check is.
    pub own: usize,
}

impl Beside {
    /// The other parts, one behind the other.
    pub fn text(&self) -> String {
        let others = self.parts.iter().enumerate().filter(|(index, _)| *index != self.own);
        others.map(|(_, part)| part.as_str()).collect()
    }
}

/// A request to be decided. What it does not say, it does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The client's address.
    pub address: Option<IpAddr>,
    /// The method.
    pub method: Option<String>,
    /// The host, as in `Host`.
    pub host: Option<String>,
    /// The path with its query.
    pub path: Option<String>,
    /// Headers; their names in lower case. Those of one name are joined by commas.
    pub headers: Vec<(String, String)>,
    /// What its token says, by paths of names, and whatever no client can make up.
    pub claims: Vec<(Vec<String>, String)>,
    /// What stands beside it in its request, if anything does: a claim, too.
    pub beside: Option<Beside>,
    /// How many requests it stands for, at least 1.
    pub hits: u32,
    /// Whether nothing is to be taken.
    pub is_peek: bool,
    /// If it is said later what it cost: within so many seconds.
    pub reserve_s: Option<u32>,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            address: None,
            method: None,
            host: None,
            path: None,
            headers: Vec::new(),
            claims: Vec::new(),
            beside: None,
            hits: 1,
            is_peek: false,
            reserve_s: None,
        }
    }
}

impl Ask {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        let values: Vec<&str> =
            self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect();
        (!values.is_empty()).then(|| values.join(",").into_bytes())
    }
}

impl Request for Ask {
    fn times(&self) -> u32 {
        self.hits
    }

    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        let text = |text: &Option<String>| text.as_ref().map(|text| text.clone().into_bytes());
        match attribute {
            Attribute::SourceAddress => self.address.map(|address| address.to_string().into_bytes()),
            Attribute::Method => text(&self.method),
            Attribute::Path => text(&self.path),
            Attribute::Authority => text(&self.host),
            Attribute::Route => None,
            Attribute::Header(name) => self.header(name),
            Attribute::Claim(path) => {
                let is_beside = path.iter().map(String::as_str).eq(BESIDE);
                if let Some(beside) = self.beside.as_ref().filter(|_| is_beside) {
                    return Some(beside.text().into_bytes());
                }
                let claim = self.claims.iter().find(|(known, _)| known == path);
                claim.map(|(_, value)| value.clone().into_bytes())
            }
        }
    }
}
