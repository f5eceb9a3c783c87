//! Map from keys to the nodes of a cluster.

use std::collections::BTreeSet;

use redis::Value;

use crate::address::Node;

const SLOTS: u16 = 16_384;
/// Maximum number of names that are tried to find one in a slot of each node.
const NAMES_MAX: u32 = 20_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// True if the node serves keys; one that is cut off from most masters does not.
    pub(super) is_ok: bool,
    /// Epoch of the latest change of a master that the node has received.
    pub(super) epoch: u64,
    pub(super) slots: SlotMap,
}

impl View {
    /// Parses the answers to `CLUSTER INFO` and `CLUSTER SLOTS` of the node at `host`.
    pub(super) fn read(info: &str, slots: &Value, host: &str) -> Option<Self> {
        let row = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let epoch = row("cluster_current_epoch")?.trim().parse().ok()?;
        let is_ok = row("cluster_state")?.trim() == "ok";
        Some(Self { is_ok, epoch, slots: SlotMap::read(slots, host)? })
    }

    /// Selects the view to use: of nodes that serve keys rather than others; then the latest; then the most
    /// frequent. A master that was replaced while it was cut off, or hung, still considers itself one.
    pub(super) fn best(views: &[Self]) -> Option<&Self> {
        let agree = |view: &Self| views.iter().filter(|other| other.slots == view.slots).count();
        // The first of equal views, so that each read selects the same.
        views.iter().rev().max_by_key(|view| (view.is_ok, view.epoch, agree(view)))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotMap(Vec<Range>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
    node: Node,
}

/// A key's slot: a checksum (CRC-16/XMODEM) of the part in braces, or of the whole key.
pub(super) fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let step = |crc: u16| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
    let add = |crc: u16, byte: &u8| (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| step(crc));
    hashed.as_bytes().iter().fold(0, add) % SLOTS
}

impl SlotMap {
    /// Parses the answer to `CLUSTER SLOTS` of the node at `host`, which may leave out its own address.
    pub(super) fn read(answer: &Value, host: &str) -> Option<Self> {
        let Value::Array(rows) = answer else { return None };
        let mut ranges = rows.iter().map(|row| range(row, host)).collect::<Option<Vec<_>>>()?;
        ranges.sort_unstable_by_key(|range| range.first);
        (!ranges.is_empty()).then_some(Self(ranges))
    }

    pub(super) fn node_of(&self, slot: u16) -> Option<&Node> {
        let at = self.0.partition_point(|range| range.last < slot);
        self.0.get(at).filter(|range| range.first <= slot).map(|range| &range.node)
    }

    pub(super) fn nodes(&self) -> BTreeSet<&Node> {
        self.0.iter().map(|range| &range.node).collect()
    }

    /// A hash tag whose slot `node` serves.
    pub(super) fn tag_of(&self, node: &Node) -> String {
        let mut names = (0..NAMES_MAX).map(|number| format!("probe:{number}"));
        names.find(|name| self.node_of(slot_of(name)) == Some(node)).unwrap_or_else(|| "probe".into())
    }
}

/// Parses `[first, last, [host, port, ...], ...]`: the master comes first.
fn range(row: &Value, asked: &str) -> Option<Range> {
    let Value::Array(row) = row else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = row.as_slice() else { return None };
    let [host, Value::Int(port), ..] = master.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) if !host.is_empty() => String::from_utf8(host.clone()).ok()?,
        _ => asked.to_owned(),
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    Some(Range { first, last, node: Node::new(host, u16::try_from(*port).ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_of_a_key_is_that_of_its_first_braces() {
        // From `CLUSTER KEYSLOT`.
        for (key, slot) in
            [("123456789", 12_739), ("foo{}{bar}", 8_363), ("foo{{bar}}zap", 4_015), ("weir:{a1}", 7_785)]
        {
            assert_eq!(slot_of(key), slot, "{key}");
        }
        assert_eq!(slot_of("weir:{a1}:b{c}"), slot_of("a1"));
    }

    fn row(first: i64, last: i64, host: &str, port: i64) -> Value {
        let node = |host: &str, port| Value::Array(vec![Value::BulkString(host.into()), Value::Int(port)]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node(host, port), node("replica", 1)])
    }

    #[test]
    fn views_of_idle_or_outdated_nodes_are_ignored() {
        let view = |state: &str, epoch, node| {
            let info = format!(
                "cluster_state:{state}\r\ncluster_slots_ok:16384\r\ncluster_current_epoch:{epoch}\r\ncluster_my_epoch:1\r\n"
            );
            View::read(&info, &Value::Array(vec![row(0, 16_383, node, 1)]), "").unwrap()
        };
        let best = |views: &[View]| {
            let best = View::best(views).unwrap();
            best.slots.node_of(0).unwrap().host.clone()
        };
        assert_eq!(best(&[view("ok", 6, "old"), view("ok", 7, "new"), view("ok", 6, "old")]), "new");
        assert_eq!(best(&[view("fail", 9, "alone"), view("ok", 8, "most"), view("fail", 9, "alone")]), "most");
        assert_eq!(best(&[view("ok", 7, "alone"), view("ok", 7, "most"), view("ok", 7, "most")]), "most");
        assert_eq!(best(&[view("ok", 7, "first"), view("ok", 7, "second")]), "first");
        assert_eq!(best(&[view("fail", 1, "only")]), "only", "there is no other");
        assert_eq!(View::best(&[]), None);
        assert_eq!(View::read("cluster_state:ok\r\n", &Value::Array(vec![row(0, 1, "a", 1)]), ""), None);
    }
}
