//! What is asked: each descriptor of a request becomes a check.
//!
//! An entry's key says what its value is: the address, the method, the path or the host of a request, or else a header. What
//! a header could not say is a claim, as no client can make one up: the domain, the keys in their order, and what stands
//! beside the descriptor.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use tonic::Status;

use crate::gateway::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::gateway::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use crate::gateway::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::gateway::{Ask, Beside};

/// The most descriptors of a request, and the most entries of a descriptor.
pub const DESCRIPTORS_MAX: usize = 64;
/// The longest domain, and the longest key of an entry, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// The longest value of an entry, in bytes.
pub const VALUE_BYTES_MAX: usize = 8_192;

/// The first name in the path of each claim that is made here.
const CLAIMS: &str = "ratelimit";

/// The checks that `request` asks for, one for each descriptor. Fails with what is wrong with it, and where.
pub fn asks(request: &RateLimitRequest) -> Result<Vec<Ask>, Status> {
    let RateLimitRequest { domain, descriptors, hits_addend } = request;
    name("domain", domain)?;
    count("descriptors", descriptors.len())?;
    for (index, descriptor) in descriptors.iter().enumerate() {
        judge(&format!("descriptors[{index}]"), descriptor)?;
    }
    let parts: Arc<[String]> = match descriptors.len() {
        1 => Arc::default(),
        _ => descriptors.iter().map(part).collect(),
    };
    let ask = |(index, descriptor): (usize, &RateLimitDescriptor)| {
        let mut ask = ask(index, descriptor)?;
        claim(&mut ask, "domain", domain.clone());
        ask.beside = (!parts.is_empty()).then(|| Beside { parts: Arc::clone(&parts), own: index });
        let hits = descriptor.hits_addend.unwrap_or_else(|| (*hits_addend).into()).max(1);
        let expected = || format!("expected at most {}, found {hits}", u32::MAX);
        ask.hits = u32::try_from(hits)
            .map_err(|_| wrong(&format!("descriptors[{index}].hits_addend"), &expected()))?;
        Ok(ask)
    };
    descriptors.iter().enumerate().map(ask).collect()
}

/// Refuses what no check is made of.
fn judge(place: &str, descriptor: &RateLimitDescriptor) -> Result<(), Status> {
    count(&format!("{place}.entries"), descriptor.entries.len())?;
    for (index, entry) in descriptor.entries.iter().enumerate() {
        let place = format!("{place}.entries[{index}]");
        name(&format!("{place}.key"), &entry.key)?;
        let length = entry.value.len();
        if length > VALUE_BYTES_MAX {
            let expected = format!("expected at most {VALUE_BYTES_MAX} bytes, found {length}");
            return Err(wrong(&format!("{place}.value"), &expected));
        }
    }
    if descriptor.limit.is_some() {
        let expected = "expected none: the fleet's rules say the limit (docs/gateway.md has the door for limits of the caller's own)";
        return Err(wrong(&format!("{place}.limit"), expected));
    }
    Ok(())
}

/// The check of the descriptor at `index`, without what is beside it.
fn ask(index: usize, descriptor: &RateLimitDescriptor) -> Result<Ask, Status> {
    let mut ask = Ask::default();
    let mut keys: Vec<&str> = Vec::with_capacity(descriptor.entries.len());
    for (number, Entry { key, value }) in descriptor.entries.iter().enumerate() {
        let attribute = match key.as_str() {
            "remote_address" if ask.address.is_none() => {
                ask.address = Some(address(value).ok_or_else(|| {
                    let expected =
                        format!("expected an IP address, as the key is remote_address, found `{value}`");
                    wrong(&format!("descriptors[{index}].entries[{number}].value"), &expected)
                })?);
                None
            }
            "method" => Some(&mut ask.method),
            "path" => Some(&mut ask.path),
            "host" => Some(&mut ask.host),
            "remote_address" => None,
            _ => {
                ask.headers.push((key.to_ascii_lowercase(), value.clone()));
                None
            }
        };
        if let Some(attribute) = attribute {
            attribute.get_or_insert_with(|| value.clone());
        }
        if !keys.contains(&key.as_str()) {
            ask.claims.push((vec![CLAIMS.into(), "entry".into(), key.clone()], value.clone()));
        }
        keys.push(key);
    }
    let mut entries = String::new();
    for (number, key) in keys.iter().enumerate() {
        entries.push_str(if number == 0 { "" } else { "," });
        push_escaped(&mut entries, key);
    }
    claim(&mut ask, "entries", entries);
    Ok(ask)
}

fn claim(ask: &mut Ask, name: &str, value: String) {
    ask.claims.push((vec![CLAIMS.into(), name.into()], value));
}

/// A descriptor as those beside it see it: `;key=value,key=value;`.
fn part(descriptor: &RateLimitDescriptor) -> String {
    let mut text = String::new();
    for (number, Entry { key, value }) in descriptor.entries.iter().enumerate() {
        text.push(if number == 0 { ';' } else { ',' });
        push_escaped(&mut text, key);
        text.push('=');
        push_escaped(&mut text, value);
    }
    text.push(';');
    text
}

/// Without the signs that separate, which are written as in a URL.
fn push_escaped(text: &mut String, part: &str) {
    for letter in part.chars() {
        if matches!(letter, '%' | ',' | ';' | '=') {
            // Writing to a String does not fail.
            let _ = write!(text, "%{:02X}", u32::from(letter));
        } else {
            text.push(letter);
        }
    }
}

/// An address as Envoy writes it.
fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

fn name(place: &str, text: &str) -> Result<(), Status> {
    let expected = || format!("expected a text of 1 to {NAME_BYTES_MAX} bytes, found {}", text.len());
    if (1..=NAME_BYTES_MAX).contains(&text.len()) { Ok(()) } else { Err(wrong(place, &expected())) }
}

fn count(place: &str, count: usize) -> Result<(), Status> {
    let expected = || format!("expected 1 to {DESCRIPTORS_MAX}, found {count}");
    if (1..=DESCRIPTORS_MAX).contains(&count) { Ok(()) } else { Err(wrong(place, &expected())) }
}

fn wrong(place: &str, expected: &str) -> Status {
    Status::invalid_argument(format!("{place}: {expected}"))
}

#[cfg(test)]
mod tests;
