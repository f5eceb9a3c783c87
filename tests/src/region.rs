//! Regions: in each a weir-sync, and an Envoy that reports to it under the region's name.

use serde_json::Value;

use crate::envoy::{Envoy, Setup};
use crate::operator::Operator;
use crate::wait::until;
use crate::weir_sync::WeirSync;

/// A region's parts. The Envoy ends first.
pub struct Region {
    /// Its Envoy.
    pub edge: Envoy,
    /// Its weir-sync.
    pub weir_sync: WeirSync,
    name: String,
}

impl Region {
    /// Starts it over `store`, with an Envoy of `setup`, and these arguments of weir-sync.
    pub async fn start(name: &str, store: &str, setup: Setup, arguments: &[&str]) -> Self {
        let weir_sync = WeirSync::start_with(name, store, arguments).await;
        let edge = Envoy::start(setup.pop(name, &weir_sync)).await;
        Self { edge, weir_sync, name: name.into() }
    }

    /// Starts several in turn.
    pub async fn start_all(names: &[&str], store: &str, setup: &Setup, arguments: &[&str]) -> Vec<Self> {
        let mut regions = vec![];
        for name in names {
            regions.push(Self::start(name, store, setup.clone(), arguments).await);
        }
        regions
    }

    /// An operator at its weir-sync.
    pub fn operator(&self) -> Operator {
        Operator::of(&self.weir_sync)
    }
}

/// Puts `document` at the first of these regions, and waits until all run it. The version that it is.
pub async fn put(regions: &[Region], document: &Value) -> u64 {
    let [first, ..] = regions else { panic!("there is no region") };
    let version = first.operator().put_good(document).await;
    run(regions, version).await;
    version
}

/// Waits until every region's weir-sync lists this version for the POPs of all regions.
pub async fn run(regions: &[Region], version: u64) {
    let expected = (version, regions.iter().map(|region| (region.name.clone(), version)).collect::<Vec<_>>());
    for region in regions {
        let mut operator = region.operator();
        until("every POP to run the version", async || (operator.fleet().await == expected).then_some(())).await;
    }
}
