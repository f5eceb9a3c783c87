//! The cases: what stands in front of a listener's upstream, and which clients come under which rules.

use std::fmt;

use crate::bench::filters::{self, Filters, Quota, SERVICE};

/// Rotating callers.
pub const ROTATING: u32 = 100_000;
/// So many callers that each is offered less than its quota, and so few that each comes twice in a visit, as one
/// does that asks ten times a second: what is kept of it for half a second is of use.
pub const MANY: u32 = 200;

/// Filters in a chain: what one of them adds is an eighth of what all do, and so is the noise.
pub const CHAIN: u32 = 8;

/// The filter in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// No filter: what everything is compared with.
    Nothing,
    /// No filter again: by how much it differs from the first is noise.
    NothingAgain,
    /// The proxy-wasm SDK's contexts, doing nothing.
    Empty,
    /// Envoy's `local_ratelimit`, a bucket per address.
    Native,
    /// Weir's wasm module.
    Wasm,
    /// Weir as a dynamic module.
    Module,
    /// Envoy's `ratelimit`: every request asks a service, and that asks Redis.
    Central,
}

/// The clients, and the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Under {
    /// One rule of 20 a second per address, with bursts of 100; and too many addresses to reach it.
    Many,
    /// The same from [`ROTATING`] addresses.
    Rotating,
    /// One address, and a quota that it never reaches.
    One,
    /// A flood from one address, whose bucket is empty.
    Limited,
    /// As `Many`, with two rules per address and two per API key.
    Four,
    /// As `Many`, [`CHAIN`] times: filters in a row, each with a table and rules of its own.
    Chain,
    /// As `One`, with two workers.
    Two,
}

/// One listener of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    /// The filter in front.
    pub by: By,
    /// The clients, and the rules.
    pub under: Under,
}

use By::{Central, Empty, Module, Native, Nothing, NothingAgain, Wasm};
use Under::{Chain, Four, Limited, Many, One, Rotating, Two};

/// The listener without a filter.
pub const BASE: Case = Case::new(Nothing, Many);
/// The same with two workers.
pub const BASE_OF_TWO: Case = Case::new(Nothing, Two);
/// Cases that the main ratios need, with one worker.
const MAIN: [Case; 14] = [
    BASE,
    Case::new(NothingAgain, Many),
    Case::new(Empty, Many),
    Case::new(Native, Many),
    Case::new(Native, Rotating),
    Case::new(Native, Limited),
    Case::new(Wasm, Many),
    Case::new(Wasm, Limited),
    Case::new(Module, Many),
    Case::new(Module, Rotating),
    Case::new(Module, Limited),
    Case::new(Module, Four),
    Case::new(Module, One),
    Case::new(Central, Many),
];
/// Further cases of the page.
const FURTHER: [Case; 5] = [
    Case::new(Native, Chain),
    Case::new(Wasm, Chain),
    Case::new(Module, Chain),
    Case::new(Wasm, One),
    Case::new(Wasm, Four),
];
/// In the proxy with two workers.
const OF_TWO: [Case; 3] = [BASE_OF_TWO, Case::new(Wasm, Two), Case::new(Module, Two)];

impl Case {
    /// A case.
    pub const fn new(by: By, under: Under) -> Self {
        Self { by, under }
    }

    /// Those in the proxy with one worker: the main ones, or all.
    pub fn of_one_worker(all: bool) -> Vec<Self> {
        MAIN.into_iter().chain(FURTHER.into_iter().filter(|_| all)).collect()
    }

    /// Those in the proxy with two.
    pub fn of_two_workers() -> Vec<Self> {
        OF_TWO.to_vec()
    }

    /// The case that its CPU time is compared with.
    #[must_use]
    pub fn base(self) -> Self {
        if self.has_two_workers() { BASE_OF_TWO } else { BASE }
    }

    /// True if its proxy has two workers.
    pub fn has_two_workers(self) -> bool {
        self.under == Two
    }

    /// The status of every answer.
    pub fn status(self) -> u16 {
        if self.under == Limited { 429 } else { 200 }
    }

    /// From how many addresses requests come.
    pub fn callers(self) -> u32 {
        match self.under {
            Many | Four | Chain => MANY,
            Rotating => ROTATING,
            One | Limited | Two => 1,
        }
    }

    /// Places of one case's words alone: the name of its VM, its table, its POP and its rules.
    fn word(self) -> String {
        format!("{:?}-{:?}", self.by, self.under).to_lowercase()
    }

    fn quota(self) -> Quota {
        match self.under {
            Limited => filters::ONE_A_DAY,
            One | Two => filters::PLENTY,
            Many | Rotating | Four | Chain => filters::SHIPPED,
        }
    }

    fn weir(self, word: &str) -> serde_json::Value {
        let quota = self.quota();
        match self.under {
            Four => filters::in_a_fleet(word, filters::four_rules(word, quota)),
            Many | Rotating | One | Limited | Chain | Two => filters::in_a_fleet(word, filters::one_rule(word, quota)),
        }
    }

    /// The filter in front.
    pub fn filters(self) -> Filters {
        match self.under {
            Chain => Filters::in_turn((0..CHAIN).map(|place| self.filter(&format!("{}-{place}", self.word())))),
            _ => self.filter(&self.word()),
        }
    }

    fn filter(self, word: &str) -> Filters {
        match self.by {
            Nothing | NothingAgain => Filters::default(),
            Empty => filters::empty(),
            Native => filters::native(self.quota()),
            Wasm => filters::weir(word, &self.weir(word)),
            Module => filters::module(word, &self.weir(word)),
            Central => filters::central(SERVICE),
        }
    }
}

/// Its name on the page.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.by {
            Nothing => "no filter",
            NothingAgain => "no filter, again",
            Empty => "empty wasm filter",
            Native => "local_ratelimit",
            Wasm => "Weir, wasm",
            Module => "Weir, native module",
            Central => "central service on Redis",
        })?;
        f.write_str(match self.under {
            Many => "",
            Rotating => ", 100,000 addresses",
            One => ", one address",
            Limited => ", limited",
            Four => ", four rules of two keys",
            Chain => ", eight in a chain",
            Two => ", one address, two workers",
        })
    }
}
