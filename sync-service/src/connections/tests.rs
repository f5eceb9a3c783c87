//! A connection that has given up its seat, and one whose reader is slow.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use super::*;

/// Far above what anything takes here.
const LONG: Duration = Duration::from_secs(10);

fn one_seat() -> Seat {
    Seat::new(&Arc::new(Seats::new(1)), [192, 0, 2, 1].into(), &Gauge::default())
}

#[tokio::test]
async fn a_request_that_arrives_just_when_its_seat_is_taken_is_answered() {
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

#[tokio::test]
async fn one_that_waits_for_a_request_is_closed_soon() {
    let seat = one_seat();
    seat.begin();
    seat.end();
    timeout(LONG, last_words(LAST_WORDS, pending(), &seat)).await.expect("it keeps its seat");
}

#[tokio::test]
async fn an_answer_under_way_has_a_moment_to_go_out() {
    let seat = one_seat();
    let is_sent = AtomicBool::new(false);
    let connection = async {
        sleep(Duration::from_millis(2)).await;
        is_sent.store(true, Ordering::Relaxed);
        Ok(())
    };
    last_words(LAST_WORDS, connection, &seat).await;
    assert!(is_sent.load(Ordering::Relaxed));
}

/// The time of an answer in the tests of a slow reader.
const TIME: Duration = Duration::from_secs(1);
/// How much the reader takes at a time, and how often.
const DROP: usize = 100;
const DRIP: Duration = Duration::from_millis(10);

/// Writes answers of so many bytes to a reader that takes them drop by drop.
async fn drips(answers: &[usize]) -> std::io::Result<()> {
    let (ours, mut theirs) = duplex(DROP);
    let mut ours = Timely::new(ours, TIME, Arc::default());
    let reading = async {
        while theirs.read_exact(&mut [0; DROP]).await.is_ok() {
            sleep(DRIP).await;
        }
    };
    let writing = async {
        for bytes in answers {
            ours.write_all(&vec![0; *bytes]).await?;
            ours.flush().await?;
        }
        Ok(())
    };
    tokio::select! {
        result = writing => result,
        () = reading => panic!("it reads for as long as something comes"),
    }
}

#[tokio::test]
async fn each_answer_has_a_time_of_its_own() {
    let began = Instant::now();
    // A fifth of the time each.
    timeout(LONG, drips(&[20 * DROP; 6])).await.unwrap().unwrap();
    assert!(began.elapsed() > TIME, "all of them together take longer");
}

#[tokio::test]
async fn an_answer_that_drips_for_longer_breaks_off() {
    let error = timeout(LONG, drips(&[10_000 * DROP])).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}
