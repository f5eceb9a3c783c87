//! Exponentially smoothed level that resists outliers.

/// Smoothing factor per minute: the level follows a change mostly within an hour.
const PACE: f64 = 1.0 / 60.0;
/// Distance from the level, in deviations, beyond which a minute is clipped.
const CLIP: f64 = 2.0;
/// Minimum deviation.
const DEVIATION_MIN: f64 = 0.05;
/// Initial deviation.
const DEVIATION_FIRST: f64 = 0.3;

/// Smoothed level and the usual distance of minutes from it.
#[derive(Clone, Copy, Debug)]
pub struct Smooth {
    /// Smoothed level.
    pub level: f64,
    /// Usual distance of minutes from the level: about a standard deviation.
    pub deviation: f64,
    /// Number of minutes applied.
    pub heard: u32,
}

impl Smooth {
    /// State after one minute at `level`.
    pub fn new(level: f64) -> Self {
        Self { level, deviation: DEVIATION_FIRST, heard: 1 }
    }

    /// Applies the level of a minute.
    pub fn observe(&mut self, level: f64) {
        self.heard = self.heard.saturating_add(1);
        // The first minutes are averaged.
        let pace = PACE.max(1.0 / f64::from(self.heard));
        let (step, most) = (level - self.level, CLIP * self.deviation);
        self.level += pace * step.clamp(-most, most);
        // 1.2533 converts the mean absolute deviation into a standard deviation.
        let deviation = (1.2533 * step.abs()).min(CLIP * self.deviation);
        self.deviation += pace.min(PACE * 2.0) * (deviation - self.deviation);
        self.deviation = self.deviation.max(DEVIATION_MIN);
    }
}
