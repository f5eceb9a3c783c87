//! A request whose attributes are fetched once.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::encodings::Lines;
use super::folding::{Folding, PathRead, resolved};
use super::host::HostRead;
use super::{Attribute, AttributeId, Attributes, Request, address};

/// Attribute values of one request. The next request reuses the memory.
#[derive(Debug, Default)]
pub struct Values {
    request: u64,
    list: Vec<Value>,
    /// The client's address, and the request that it was read for.
    client_address: (u64, Option<IpAddr>),
    /// The last address read, and the result: the next request is often from the same connection.
    last_read: (Vec<u8>, Option<IpAddr>),
    /// The path, and the request that it was read for.
    path: (u64, PathRead),
    /// The path in each folding. Unused if the path needs none.
    folded: [Folded; Folding::COUNT],
    /// The host, and the request that it was read for.
    host: (u64, HostRead),
}

#[derive(Clone, Debug, Default)]
struct Folded {
    request: u64,
    bytes: Vec<u8>,
    has_dot_segments: bool,
}

#[derive(Clone, Debug, Default)]
struct Value {
    request: u64,
    is_there: bool,
    lines: Lines,
}

/// Limit of a request's search work: the sum over searches of value length times expression size, in bytes.
pub const SEARCH_WORK_MAX: usize = 4 * 1_024 * 1_024;

pub struct Fetched<'a> {
    request: &'a mut dyn Request,
    pub attributes: &'a Attributes,
    values: &'a mut Values,
    /// Number of requests that this one stands for.
    pub(crate) times: u32,
    /// Remaining search work, of [`SEARCH_WORK_MAX`].
    pub(crate) search_work: usize,
}

impl<'a> Fetched<'a> {
    #[inline]
    pub fn new(request: &'a mut dyn Request, attributes: &'a Attributes, values: &'a mut Values) -> Self {
        // Requests count from 1, so a value that was never fetched belongs to no request.
        values.request += 1;
        if values.list.len() != attributes.list.len() {
            values.list.resize_with(attributes.list.len(), Value::default);
        }
        let times = request.times();
        Self { request, attributes, values, times, search_work: SEARCH_WORK_MAX }
    }

    /// The attribute's bytes, fetched on the first call. Lines of a header are joined by commas.
    #[inline]
    pub fn get(&mut self, id: AttributeId) -> Option<&[u8]> {
        self.lines(id).map(Lines::joined)
    }

    /// The lines of a header, fetched on the first call. Any other attribute is one line.
    #[inline]
    pub(crate) fn lines(&mut self, id: AttributeId) -> Option<&Lines> {
        let place = id.place();
        if self.values.list.get(place)?.request != self.values.request {
            self.fetch(id)?;
        }
        self.values.list.get(place).filter(|value| value.is_there).map(|value| &value.lines)
    }

    #[inline(never)]
    fn fetch(&mut self, id: AttributeId) -> Option<()> {
        let Self { request, attributes, values, .. } = self;
        let value = values.list.get_mut(id.place())?;
        let attribute = attributes.get(id)?;
        value.is_there = request.attribute_into(attribute, value.lines.room());
        value.request = values.request;
        if matches!(attribute, Attribute::Header(_)) {
            value.lines.read(attributes.is_credentials(id), attributes.is_singular(id));
        }
        Some(())
    }

    /// The folded path without its query, and true if it has segments `.` or `..`, which upstreams may resolve. A path
    /// that needs no folding is not copied.
    pub(crate) fn folded_path(&mut self, folding: Folding) -> Option<(&[u8], bool)> {
        self.get(AttributeId::PATH)?;
        let Values { request, list, path: (read_for, read), folded, .. } = &mut *self.values;
        let target = &list.get(AttributeId::PATH.place())?.lines.joined();
        if *read_for != *request {
            (*read_for, *read) = (*request, PathRead::of(target));
        }
        let path = target.get(..read.len)?;
        if read.is_folded {
            return Some((path, false));
        }
        let folded = folded.get_mut(folding.number())?;
        if folded.request != *request {
            folded.has_dot_segments = folding.fold(path, &mut folded.bytes);
            folded.request = *request;
        }
        Some((&folded.bytes, folded.has_dot_segments))
    }

    #[inline]
    pub(crate) fn has_dot_segments(&mut self, folding: Folding) -> bool {
        let Values { request, path: (read_for, read), .. } = &*self.values;
        let is_plain = read_for == request && read.is_folded;
        !is_plain && self.folded_path(folding).is_some_and(|(_, has_dot_segments)| has_dot_segments)
    }

    /// The path of a key: folded in all ways, without segments `.` and `..`.
    pub(crate) fn resolved_path(&mut self) -> Option<Cow<'_, [u8]>> {
        let (path, has_dot_segments) = self.folded_path(Folding::ALL)?;
        Some(if has_dot_segments { resolved(path).into() } else { path.into() })
    }

    pub(crate) fn host(&mut self) -> Option<&HostRead> {
        self.get(AttributeId::AUTHORITY)?;
        let Values { request, list, host: (read_for, read), .. } = &mut *self.values;
        if *read_for != *request {
            read.read(list.get(AttributeId::AUTHORITY.place())?.lines.joined());
            *read_for = *request;
        }
        Some(read)
    }

    /// The client's address, read on the first call; `None` if it is missing or unreadable.
    pub fn client_address(&mut self) -> Option<IpAddr> {
        if self.values.client_address.0 != self.values.request {
            let is_there = self.get(AttributeId::SOURCE_ADDRESS).is_some();
            let Values { list, last_read: (last, read), .. } = &mut *self.values;
            if let Some(text) = list.first().filter(|_| is_there).map(|value| value.lines.joined())
                && text != last
            {
                *read = address::parse(text);
                last.clear();
                last.extend_from_slice(text);
            }
            let address = read.filter(|_| is_there);
            self.values.client_address = (self.values.request, address);
        }
        self.values.client_address.1
    }
}
