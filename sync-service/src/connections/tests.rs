//! A connection that has given up its place.

use std::future::pending;

use super::*;

/// Far above what anything takes here.
const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_request_that_arrives_just_when_its_place_is_taken_is_answered() {
    let place = Arc::new(Seat::new(&Arc::default(), &Gauge::default()));
    let is_answered = AtomicBool::new(false);
    let connection = async {
        let _busy = Busy::new(&place);
        sleep(5 * LAST_WORDS).await;
        is_answered.store(true, Ordering::Relaxed);
        Ok(())
    };
    timeout(LONG, last_words(LAST_WORDS, connection, &place)).await.unwrap();
    assert!(is_answered.load(Ordering::Relaxed));
}

#[tokio::test]
async fn one_that_waits_for_a_request_is_closed_soon() {
    let place = Arc::new(Seat::new(&Arc::default(), &Gauge::default()));
    drop(Busy::new(&place));
    timeout(LONG, last_words(LAST_WORDS, pending(), &place)).await.expect("it keeps its place");
}

#[tokio::test]
async fn an_answer_under_way_has_a_moment_to_go_out() {
    let place = Arc::new(Seat::new(&Arc::default(), &Gauge::default()));
    let is_sent = AtomicBool::new(false);
    let connection = async {
        sleep(Duration::from_millis(2)).await;
        is_sent.store(true, Ordering::Relaxed);
        Ok(())
    };
    last_words(LAST_WORDS, connection, &place).await;
    assert!(is_sent.load(Ordering::Relaxed));
}
