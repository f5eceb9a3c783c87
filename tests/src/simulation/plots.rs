//! The plots of docs/plots: the main scenarios, compared with other ways to limit.

use weir_protocol::time::SECOND_NS;

use super::models;
use super::more_scenarios as more;
use super::plot::{Chart, Line, per_second};
use super::scenario::{self, Plan, Size};
use super::traffic;
use super::world;

/// A plot.
#[derive(Clone, Copy, Debug)]
pub struct Plot {
    /// The file's name, without its extension.
    pub file: &'static str,
    title: &'static str,
    plan: fn() -> Plan,
    /// Seconds that are drawn.
    seconds: u64,
    /// The highest rate that is drawn, per second.
    top: f64,
    shaded: Option<(f64, f64, &'static str)>,
    /// True if region 0 is cut off while `shaded` lasts.
    cut: bool,
}

const SIZE: Size = Size { pops: 20, regions: 5 };
const SEED: u64 = 1;

const NONE: Plot = Plot {
    file: "",
    title: "",
    plan: || Plan::of(SIZE, 1, traffic::silence()),
    seconds: 30,
    top: 600.0,
    shaded: None,
    cut: false,
};

/// All plots.
pub const PLOTS: &[Plot] = &[
    Plot {
        file: "contended",
        title: "One client asks for 5x its quota (100/s, burst 100), evenly over 20 POPs",
        plan: || Plan::of(SIZE, 30, traffic::even(500.0, SIZE.pops)),
        ..NONE
    },
    Plot {
        file: "cold-burst",
        title: "A burst of 100 at each of 20 POPs at once, then 3x: the debt is paid, then the rate holds",
        plan: || more::cold_burst(SIZE),
        seconds: 60,
        ..NONE
    },
    Plot {
        file: "hopping",
        title: "A client at 3x that moves to another of 20 POPs every 0.3 s",
        plan: || Plan::of(SIZE, 30, traffic::hopping(300.0, SIZE.pops, 3 * SECOND_NS / 10)),
        ..NONE
    },
    Plot {
        file: "jumping",
        title: "Demand jumps from 1x to 50x and back every 3 s, over 20 POPs",
        plan: || Plan::of(SIZE, 30, traffic::jumping(100.0, 5_000.0, 3 * SECOND_NS, SIZE.pops)),
        top: 1_500.0,
        ..NONE
    },
    Plot {
        file: "cut-off",
        title: "5x over 20 POPs in 5 regions; one region does not reach the store for 60 s",
        plan: || more::region_cut_off(SIZE),
        seconds: 120,
        shaded: Some((20.0, 80.0, "one region cut off")),
        cut: true,
        ..NONE
    },
    Plot {
        file: "attacker",
        title: "Bursts of 100 at each of 20 POPs, a rest until all is forgotten, and the same again",
        plan: || more::attacker(SIZE),
        seconds: 95,
        top: 2_100.0,
        ..NONE
    },
];

impl Plot {
    /// The plot as an SVG document. Fails if a rule cannot be read.
    pub fn svg(&self) -> Result<String, String> {
        let end_ns = self.seconds * SECOND_NS;
        let plan = (self.plan)();
        let setup = plan.setup.clone();
        let arrivals = models::arrivals((self.plan)().traffic, &mut world::traffic_rng(SEED), end_ns);
        let run = scenario::run(Plan { seconds: self.seconds, ..plan })?;
        let account = run.reference.account(0, 0);
        let (quota, rate) = (account.quota, account.rate());
        let mut last = 0;
        let weir = run.reference.samples().iter().map(|sample| {
            let admitted = sample.tally.admitted - last;
            last = sample.tally.admitted;
            admitted
        });
        let weir: Vec<_> = weir.collect();
        let round_trip_ns = 2 * (setup.near.delay_ns + setup.far.delay_ns);
        let cut_ns = self.shaded.filter(|_| self.cut).map(|(from, to, _)| (ns(from), ns(to)));
        let is_cut = |arrival: &traffic::Arrival| {
            cut_ns
                .is_some_and(|(from, to)| arrival.pop.is_multiple_of(setup.regions) && (from..to).contains(&arrival.at))
        };
        let line = |name, class, counts: &[u64]| Line { name, class, points: per_second(counts) };
        let lines = vec![
            line("offered", "offered", &models::offered(&arrivals, end_ns)),
            line("plain local limits", "local", &models::plain_local(&arrivals, quota, setup.pops, end_ns)),
            line(
                "a central limiter",
                "central",
                &models::central(&arrivals, quota, round_trip_ns, SECOND_NS / 2, is_cut, end_ns),
            ),
            line("Weir", "weir", &weir),
        ];
        let Plot { title, top, shaded, .. } = *self;
        Ok(Chart { title: title.into(), rate, top, shaded, lines }.svg())
    }
}

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
