//! What an edge needs of the program it runs in: the process's table, what its workers tell each other, and a few
//! facts. Nothing here blocks.

use alloc::string::String;
use alloc::vec::Vec;

use crate::limiter::TableIdentity;
use crate::response::Header;
use crate::table::Slots;
use weir_rules::RuleSet;
use weir_wire::time::Time;

/// What a worker heard from weir-sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Live POPs.
    pub pops: u32,
    /// Whether weir-sync only guessed how many there are.
    pub is_guess: bool,
    /// When it was heard.
    pub at: Time,
}

/// What workers tell each other about pushed rule sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RulesWord {
    /// The version of the shared document; 0 if there is none.
    pub version: u64,
    /// The latest version that could not be used; 0 if there is none.
    pub refused: u64,
}

/// What the workers of one process share besides the slots. A worker that shares nothing with others still reads back
/// what it wrote.
pub trait Shared {
    /// What this process hashes its keys with; made by its first worker.
    fn identity(&mut self) -> TableIdentity;

    /// What any worker last heard from weir-sync.
    fn heard(&mut self) -> Option<Heard>;

    /// A worker has heard from weir-sync.
    fn set_heard(&mut self, heard: &Heard);

    /// Whether no worker has greeted for `interval_ns`, less a little for early ticks. If so, notes that this worker
    /// greets now.
    fn is_my_turn_to_greet(&mut self, interval_ns: u64, now: Time) -> bool;

    /// Whether no worker is fetching a rule set. If so, notes that this worker does, for at most `fetch_ns`.
    fn is_my_turn_to_fetch(&mut self, fetch_ns: u64, now: Time) -> bool;

    /// The fetch has ended: the next may begin at `at`.
    fn end_fetch(&mut self, at: Time);

    /// What workers last said about pushed rule sets.
    fn rules_word(&mut self) -> RulesWord;

    /// Says it.
    fn set_rules_word(&mut self, word: RulesWord);

    /// The shared document, if it is that of `version`.
    fn rules(&mut self, version: u64) -> Option<Vec<u8>>;

    /// Shares a document with the other workers. Returns whether they will find it.
    fn set_rules(&mut self, version: u64, document: &[u8]) -> bool;

    /// A worker begins. A host that must create the place for what workers leave does so now.
    fn open_parted(&mut self) {}

    /// A worker ends: `add` is given what was left so far, and replaces it if it returns anything.
    fn leave(&mut self, add: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>);

    /// Takes what ended workers have left, if there is anything and no other worker takes it.
    fn take_parted(&mut self) -> Option<Vec<u8>>;
}

/// Whether a greeting is due at `now`, if the last was at `before`. Ticks are sometimes a little early, so nine tenths
/// of the interval are enough. If `before` is in the future, another clock gave it, and the greeting is due.
pub fn is_time_to_greet(before: Time, interval_ns: u64, now: Time) -> bool {
    before > now || now.nanos_since(before) >= interval_ns / 10 * 9
}

/// The program that an edge runs in.
pub trait Site: Slots + Shared {
    /// Makes the table, of `slots` slots, if there is none yet.
    fn open(&mut self, slots: u32);

    /// The proxy's own name: the POP's name if the configuration gives none.
    fn node(&mut self) -> Option<String> {
        None
    }

    /// A random number, which no other worker has.
    fn random(&mut self) -> u64;

    /// The wall clock, in nanoseconds since 1970; 0 if there is none.
    fn unix_ns(&mut self) -> u64;

    /// Whether calls to weir-sync can be made at all. Asked only if the configuration wants them.
    fn makes_calls(&mut self) -> bool {
        true
    }

    /// What these rules ask for that the host cannot do, each with its place.
    fn refusals(&self, _rules: &RuleSet) -> Vec<String> {
        Vec::new()
    }

    /// Headers in the form that the host takes. They are made once for all clients that are told the same.
    fn pack(&self, headers: &[Header<'_>]) -> Vec<u8>;
}

/// How hosts differ.
#[derive(Clone, Copy, Debug)]
pub struct HostRules {
    /// Whether calls may be made from within the callback for an answer.
    pub calls_from_answers: bool,
    /// Whether it answers gRPC clients in headers: they get a message instead of a body.
    pub answers_grpc: bool,
    /// Whether other workers live on when one ends, and can report what it did not.
    pub has_heirs: bool,
}

impl Default for HostRules {
    fn default() -> Self {
        Self { calls_from_answers: true, answers_grpc: true, has_heirs: true }
    }
}
