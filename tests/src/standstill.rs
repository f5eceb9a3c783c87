//! Whether the machine stood still while tests ran.
//!
//! A virtual machine may get no processor for seconds, or its clock may be set. What must be done in time is late then, by no
//! fault of what is tested. So a watch sleeps and looks at the clocks, and a failing test says what the watch saw while it
//! ran. Busy neighbours on the same processors do not show: the system wakes up whoever slept before them.

use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Between two looks at the clocks.
const LOOK: Duration = Duration::from_millis(20);
/// Less than this is none: tests bear it.
const LEAST: Duration = Duration::from_millis(500);
/// What a failing test's output begins with where the machine stood still: `tests/again.py` looks for it.
const MARK: &str = "--- while this ran, the machine ";

/// What was seen, and when.
static SEEN: Mutex<Vec<(Instant, String)>> = Mutex::new(Vec::new());

/// Begins to watch, once for the whole process.
pub fn watch() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| drop(thread::spawn(look_on)));
}

/// Says what was seen since `then`, if anything was.
pub fn say_what_was_seen(then: Instant) {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    for (_, what) in seen.iter().filter(|(at, _)| *at >= then) {
        eprintln!("{MARK}{what}");
    }
}

fn look_on() {
    loop {
        let (began, unix) = (Instant::now(), SystemTime::now());
        thread::sleep(LOOK);
        // A clock that was set back shows no time at all.
        let by_wall = unix.elapsed().unwrap_or_default();
        if let Some(what) = trouble(began.elapsed(), by_wall) {
            SEEN.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), what));
        }
    }
}

/// What is wrong if a short sleep took so long, by the clock that never steps and by the wall clock.
fn trouble(slept: Duration, by_wall: Duration) -> Option<String> {
    if slept >= LEAST {
        return Some(format!("stood still for {} ms", slept.as_millis()));
    }
    let off = slept.abs_diff(by_wall);
    (off >= LEAST).then(|| format!("had its clock set by {} ms", off.as_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sleeps_and_clocks_that_step_are_told_from_short_delays() {
        let ms = Duration::from_millis;
        assert_eq!(trouble(ms(21), ms(21)), None);
        assert_eq!(trouble(ms(499), ms(300)), None);
        assert_eq!(trouble(ms(500), ms(500)).as_deref(), Some("stood still for 500 ms"));
        assert_eq!(trouble(ms(20), ms(1_020)).as_deref(), Some("had its clock set by 1000 ms"));
        assert_eq!(trouble(ms(600), ms(0)).as_deref(), Some("stood still for 600 ms"));
    }
}
