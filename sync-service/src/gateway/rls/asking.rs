//! What is asked: each descriptor of a request becomes a check, by the rules or by the limit that it brings.
//!
//! An entry's key says what its value is: the address, the method, the path or the host of a request, or else a header. What
//! a header could not say is a claim, as no client can make one up: the domain, the keys in their order, and what stands
//! beside the descriptor.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use tonic::Status;

use crate::gateway::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use weir_wire::quota::TOKENS_MAX;

use crate::gateway::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use crate::gateway::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::gateway::proto::envoy::r#type::v3::RateLimitUnit;
use crate::gateway::{Ask, Beside, PerUnit};

/// The most descriptors of a request, and the most entries of a descriptor.
pub const DESCRIPTORS_MAX: usize = 64;
/// The longest domain, and the longest key of an entry, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// The longest value of an entry, in bytes: no header that an Envoy lets in is longer, unless it is set up to. A request is
/// refused for it as a whole, and Envoy may let through what is refused so.
pub const VALUE_BYTES_MAX: usize = 65_536;

/// The longest value that may be meant as an address, in bytes.
const ADDRESS_BYTES_MAX: usize = 64;
/// The first name in the path of each claim that is made here.
const CLAIMS: &str = "ratelimit";

/// The check of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// By the rules.
    Rules(Box<Ask>),
    /// By the limit that it brings.
    Own(PerUnit),
}

/// The checks that `request` asks for, one for each descriptor. Fails with what is wrong with it, and where.
pub fn checks(request: &RateLimitRequest) -> Result<Vec<Check>, Status> {
    let RateLimitRequest { domain, descriptors, hits_addend } = request;
    name("domain", domain)?;
    count("descriptors", descriptors.len())?;
    for (index, descriptor) in descriptors.iter().enumerate() {
        judge(&format!("descriptors[{index}]"), descriptor)?;
    }
    // One that brings its own limit is none that a rule is told of.
    let is_by_rules = |descriptor: &&RateLimitDescriptor| descriptor.limit.is_none();
    let parts: Arc<[String]> = match descriptors.iter().filter(is_by_rules).count() {
        0 | 1 => Arc::default(),
        _ => {
            descriptors.iter().map(|one| if is_by_rules(&one) { part(one) } else { String::new() }).collect()
        }
    };
    let check = |(index, descriptor): (usize, &RateLimitDescriptor)| {
        let hits = hits(index, descriptor, *hits_addend)?;
        if let Some(limit) = descriptor.limit {
            return own(index, domain, descriptor, limit, hits).map(Check::Own);
        }
        let mut ask = ask(index, descriptor)?;
        claim(&mut ask, "domain", domain.clone());
        ask.beside = (!parts.is_empty()).then(|| Beside { parts: Arc::clone(&parts), own: index });
        (ask.hits, ask.is_peek) = (hits.max(1), hits == 0);
        Ok(Check::Rules(Box::new(ask)))
    };
    descriptors.iter().enumerate().map(check).collect()
}

/// How many requests a descriptor stands for. Zero only asks; but zero of a whole request is none given, and stands for one.
fn hits(index: usize, descriptor: &RateLimitDescriptor, of_request: u32) -> Result<u32, Status> {
    let hits = descriptor.hits_addend.unwrap_or_else(|| of_request.max(1).into());
    let expected = || format!("expected at most {}, found {hits}", u32::MAX);
    u32::try_from(hits).map_err(|_| wrong(&format!("descriptors[{index}].hits_addend"), &expected()))
}

/// The check of the descriptor at `index` by its own limit.
fn own(
    index: usize,
    domain: &str,
    descriptor: &RateLimitDescriptor,
    limit: RateLimitOverride,
    hits: u32,
) -> Result<PerUnit, Status> {
    let RateLimitOverride { requests_per_unit: requests, unit } = limit;
    let place = format!("descriptors[{index}].limit");
    if requests > TOKENS_MAX {
        let expected = format!("expected at most {TOKENS_MAX}, found {requests}: say it for a shorter unit");
        return Err(wrong(&format!("{place}.requests_per_unit"), &expected));
    }
    let unit_s = unit_s(unit).ok_or_else(|| {
        let expected = format!("expected SECOND, MINUTE, HOUR, DAY, MONTH or YEAR, found {unit}");
        wrong(&format!("{place}.unit"), &expected)
    })?;
    let mut key = String::new();
    push_escaped(&mut key, domain);
    key.push_str(&part(descriptor));
    Ok(PerUnit { key, requests, unit_s, hits: hits.max(1), is_peek: hits == 0 })
}

/// A unit's length in seconds, as envoyproxy/ratelimit has them.
fn unit_s(unit: i32) -> Option<u32> {
    Some(match RateLimitUnit::try_from(unit).ok()? {
        RateLimitUnit::Unknown => return None,
        RateLimitUnit::Second => 1,
        RateLimitUnit::Minute => 60,
        RateLimitUnit::Hour => 3_600,
        RateLimitUnit::Day => 86_400,
        RateLimitUnit::Month => 30 * 86_400,
        RateLimitUnit::Year => 365 * 86_400,
    })
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
    Ok(())
}

/// The check of the descriptor at `index`, without what is beside it.
fn ask(index: usize, descriptor: &RateLimitDescriptor) -> Result<Ask, Status> {
    let mut ask = Ask::default();
    let mut keys: Vec<&str> = Vec::with_capacity(descriptor.entries.len());
    for (number, entry) in descriptor.entries.iter().enumerate() {
        put(&mut ask, entry)
            .map_err(|expected| wrong(&format!("descriptors[{index}].entries[{number}].value"), &expected))?;
        let Entry { key, value } = entry;
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

/// Puts an entry where its key says: the first of them, if several say the same part of a request.
fn put(ask: &mut Ask, Entry { key, value }: &Entry) -> Result<(), String> {
    let part = match key.as_str() {
        "remote_address" => {
            if ask.address.is_none() {
                let found = || match value.len() {
                    ..=ADDRESS_BYTES_MAX => format!("`{value}`"),
                    length => format!("{length} bytes"),
                };
                let expected =
                    |_| format!("expected an IP address, as the key is remote_address, found {}", found());
                ask.address = Some(value.parse::<IpAddr>().map_err(expected)?);
            }
            return Ok(());
        }
        "method" => &mut ask.method,
        "path" => &mut ask.path,
        "host" => &mut ask.host,
        _ => {
            ask.headers.push((key.to_ascii_lowercase(), value.clone()));
            return Ok(());
        }
    };
    part.get_or_insert_with(|| value.clone());
    Ok(())
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

pub(in crate::gateway) fn name(place: &str, text: &str) -> Result<(), Status> {
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
