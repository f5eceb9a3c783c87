//! What an edge needs of the program that it runs in: the process's table, what its workers tell each other, and a few
//! facts. Nothing here waits.

use alloc::string::String;
use alloc::vec::Vec;

use crate::limiter::TableIdentity;
use crate::response::Header;
use crate::table::Slots;
use weir_rules::RuleSet;
use weir_wire::time::Time;

/// What was heard of weir-sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Live POPs.
    pub pops: u32,
    /// Whether weir-sync only guesses how many there are.
    pub is_guess: bool,
    /// When.
    pub at: Time,
}

/// What workers tell each other of pushed rule sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RulesWord {
    /// The version of the document that is there; 0 is none.
    pub version: u64,
    /// The latest version that could not be used; 0 is none.
    pub refused: u64,
}

/// What the workers of one process share beside the slots. A process whose workers share nothing has one worker that is
/// all of them: what it writes, it reads back.
pub trait Shared {
    /// What the keys of this process are hashed with, made by its first worker.
    fn identity(&mut self) -> TableIdentity;

    /// What a worker has last heard of weir-sync.
    fn heard(&mut self) -> Option<Heard>;

    /// A worker has heard of weir-sync.
    fn set_heard(&mut self, heard: &Heard);

    /// Whether no worker has greeted for `interval_ns`, give or take a tick that is early; if so, this one does, and it
    /// is noted.
    fn is_my_turn_to_greet(&mut self, interval_ns: u64, now: Time) -> bool;

    /// Whether no worker fetches a rule set now; if so, this one may, and has `fetch_ns` for it.
    fn is_my_turn_to_fetch(&mut self, fetch_ns: u64, now: Time) -> bool;

    /// The fetch has ended: the next may begin at `at`.
    fn end_fetch(&mut self, at: Time);

    /// What is there of pushed rule sets.
    fn rules_word(&mut self) -> RulesWord;

    /// Tells it.
    fn set_rules_word(&mut self, word: RulesWord);

    /// The document that was pushed, if it is that of `version`.
    fn rules(&mut self, version: u64) -> Option<Vec<u8>>;

    /// Puts a document there for the other workers; whether they will find it.
    fn set_rules(&mut self, version: u64, document: &[u8]) -> bool;

    /// A worker begins; where the place for what workers leave has to be made, this is when.
    fn open_parted(&mut self) {}

    /// A worker ends: what is left becomes what `add` makes of what was, if that is anything.
    fn leave(&mut self, add: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>);

    /// Takes what workers that ended have left, if they have and no other worker takes it.
    fn take_parted(&mut self) -> Option<Vec<u8>>;
}

/// Whether a greeting is due at `now`, where the one before was at `before`. Ticks come a little early now and then, and
/// nobody should wait two intervals for that. A time that is ahead is none that this clock gave.
pub fn is_time_to_greet(before: Time, interval_ns: u64, now: Time) -> bool {
    before > now || now.nanos_since(before) >= interval_ns / 10 * 9
}

/// The program that an edge runs in.
pub trait Site: Slots + Shared {
    /// Makes the table, of `slots` slots, where there is none yet.
    fn open(&mut self, slots: u32);

    /// The proxy's own name, which is its POP's where the configuration has none.
    fn node(&mut self) -> Option<String> {
        None
    }

    /// A number that no other worker has: a random one.
    fn random(&mut self) -> u64;

    /// The wall clock, in nanoseconds since 1970; 0 where there is none.
    fn unix_ns(&mut self) -> u64;

    /// Whether calls to weir-sync can be made at all. Asked only where the configuration wants them.
    fn makes_calls(&mut self) -> bool {
        true
    }

    /// What these rules ask that the host cannot do, with its places.
    fn refusals(&self, _rules: &RuleSet) -> Vec<String> {
        Vec::new()
    }

    /// Headers in the form that the host takes them. They are made once for all clients that are told the same.
    fn pack(&self, headers: &[Header<'_>]) -> Vec<u8>;
}

/// How a host differs from others.
#[derive(Clone, Copy, Debug)]
pub struct HostRules {
    /// Whether calls may be made while the answer to a call is taken in.
    pub calls_from_answers: bool,
    /// Whether it answers gRPC clients in headers, so that they are told a message instead of a body.
    pub answers_grpc: bool,
    /// Whether other workers go on when one ends, and can report what that one has not.
    pub has_heirs: bool,
}

impl Default for HostRules {
    fn default() -> Self {
        Self { calls_from_answers: true, answers_grpc: true, has_heirs: true }
    }
}
