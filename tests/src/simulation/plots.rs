//! The plots of docs/plots: the main scenarios, compared with plain local limits and with a central limiter.

use std::fmt::Write as _;

use fastrand::Rng;
use weir_protocol::quota::Quota;
use weir_protocol::time::SECOND_NS;

use super::account::Meter;
use super::reference::SAMPLE_NS;
use super::scenario::{self, Plan, Size};
use super::traffic::{self, Arrival, Traffic};
use super::{fault_rows as more, world};

#[derive(Clone, Copy, Debug)]
pub struct Plot {
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
        let arrivals = arrivals((self.plan)().traffic, &mut world::traffic_rng(SEED), end_ns);
        let run = scenario::run(Plan { seconds: self.seconds, ..plan })?;
        let account = run.reference.account(0, 0);
        let (quota, rate) = (account.quota, account.rate());
        let mut last = 0;
        let weir = run.reference.samples.iter().map(|sample| {
            let admitted = sample.tally.admitted - last;
            last = sample.tally.admitted;
            admitted
        });
        let weir: Vec<_> = weir.collect();
        let round_trip_ns = 2 * (setup.near.delay_ns + setup.far.delay_ns);
        let cut_ns = self.shaded.filter(|_| self.cut).map(|(from, to, _)| (ns(from), ns(to)));
        let is_cut = |arrival: &Arrival| {
            cut_ns
                .is_some_and(|(from, to)| arrival.pop.is_multiple_of(setup.regions) && (from..to).contains(&arrival.at))
        };
        let line = |name, class, counts: &[u64]| Line { name, class, points: per_second(counts) };
        let lines = vec![
            line("offered", "offered", &offered(&arrivals, end_ns)),
            line("plain local limits", "local", &plain_local(&arrivals, quota, setup.pops, end_ns)),
            line(
                "a central limiter",
                "central",
                &central(&arrivals, quota, round_trip_ns, SECOND_NS / 2, is_cut, end_ns),
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

/// Requests per sample.
pub type Curve = Vec<u64>;

pub fn arrivals(mut traffic: Traffic, rng: &mut Rng, end_ns: u64) -> Vec<Arrival> {
    std::iter::from_fn(|| traffic(rng)).take_while(|arrival| arrival.at < end_ns).collect()
}

fn curve(times: impl Iterator<Item = u64>, end_ns: u64) -> Curve {
    let sample = |ns: u64| usize::try_from(ns / SAMPLE_NS).expect("some minutes");
    let mut counts = vec![0; sample(end_ns)];
    for at in times {
        if let Some(count) = counts.get_mut(sample(at)) {
            *count += 1;
        }
    }
    counts
}

pub fn offered(arrivals: &[Arrival], end_ns: u64) -> Curve {
    curve(arrivals.iter().map(|arrival| arrival.at), end_ns)
}

/// Admissions if every POP has a bucket of the whole quota, and POPs do not talk to each other.
pub fn plain_local(arrivals: &[Arrival], quota: Quota, pops: usize, end_ns: u64) -> Curve {
    let mut buckets = vec![Meter::default(); pops];
    let admitted = arrivals.iter().filter(|arrival| buckets[arrival.pop].take_if_there(quota, 1, arrival.at));
    curve(admitted.map(|arrival| arrival.at), end_ns)
}

/// Admissions if every request waits for an answer from one bucket, `round_trip_ns` away. If `is_cut` holds, no answer
/// comes, and the request is let through `timeout_ns` later (the default of Envoy's global rate limit).
pub fn central(
    arrivals: &[Arrival],
    quota: Quota,
    round_trip_ns: u64,
    timeout_ns: u64,
    is_cut: impl Fn(&Arrival) -> bool,
    end_ns: u64,
) -> Curve {
    let mut bucket = Meter::default();
    let decided = arrivals.iter().filter_map(|arrival| {
        if is_cut(arrival) {
            return Some(arrival.at + timeout_ns);
        }
        bucket.take_if_there(quota, 1, arrival.at + round_trip_ns / 2).then_some(arrival.at + round_trip_ns)
    });
    curve(decided, end_ns)
}

#[derive(Clone, Debug)]
pub struct Line {
    pub name: &'static str,
    pub class: &'static str,
    /// Requests per second, one each tenth of a second.
    pub points: Vec<f64>,
}

#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    /// The rate of the rule, per second: a dashed line.
    pub rate: f64,
    /// The highest rate that is drawn; peaks above are cut off, and named in the legend.
    pub top: f64,
    /// A span that is shaded, in seconds, and what it is.
    pub shaded: Option<(f64, f64, &'static str)>,
    /// The curves, the one to look at last.
    pub lines: Vec<Line>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 22.0;
const ABOVE: f64 = 62.0;
const BELOW: f64 = 34.0;
const SAMPLES_PER_SECOND: f64 = 10.0;
/// Points of a curve, at most.
const POINTS_MAX: usize = 350;
/// Lines of the grid, at most.
const STEPS_MAX: f64 = 8.0;

const STYLE: &str = "text{font:12px sans-serif;fill:#57606a}.title{font-weight:bold;font-size:13px}.key{font-size:11px}\
.grid{stroke:#8c959f;stroke-opacity:.3}.shade{fill:#8c959f;fill-opacity:.18}\
path{fill:none;stroke-width:1.4;stroke-linejoin:round}.rate{stroke:#57606a;stroke-dasharray:5 4}\
.offered{stroke:#8c959f;stroke-dasharray:1 2}.local{stroke:#bc4c00}.central{stroke:#0969da}\
.weir{stroke:#1a7f37;stroke-width:2.2}\
@media(prefers-color-scheme:dark){text{fill:#9ba4ae}.rate{stroke:#9ba4ae}.local{stroke:#f0883e}\
.central{stroke:#58a6ff}.weir{stroke:#3fb950}}";

impl Chart {
    pub fn svg(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" role=\"img\">"
        );
        let _ = writeln!(out, "<title>{}</title><style>{STYLE}</style>", self.title);
        let _ = writeln!(out, r#"<text class="title" x="{LEFT}" y="18">{}</text>"#, self.title);
        self.shade(&mut out);
        self.grid(&mut out);
        self.legend(&mut out);
        let rate = self.y(self.rate);
        let _ = writeln!(out, r#"<path class="rate" d="M{LEFT} {rate:.1}H{:.1}"/>"#, WIDTH - RIGHT);
        for line in &self.lines {
            let _ = writeln!(out, r#"<path class="{}" d="{}"/>"#, line.class, self.path(&line.points));
        }
        out + "</svg>\n"
    }

    fn seconds(&self) -> f64 {
        let samples = self.lines.iter().map(|line| line.points.len()).max().unwrap_or(1);
        samples as f64 / SAMPLES_PER_SECOND
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + seconds / self.seconds() * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, rate: f64) -> f64 {
        HEIGHT - BELOW - rate.min(self.top) / self.top * (HEIGHT - ABOVE - BELOW)
    }

    fn path(&self, points: &[f64]) -> String {
        let mut path = String::new();
        let every = points.len().div_ceil(POINTS_MAX).max(1);
        let mut drawn = None;
        for (i, group) in (1u32..).zip(points.chunks(every)) {
            let samples = u32::try_from(every).expect("a few");
            let x = self.x(f64::from(i * samples) / SAMPLES_PER_SECOND).round();
            // The highest of a group, so that no peak goes missing.
            let y = format!("{:.0}", self.y(group.iter().copied().fold(0.0, f64::max)));
            let _ = match &drawn {
                None => write!(path, "M{x} {y}"),
                Some(last) if *last == y => write!(path, "H{x}"),
                Some(_) => write!(path, "L{x} {y}"),
            };
            drawn = Some(y);
        }
        path
    }

    fn shade(&self, out: &mut String) {
        let Some((from, to, what)) = self.shaded else { return };
        let (x, width, height) = (self.x(from), self.x(to) - self.x(from), HEIGHT - ABOVE - BELOW);
        let _ = writeln!(
            out,
            "<rect class=\"shade\" x=\"{x:.1}\" y=\"{ABOVE}\" width=\"{width:.1}\" height=\"{height}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{what}</text>",
            x + 5.0,
            ABOVE + 14.0
        );
    }

    fn grid(&self, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BELOW);
        for rate in steps(self.top) {
            let y = self.y(rate);
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{rate}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        for second in steps(self.seconds()) {
            let x = self.x(second);
            let _ =
                writeln!(out, r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{second} s</text>"#, bottom + 16.0);
        }
    }

    fn legend(&self, out: &mut String) {
        let mut x = LEFT;
        for line in self.lines.iter().rev() {
            let peak = line.points.iter().copied().fold(0.0, f64::max);
            let mut name = line.name.to_owned();
            if peak > self.top {
                let _ = write!(name, " (peak {peak:.0}/s)");
            }
            let _ = writeln!(
                out,
                r#"<path class="{}" d="M{x:.0} 38h22"/><text class="key" x="{:.0}" y="42">{name}</text>"#,
                line.class,
                x + 26.0
            );
            let width = name.len() as f64 * 5.6;
            x += 26.0 + width + 12.0;
        }
    }
}

/// Round values from zero to `top`.
fn steps(top: f64) -> impl Iterator<Item = f64> {
    let rough = top / STEPS_MAX;
    let ten = 10.0_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * ten).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(top);
    (0u32..).map(move |n| f64::from(n) * step).take_while(move |value| *value <= top)
}

/// Requests per second over the last second, from counts per tenth of a second.
pub fn per_second(counts: &[u64]) -> Vec<f64> {
    const WINDOW: usize = 10;
    let sums = (0..counts.len()).map(|i| {
        let window = &counts[(i + 1).saturating_sub(WINDOW)..=i];
        window.iter().sum::<u64>() as f64
    });
    sums.collect()
}
