//! A level that follows what it is told, and is not moved far by what is strange.

/// How fast it follows, per minute: mostly within an hour.
const PACE: f64 = 1.0 / 60.0;
/// How far one minute may be from the level, in deviations, to count in full.
const CLIP: f64 = 2.0;
/// What a deviation is at least.
const DEVIATION_MIN: f64 = 0.05;
/// What it is at first.
const DEVIATION_FIRST: f64 = 0.3;

/// A smoothed level, and how far minutes usually are from it.
#[derive(Clone, Copy, Debug)]
pub struct Smooth {
    /// The level.
    pub level: f64,
    /// How far minutes usually are from it: about a standard deviation.
    pub deviation: f64,
    /// How many it has heard.
    pub heard: u32,
}

impl Smooth {
    /// One that has heard this alone.
    pub fn new(level: f64) -> Self {
        Self { level, deviation: DEVIATION_FIRST, heard: 1 }
    }

    /// Follows.
    pub fn hear(&mut self, level: f64) {
        self.heard = self.heard.saturating_add(1);
        // The first ones are averaged.
        let pace = PACE.max(1.0 / f64::from(self.heard));
        let (step, most) = (level - self.level, CLIP * self.deviation);
        self.level += pace * step.clamp(-most, most);
        // The mean of absolute deviations, as a standard deviation.
        let deviation = (1.2533 * step.abs()).min(CLIP * self.deviation);
        self.deviation += pace.min(PACE * 2.0) * (deviation - self.deviation);
        self.deviation = self.deviation.max(DEVIATION_MIN);
    }
}
