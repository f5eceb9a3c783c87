//! Curves of requests per second against time, as SVG. The same curves give the same bytes.

use std::fmt::Write as _;

/// A curve.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its text in the legend.
    pub name: &'static str,
    /// One of the classes in [`STYLE`].
    pub class: &'static str,
    /// Requests per second, one each tenth of a second.
    pub points: Vec<f64>,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Its points.
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
    /// The chart as an SVG document.
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
