//! Cases that are timed (`make bench-native`) and counted (`make instructions`): the core's own work, without a host.
//!
//! A case sets something up, and is then one operation, repeated. The slots are in this program's memory, so a
//! decision is: the rules, the address, hashing, reading a slot, deciding, sealing and writing it. A proxy adds
//! its host calls. In a case of "own memory", the slots are those of a host whose workers are threads of one
//! program, as the dynamic module has them: most entries are changed where they are.

mod decisions;
mod host;
mod messages;
mod own_memory;
mod tables;

/// Addresses in turn, of those cases that have many: more than the deny cache remembers.
pub const ADDRESSES: u32 = 32_768;

/// One operation on what a case has set up.
pub type Operation = Box<dyn FnMut()>;

/// Something to time or to count.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its group.
    pub group: &'static str,
    /// Names it in its group.
    pub name: &'static str,
    start: fn() -> Operation,
}

impl Case {
    /// Sets it up; what is returned is the operation.
    pub fn start(&self) -> Operation {
        (self.start)()
    }

    /// Names it among all.
    pub fn title(&self) -> String {
        format!("{}: {}", self.group, self.name)
    }
}

/// Every case of `group`, or of all groups.
pub fn all(group: Option<&str>) -> Vec<Case> {
    let cases = [decisions::CASES, tables::CASES, own_memory::CASES, messages::CASES].concat();
    cases.into_iter().filter(|case| group.is_none_or(|group| case.group == group)).collect()
}

/// The `n`-th address of 10.0.0.0/8 as a host writes it.
pub fn address(n: u32) -> Vec<u8> {
    let [_, b, c, d] = n.to_be_bytes();
    format!("10.{b}.{c}.{d}:80").into_bytes()
}
