//! What is asked: the attributes of a request that somebody else serves.

use std::io::Write as _;
use std::net::IpAddr;

use weir_rules::request::{Attribute, LINE_BREAK, Request};

use super::descriptor::Descriptor;

/// A request to be decided. What it does not say, it does not have.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The client's address.
    pub address: Option<IpAddr>,
    /// The method.
    pub method: Option<String>,
    /// The host, as in `Host`.
    pub host: Option<String>,
    /// The path with its query.
    pub path: Option<String>,
    /// Lines of headers; their names in lower case.
    pub headers: Vec<(String, String)>,
    /// What its token says, by paths of names, and whatever no client can make up.
    pub claims: Vec<(Vec<String>, String)>,
    /// What says all this instead, if it came as a descriptor.
    pub descriptor: Option<Descriptor>,
    /// How many requests it stands for. For none, it is answered how its key stands.
    pub hits: u32,
    /// What it is asked for.
    pub purpose: Purpose,
    /// If it is said later what it cost: within so many seconds.
    pub reserve_s: Option<u32>,
}

/// What a request is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It takes what it costs, or nothing.
    Take,
    /// It takes nothing.
    Peek,
    /// It says what has happened: it takes what it costs, into debt if need be.
    Charge,
    /// It gives back what it costs.
    Refund,
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
            descriptor: None,
            hits: 1,
            purpose: Purpose::Take,
            reserve_s: None,
        }
    }
}

impl Ask {
    /// Writes the lines of this header; false if there is none.
    fn write_header(&self, name: &str, room: &mut Vec<u8>) -> bool {
        let mut values = self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value);
        let Some(first) = values.next() else { return false };
        room.extend_from_slice(first.as_bytes());
        for value in values {
            room.push(LINE_BREAK);
            room.extend_from_slice(value.as_bytes());
        }
        true
    }
}

impl Request for Ask {
    fn times(&self) -> u32 {
        self.hits
    }

    fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
        let mut room = Vec::new();
        self.attribute_into(attribute, &mut room).then_some(room)
    }

    fn attribute_into(&mut self, attribute: &Attribute, room: &mut Vec<u8>) -> bool {
        room.clear();
        if let Some(descriptor) = &self.descriptor {
            return descriptor.write(attribute, room);
        }
        let text = match attribute {
            // Writing to memory does not fail.
            Attribute::SourceAddress => {
                return self.address.is_some_and(|address| write!(room, "{address}").is_ok());
            }
            Attribute::Method => self.method.as_ref(),
            Attribute::Path => self.path.as_ref(),
            Attribute::Authority => self.host.as_ref(),
            Attribute::Route => None,
            Attribute::Header(name) => return self.write_header(name, room),
            Attribute::Claim(path) => {
                let claim = self.claims.iter().find(|(known, _)| known == path);
                claim.map(|(_, value)| value)
            }
        };
        text.is_some_and(|text| {
            room.extend_from_slice(text.as_bytes());
            true
        })
    }
}
