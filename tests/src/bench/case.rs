//! The cases: what stands in front of a listener's upstream, and which clients come.

use crate::bench::filters::{self, Filter, SERVICE};

/// Rotating callers.
pub const ROTATING: u32 = 100_000;

/// One listener of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    /// No filter: what everything is compared with.
    Nothing,
    /// The proxy-wasm SDK's contexts, doing nothing.
    Empty,
    /// Envoy's `local_ratelimit`, a bucket per address: every request goes through.
    Native,
    /// The same with an empty bucket, and a flood from its address.
    NativeLimited,
    /// The first again, from many addresses in turn.
    NativeRotating,
    /// Weir, one rule per address: every request goes through.
    Weir,
    /// The same with an empty bucket, and a flood from its address.
    WeirLimited,
    /// One rule again, from many addresses in turn.
    WeirRotating,
    /// The same in a fleet.
    WeirFleet,
    /// Four rules: two per address, two per API key.
    WeirFour,
    /// One rule, and every answer carries the quota's headers.
    WeirHeaders,
    /// Weir as a dynamic module, one rule per address: every request goes through.
    Module,
    /// The same with an empty bucket, and a flood from its address.
    ModuleLimited,
    /// One rule again, from many addresses in turn.
    ModuleRotating,
    /// The same in a fleet.
    ModuleFleet,
    /// Four rules.
    ModuleFour,
    /// One rule, and every answer carries the quota's headers.
    ModuleHeaders,
    /// Envoy's `ratelimit`: every request asks a service, and that asks Redis.
    Central,
    /// No filter, two workers.
    NothingTwo,
    /// Weir's one rule, two workers, one address.
    WeirTwo,
    /// The module's.
    ModuleTwo,
}

impl Case {
    /// Those in the proxy with one worker.
    pub const ONE_WORKER: [Self; 18] = [
        Self::Nothing,
        Self::Empty,
        Self::Native,
        Self::NativeLimited,
        Self::NativeRotating,
        Self::Weir,
        Self::WeirLimited,
        Self::WeirRotating,
        Self::WeirFleet,
        Self::WeirFour,
        Self::WeirHeaders,
        Self::Module,
        Self::ModuleLimited,
        Self::ModuleRotating,
        Self::ModuleFleet,
        Self::ModuleFour,
        Self::ModuleHeaders,
        Self::Central,
    ];
    /// Those in the proxy with two.
    pub const TWO_WORKERS: [Self; 3] = [Self::NothingTwo, Self::WeirTwo, Self::ModuleTwo];

    /// What the page calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no filter",
            Self::Empty => "empty wasm filter",
            Self::Native => "native local_ratelimit, allowed",
            Self::NativeLimited => "native local_ratelimit, limited",
            Self::NativeRotating => "native local_ratelimit, 100,000 addresses",
            Self::Weir => "Weir, one rule, allowed",
            Self::WeirLimited => "Weir, one rule, limited",
            Self::WeirRotating => "Weir, one rule, 100,000 addresses",
            Self::WeirFleet => "Weir, one rule, in a fleet",
            Self::WeirFour => "Weir, four rules of two keys",
            Self::WeirHeaders => "Weir, one rule, quota headers",
            Self::Central => "central service on Redis",
            Self::NothingTwo => "no filter, two workers",
            Self::WeirTwo => "Weir, one rule, two workers",
            Self::Module => "Weir as a module, one rule, allowed",
            Self::ModuleLimited => "Weir as a module, one rule, limited",
            Self::ModuleRotating => "Weir as a module, one rule, 100,000 addresses",
            Self::ModuleFleet => "Weir as a module, one rule, in a fleet",
            Self::ModuleFour => "Weir as a module, four rules of two keys",
            Self::ModuleHeaders => "Weir as a module, one rule, quota headers",
            Self::ModuleTwo => "Weir as a module, one rule, two workers",
        }
    }

    /// What its CPU time is compared with.
    #[must_use]
    pub fn base(self) -> Self {
        match self {
            Self::NothingTwo | Self::WeirTwo | Self::ModuleTwo => Self::NothingTwo,
            _ => Self::Nothing,
        }
    }

    /// The status of every answer.
    pub fn status(self) -> u16 {
        match self {
            Self::NativeLimited | Self::WeirLimited | Self::ModuleLimited => 429,
            _ => 200,
        }
    }

    /// From how many addresses requests come.
    pub fn callers(self) -> u32 {
        match self {
            Self::NativeRotating | Self::WeirRotating | Self::ModuleRotating => ROTATING,
            _ => 1,
        }
    }

    /// What stands in front.
    pub fn filter(self) -> Filter {
        match self {
            Self::Nothing | Self::NothingTwo => Filter::default(),
            Self::Empty => filters::empty(),
            Self::Native | Self::NativeRotating => filters::native(filters::PLENTY),
            Self::NativeLimited => filters::native(filters::ONE_A_DAY),
            Self::Weir => filters::weir("weir", &filters::one_rule(filters::PLENTY)),
            Self::WeirRotating => filters::weir("weir-rotating", &filters::one_rule(filters::PLENTY)),
            Self::WeirTwo => filters::weir("weir-two", &filters::one_rule(filters::PLENTY)),
            Self::WeirLimited => filters::weir("weir-limited", &filters::one_rule(filters::ONE_A_DAY)),
            Self::WeirFleet => filters::weir("weir-fleet", &filters::in_a_fleet()),
            Self::WeirFour => filters::weir("weir-four", &filters::four_rules()),
            Self::WeirHeaders => filters::weir("weir-headers", &filters::quota_headers()),
            Self::Module => filters::module("weir", &filters::one_rule(filters::PLENTY)),
            Self::ModuleRotating => filters::module("rotating", &filters::one_rule(filters::PLENTY)),
            Self::ModuleTwo => filters::module("two", &filters::one_rule(filters::PLENTY)),
            Self::ModuleLimited => filters::module("limited", &filters::one_rule(filters::ONE_A_DAY)),
            Self::ModuleFleet => filters::module("fleet", &filters::in_a_fleet()),
            Self::ModuleFour => filters::module("four", &filters::four_rules()),
            Self::ModuleHeaders => filters::module("headers", &filters::quota_headers()),
            Self::Central => filters::central(SERVICE),
        }
    }
}
