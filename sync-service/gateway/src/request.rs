//! Requests to be checked: the attributes of a request that another service serves.

use std::io::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use weir_rules::request::{Attribute, Request};

use super::descriptor::{Descriptor, put, put_lines};

/// Request to be decided. It lacks every attribute that is not given.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckRequest {
    /// Address of the client.
    pub address: Option<IpAddr>,
    pub(crate) method: Option<String>,
    pub(crate) host: Option<String>,
    /// Path with its query.
    pub(crate) path: Option<String>,
    /// Header lines, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// Claims by paths of names: those of the request's token, and attributes that no client can forge.
    pub(crate) claims: Vec<(Vec<String>, String)>,
    /// Descriptor that supplies all attributes instead, if the check came as one.
    pub(crate) descriptor: Option<Descriptor>,
    /// Number of requests that the check stands for. With 0, only the quota status is returned.
    pub(crate) hits: u32,
    pub(crate) purpose: CheckPurpose,
    /// Time in seconds within which the actual cost is settled, if the check reserves an estimate.
    pub(crate) reserve_s: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckPurpose {
    Take,
    Peek,
    /// Records what has already happened: consumes the cost, into debt if need be.
    Charge,
    Refund,
}

impl Default for CheckRequest {
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
            purpose: CheckPurpose::Take,
            reserve_s: None,
        }
    }
}

impl Request for CheckRequest {
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
            // Writing to memory cannot fail.
            Attribute::SourceAddress => {
                return self.address.is_some_and(|address| write!(room, "{address}").is_ok());
            }
            Attribute::Method => self.method.as_ref(),
            Attribute::Path => self.path.as_ref(),
            Attribute::Authority => self.host.as_ref(),
            // Only a proxy has routes.
            Attribute::Route => None,
            Attribute::Header(name) => {
                let lines = self.headers.iter().filter(|(known, _)| known == name);
                return put_lines(lines.map(|(_, value)| value.as_str()), room);
            }
            Attribute::Claim(path) => {
                let claim = self.claims.iter().find(|(known, _)| known == path);
                claim.map(|(_, value)| value)
            }
        };
        text.is_some_and(|text| put(text, room))
    }
}

/// Total time to wait for a store that does not answer. Each call may use at most half of what is left.
#[derive(Debug)]
pub(super) struct Patience(Duration);

impl Patience {
    pub(super) fn endless() -> Self {
        Self(Duration::MAX)
    }

    pub(super) fn of(all: Duration) -> Self {
        Self(all)
    }

    /// Time limit of a call that may take at most `time`.
    pub(super) fn limit(&self, time: Duration) -> Duration {
        time.min(self.0 / 2)
    }

    /// Deducts the time of a call that was not answered.
    pub(super) fn take(&mut self, waited: Duration) {
        self.0 = self.0.saturating_sub(waited);
    }
}
