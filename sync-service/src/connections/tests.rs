//! A connection that has given up its seat.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Far above what anything takes here.
const LONG: Duration = Duration::from_secs(10);

fn one_seat() -> Seat {
    Seat::new(&Arc::new(Seats::new(1)), [192, 0, 2, 1].into(), &Gauge::default())
}

#[tokio::test]
async fn a_request_at_the_moment_its_seat_is_taken_is_answered() {
    let seat = one_seat();
    let is_answered = AtomicBool::new(false);
    let connection = async {
        seat.begin();
        sleep(5 * LAST_WORDS).await;
        is_answered.store(true, Ordering::Relaxed);
        Ok(())
    };
    timeout(LONG, last_words(LAST_WORDS, connection, &seat)).await.unwrap();
    assert!(is_answered.load(Ordering::Relaxed));
}
