//! A request whose attributes are fetched once.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::address;
use super::attribute::{AttributeId, Attributes, Request};
use super::credentials::normalise_credentials;
use super::folding::{Folding, PathRead};
use super::host::HostRead;

/// What was fetched of one request; its memory is used again for the next.
#[derive(Debug, Default)]
pub struct Values {
    /// Counts the requests.
    request: u64,
    list: Vec<Value>,
    /// The address, and the request that it was read for.
    client_address: (u64, Option<IpAddr>),
    /// The text of the address that was read last, and the address: the next request is often from the same
    /// connection.
    last_read: (Vec<u8>, Option<IpAddr>),
    /// The path, and the request that it was read for.
    path: (u64, PathRead),
    /// The path in each way of folding it, unless it came folded.
    folded: [Folded; Folding::COUNT],
    /// The host, and the request that it was read for.
    host: (u64, HostRead),
}

/// A folded path.
#[derive(Clone, Debug, Default)]
struct Folded {
    /// The request that it was folded for.
    request: u64,
    bytes: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct Value {
    /// The request that it was last fetched for.
    request: u64,
    is_there: bool,
    bytes: Vec<u8>,
}

/// A request whose attributes are fetched once.
pub struct Fetched<'a> {
    request: &'a mut dyn Request,
    attributes: &'a Attributes,
    values: &'a mut Values,
    times: u32,
}

impl<'a> Fetched<'a> {
    /// How many requests it stands for.
    pub(crate) fn times(&self) -> u32 {
        self.times
    }

    /// `request`, with nothing fetched yet.
    pub fn new(request: &'a mut dyn Request, attributes: &'a Attributes, values: &'a mut Values) -> Self {
        // Requests count from 1, so a value that was never fetched is of no request.
        values.request += 1;
        if values.list.len() != attributes.len() {
            values.list.resize_with(attributes.len(), Value::default);
        }
        let times = request.times();
        Self { request, attributes, values, times }
    }

    /// The attribute's bytes, fetched on the first call.
    #[inline]
    pub fn get(&mut self, id: AttributeId) -> Option<&[u8]> {
        let place = id.place();
        if self.values.list.get(place)?.request != self.values.request {
            self.fetch(id)?;
        }
        self.values.list.get(place).filter(|value| value.is_there).map(|value| value.bytes.as_slice())
    }

    #[inline(never)]
    fn fetch(&mut self, id: AttributeId) -> Option<()> {
        let Self { request, attributes, values, .. } = self;
        let value = values.list.get_mut(id.place())?;
        value.is_there = request.attribute_into(attributes.get(id)?, &mut value.bytes);
        value.request = values.request;
        if attributes.is_credentials(id) {
            normalise_credentials(&mut value.bytes);
        }
        Some(())
    }

    /// The path without its query, folded; `None` if the host has none. It is read on the first call; one that came
    /// folded is not copied.
    pub fn path(&mut self, folding: Folding) -> Option<&[u8]> {
        self.get(AttributeId::PATH)?;
        let Values { request, list, path: (read_for, read), folded, .. } = &mut *self.values;
        let target = &list.get(AttributeId::PATH.place())?.bytes;
        if *read_for != *request {
            (*read_for, *read) = (*request, PathRead::of(target));
        }
        let path = target.get(..read.len)?;
        if read.is_folded || folding == Folding::NONE {
            return Some(path);
        }
        let folded = folded.get_mut(folding.number())?;
        if folded.request != *request {
            folding.fold(path, &mut folded.bytes);
            folded.request = *request;
        }
        Some(&folded.bytes)
    }

    /// The host without its port, in lower case and backwards, read on the first call; `None` if there is none.
    pub(crate) fn host_backwards(&mut self) -> Option<&[u8]> {
        self.get(AttributeId::AUTHORITY)?;
        let Values { request, list, host: (read_for, read), .. } = &mut *self.values;
        if *read_for != *request {
            read.read(&list.get(AttributeId::AUTHORITY.place())?.bytes);
            *read_for = *request;
        }
        Some(read.backwards())
    }

    /// The client's address, read on the first call; `None` if there is none that can be read.
    pub fn client_address(&mut self) -> Option<IpAddr> {
        if self.values.client_address.0 != self.values.request {
            let is_there = self.get(AttributeId::SOURCE_ADDRESS).is_some();
            let Values { list, last_read: (last, read), .. } = &mut *self.values;
            if let Some(text) = list.first().filter(|_| is_there).map(|value| &value.bytes)
                && text != last
            {
                *read = address::parse(text);
                last.clone_from(text);
            }
            let address = read.filter(|_| is_there);
            self.values.client_address = (self.values.request, address);
        }
        self.values.client_address.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Attribute;

    /// Has every attribute but headers, and counts how often it is asked.
    struct Counting(u32);

    impl Request for Counting {
        fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
            self.0 += 1;
            (!matches!(attribute, Attribute::Header(_))).then(|| b"x".to_vec())
        }
    }

    #[test]
    fn an_attribute_is_asked_for_once_whether_it_is_there_or_not() {
        let (mut attributes, mut values) = (Attributes::default(), Values::default());
        let header = attributes.intern(Attribute::Header("a".into())).unwrap();
        assert_eq!(attributes.intern(Attribute::Header("a".into())), Some(header));
        for _ in 0..2 {
            let mut request = Counting(0);
            let mut fetched = Fetched::new(&mut request, &attributes, &mut values);
            for _ in 0..3 {
                assert_eq!(fetched.get(AttributeId::PATH), Some(&b"x"[..]));
                assert_eq!(fetched.get(header), None);
            }
            assert_eq!(request.0, 2);
        }
    }

    /// Has another address each time it is asked.
    struct Moving(u8);

    impl Request for Moving {
        fn attribute(&mut self, _: &Attribute) -> Option<Vec<u8>> {
            self.0 += 1;
            (self.0 > 1).then(|| std::format!("192.0.2.{}:80", self.0).into_bytes())
        }
    }

    #[test]
    fn the_client_address_is_read_once_per_request() {
        let (attributes, mut values) = (Attributes::default(), Values::default());
        let mut request = Moving(0);
        for expected in [None, Some("192.0.2.2".parse().unwrap()), Some("192.0.2.3".parse().unwrap())] {
            let mut fetched = Fetched::new(&mut request, &attributes, &mut values);
            assert_eq!([fetched.client_address(), fetched.client_address()], [expected; 2]);
        }
    }
}
