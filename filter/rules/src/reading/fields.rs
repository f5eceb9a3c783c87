//! Walks through configuration, which arrives as JSON. An [`Item`] is one value, [`Fields`] are the fields of an
//! object. Both have a place and record errors in [`ErrorCollector`]. A wrong value reads as `None`, and reading
//! continues. A document is good if no error was recorded.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

use serde_json::{Map, Value};

use super::struct_value::whole_number;
use super::{ErrorCollector, joined, meant};
use weir_protocol::messages::RULE_NAME_MAX;

/// Maximum number of characters of a found value that an error repeats.
const FOUND_CHARS_MAX: usize = 60;

/// Place of a value: a field or an item of the value at `parent`, or an item of one of its fields.
#[derive(Clone, Copy)]
struct Place<'a> {
    parent: Option<&'a Self>,
    field: Option<&'a str>,
    item: Option<usize>,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
            // The document itself has no name.
            if self.field.is_some() && parent.parent.is_some() {
                f.write_str(".")?;
            }
        }
        f.write_str(self.field.unwrap_or_default())?;
        self.item.map_or(Ok(()), |i| write!(f, "[{i}]"))
    }
}

#[derive(Clone, Copy)]
pub struct Item<'a> {
    value: &'a Value,
    place: Place<'a>,
    errors: &'a ErrorCollector,
}

impl<'a> Item<'a> {
    /// A whole document.
    pub fn new(value: &'a Value, errors: &'a ErrorCollector) -> Self {
        Self { value, place: Place { parent: None, field: None, item: None }, errors }
    }

    pub fn value(&self) -> &'a Value {
        self.value
    }

    pub fn record(&self, problem: impl fmt::Display) {
        self.errors.record(&self.place, &problem);
    }

    pub fn record_at(&self, name: &str, problem: impl fmt::Display) {
        self.within(name, self.value).record(problem);
    }

    /// Records that the value is a short form of `full`, for hosts that show full forms.
    pub(crate) fn is_short_for(&self, full: impl FnOnce() -> Value) {
        // The filter shows none.
        if cfg!(not(target_family = "wasm")) {
            self.errors.record_short_form(&self.place, &self.place, full());
        }
    }

    /// Records that the value is a short form of the text `full`, unless they are equal.
    pub(crate) fn is_text_for(&self, full: &dyn fmt::Display) {
        if cfg!(not(target_family = "wasm")) {
            let full = full.to_string();
            if self.value != full.as_str() {
                self.is_short_for(|| full.into());
            }
        }
    }

    pub fn record_unexpected(&self, expected: impl fmt::Display) {
        self.record_found(&format_args!("expected {expected}"));
    }

    // Not generic, so that it is compiled once.
    #[inline(never)]
    fn record_found(&self, problem: &dyn fmt::Display) {
        self.record(format_args!("{problem}, found {}", shown(self.value)));
    }

    pub fn fields(&'a self) -> Option<Fields<'a>> {
        let Some(object) = self.value.as_object() else {
            self.record_unexpected("an object");
            return None;
        };
        Some(Fields { item: self, object, known: Vec::new() })
    }

    pub fn within<'b>(&'b self, name: &'b str, value: &'b Value) -> Item<'b> {
        Item { value, place: Place { parent: Some(&self.place), field: Some(name), item: None }, errors: self.errors }
    }

    #[allow(clippy::inline_always, reason = "its bounds take less code to pass than a range")]
    #[inline(always)]
    pub fn number(&self, range: RangeInclusive<u32>) -> Option<u32> {
        self.number_from(*range.start(), *range.end())
    }

    fn number_from(&self, min: u32, max: u32) -> Option<u32> {
        let number = self.whole().and_then(|n| u32::try_from(n).ok()).filter(|n| (min..=max).contains(n));
        if number.is_none() {
            self.record_unexpected(format_args!("a whole number from {min} to {max}"));
        }
        number
    }

    /// Reads a whole number below 2^53 (below 2^64 if written without a decimal point).
    pub(crate) fn whole(&self) -> Option<u64> {
        let whole = whole_number(self.value);
        if let (Some(whole), true) = (whole, self.value.is_string()) {
            self.is_short_for(|| whole.into());
        }
        whole
    }

    pub fn text(&self, bytes_max: usize) -> Option<&'a str> {
        let text = self.value.as_str().filter(|text| (1..=bytes_max).contains(&text.len()));
        if text.is_none() {
            self.record_unexpected(format_args!("text of 1 to {bytes_max} bytes"));
        }
        text
    }

    pub fn parsed<T: FromStr<Err: fmt::Display>>(&self) -> Option<T> {
        let read = self.value.as_str().unwrap_or_default().parse::<T>();
        read.map_err(|error| self.record_found(&error)).ok()
    }

    pub(crate) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let place = self.choose(choices.len(), &|place| choices.get(place).map_or("", |(name, _)| *name))?;
        choices.get(place).map(|(_, meaning)| *meaning)
    }

    /// Index of the text among the names of `count` choices. Not generic, so that it is compiled once.
    #[inline(never)]
    fn choose<'b>(&self, count: usize, name: &dyn Fn(usize) -> &'b str) -> Option<usize> {
        let chosen = self.value.as_str().and_then(|text| (0..count).find(|place| name(*place) == text));
        if chosen.is_none() {
            self.record_unexpected(joined((0..count).map(name), " or "));
        }
        chosen
    }

    /// The items of a list; a value that is not a list counts as its only item.
    pub fn items(&self) -> Items<'_> {
        let place = Place { parent: Some(&self.place), field: None, item: Some(0) };
        if let Some(values) = self.value.as_array() {
            return Items { values, place, errors: self.errors };
        }
        self.is_short_for(|| Value::Array(self.only().to_vec()));
        Items { values: self.only(), place: self.place, errors: self.errors }
    }

    /// The value as a list of one item, which may be written without brackets.
    fn only(&self) -> &'a [Value] {
        core::slice::from_ref(self.value)
    }

    /// The values of a list of 1 to `len_max` items. A value that is not a list counts as its only item.
    fn list(&self, len_max: usize) -> &'a [Value] {
        let Some(items) = self.value.as_array() else { return self.only() };
        if (1..=len_max).contains(&items.len()) {
            return items;
        }
        self.record(format_args!("expected a list of 1 to {len_max} items, found {}", items.len()));
        &[]
    }
}

pub struct Items<'a> {
    values: &'a [Value],
    place: Place<'a>,
    errors: &'a ErrorCollector,
}

impl Items<'_> {
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    // All lists of a configuration are read through this iterator; inlined copies would take kilobytes.
    #[inline(never)]
    fn next(&mut self) -> Option<Item<'a>> {
        let (value, rest) = self.values.split_first()?;
        let item = Item { value, place: self.place, errors: self.errors };
        self.values = rest;
        self.place.item = self.place.item.map(|i| i + 1);
        Some(item)
    }
}

/// The fields of an object, taken one by one. A field that was not taken is unknown, which is an error.
pub struct Fields<'a> {
    item: &'a Item<'a>,
    object: &'a Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub fn record(&self, problem: impl fmt::Display) {
        self.item.record(problem);
    }

    pub fn record_at(&self, name: &str, problem: impl fmt::Display) {
        self.item.record_at(name, problem);
    }

    /// Takes the field `name` if it is present and not null. A null is recorded as an error by `finish`.
    pub fn take(&mut self, name: &'static str) -> Option<Item<'a>> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        let value = self.object.get(name).filter(|value| !value.is_null())?;
        Some(self.item.within(name, value))
    }

    pub(crate) fn has(&mut self, name: &'static str) -> bool {
        self.take(name).is_some()
    }

    /// The name of the only one of these fields that is present; `None` if none is, or several are.
    pub(crate) fn only(&mut self, names: &[&'static str]) -> Option<&'static str> {
        let (mut only, mut present) = (None, 0);
        for &name in names {
            if self.has(name) {
                (only, present) = (Some(name), present + 1);
            }
        }
        only.filter(|_| present == 1)
    }

    pub fn require(&mut self, name: &'static str, expected: &str) -> Option<Item<'a>> {
        let item = self.take(name);
        if item.is_none() {
            self.record_at(name, format_args!("missing: expected {expected}"));
        }
        item
    }

    /// Takes the required field `name`, the name of a rule or a tier. If missing, the error states `expected`.
    pub(crate) fn rule_name(&mut self, expected: &str) -> Option<String> {
        let item = self.require("name", expected)?;
        let fits = |name: &&str| {
            let is_of_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
            (1..=RULE_NAME_MAX).contains(&name.len()) && name.bytes().all(is_of_name)
        };
        let name = item.value.as_str().filter(fits);
        if name.is_none() {
            item.record_unexpected(format_args!("1 to {RULE_NAME_MAX} characters from a-z, 0-9, - and _"));
        }
        name.map(ToOwned::to_owned)
    }

    #[allow(clippy::inline_always, reason = "its bounds take less code to pass than a range")]
    #[inline(always)]
    pub fn number(&mut self, name: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        self.number_from(name, *range.start(), *range.end())
    }

    fn number_from(&mut self, name: &'static str, min: u32, max: u32) -> Option<u32> {
        self.take(name)?.number_from(min, max)
    }

    pub fn boolean(&mut self, name: &'static str) -> Option<bool> {
        let item = self.take(name)?;
        let truth = item.value.as_bool();
        if truth.is_none() {
            item.record_unexpected("true or false");
        }
        truth
    }

    pub fn text(&mut self, name: &'static str, bytes_max: usize) -> Option<&'a str> {
        self.take(name)?.text(bytes_max)
    }

    pub(crate) fn choice<T: Copy>(&mut self, name: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let place = self.choose(name, choices.len(), &|place| choices.get(place).map_or("", |(name, _)| *name))?;
        choices.get(place).map(|(_, meaning)| *meaning)
    }

    /// Like [`Item::choose`]. Not generic, so that it is compiled once.
    #[inline(never)]
    fn choose<'b>(&mut self, name: &'static str, count: usize, choice: &dyn Fn(usize) -> &'b str) -> Option<usize> {
        self.take(name)?.choose(count, choice)
    }

    /// Takes the items of the field `name`, a list of 1 to `len_max`; no items if it is absent.
    pub(crate) fn list(&mut self, name: &'static str, len_max: usize) -> Items<'a> {
        self.list_as(name, name, len_max)
    }

    /// Like `list`, for a field `name` that is a short form of `full_name`.
    pub(crate) fn list_as(&mut self, name: &'static str, full_name: &str, len_max: usize) -> Items<'a> {
        let list = self.take(name);
        // Without brackets, the only item has the list's place.
        let first = list.filter(|list| list.value.is_array()).map(|_| 0);
        if let Some(list) = list.filter(|_| name != full_name || first.is_none())
            && cfg!(not(target_family = "wasm"))
        {
            let items = list.value.as_array().map_or_else(|| list.only().to_vec(), Vec::clone);
            let full = self.item.within(full_name, list.value);
            self.item.errors.record_short_form(&list.place, &full.place, Value::Array(items));
        }
        let values = list.map_or(&[][..], |list| list.list(len_max));
        let Item { place, errors, .. } = self.item;
        Items { values, place: Place { parent: Some(place), field: Some(name), item: first }, errors }
    }

    /// Records an error for each field that was not taken, and for each null.
    pub fn finish(self) {
        self.finish_with(|_, _, _| None);
    }

    /// Like `finish`, but `meant` may translate a field of another limiter's configuration (object, name, value).
    pub(crate) fn finish_with(self, meant: fn(&Map<String, Value>, &str, &Value) -> Option<String>) {
        for (name, value) in self.object {
            if self.item.errors.is_full() {
                return;
            }
            if !self.known.contains(&name.as_str()) {
                match meant(self.object, name, value).or_else(|| meant::nearest(&self.known, name)) {
                    Some(meant) => self.record_at(name, format_args!("unknown field: did you mean {meant}?")),
                    None => self.record_at(name, format_args!("unknown field: expected {}", joined(&self.known, ", "))),
                }
            } else if value.is_null() {
                // A null is an error because a field that was meant to narrow a rule must not widen it.
                self.record_at(name, "empty: expected a value, or no such field");
            }
        }
    }
}

/// Formats a value for an error. Texts are cut short; objects and lists are only named.
fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quoted(text),
    }
}

/// Quotes a text for an error, cut short.
pub(crate) fn quoted(text: &str) -> String {
    let (cut, dots) = match text.char_indices().nth(FOUND_CHARS_MAX) {
        Some((at, _)) => (text.get(..at).unwrap_or_default(), "..."),
        None => (text, ""),
    };
    format!("{cut:?}{dots}")
}

/// True if the text is a token (RFC 9110, 5.6.2), like the names of headers and cookies.
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}
