//! Between a signal and the end, callers are sent elsewhere, and are answered until they have gone.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::running::{DEADLINE, Running, until, weir_sync};

/// Time for which the weir-syncs of these tests go on answering.
const DELAY: Duration = Duration::from_secs(4);

/// A weir-sync that goes on answering for `delay`.
fn start(delay: Duration) -> Running {
    let delay = delay.as_millis().to_string();
    Running::started(&mut weir_sync(&["--listen", "127.0.0.1:0", "--drain-delay-ms", &delay]))
}

/// A connection on which something was answered, and stays open.
fn kept_alive(running: &Running) -> TcpStream {
    let mut stream = TcpStream::connect(&running.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: weir\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"ok\n") {
        let mut bytes = [0; 256];
        let read = stream.read(&mut bytes).unwrap();
        assert_ne!(read, 0, "it was closed");
        answer.extend_from_slice(&bytes[..read]);
    }
    let answer = String::from_utf8(answer).unwrap().to_lowercase();
    assert!(!answer.contains("connection: close") && !answer.contains("x-envoy"), "{answer}");
    stream
}

/// Its answer to a request on `stream`, which it closes.
fn last_answer(mut stream: &TcpStream) -> String {
    stream.write_all(b"GET /v1/rules HTTP/1.1\r\nhost: weir\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.to_lowercase()
}

#[test]
fn draining_callers_are_answered_until_they_have_moved() {
    for signal in ["TERM", "INT"] {
        let running = start(DELAY);
        let kept = kept_alive(&running);
        assert_eq!(running.status("GET /readyz", ""), 200);
        let signalled_at = Instant::now();
        running.send(signal);
        until("it drains", || running.status("GET /readyz", "") == 503);
        assert!(signalled_at.elapsed() < DELAY / 2, "at once");
        assert_eq!(running.status("GET /healthz", ""), 503);
        // A connection that is kept, and new ones until half of the time is over.
        for answer in [last_answer(&kept), last_answer(&TcpStream::connect(&running.address).unwrap())] {
            assert!(answer.starts_with("http/1.1 404 "), "no rules were put: {answer}");
            for header in ["connection: close", "x-envoy-immediate-health-check-fail: true"] {
                assert!(answer.contains(header), "{answer}");
            }
        }
        while signalled_at.elapsed() < DELAY / 2 {
            assert_eq!(running.report("fra1", "").0, 200);
        }
        let (code, logs) = running.ended();
        assert!(signalled_at.elapsed() >= DELAY, "{logs}");
        assert_eq!(code, Some(0), "{logs}");
        assert!(logs.contains("draining") && logs.contains("stopped"), "{logs}");
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    for (first, second) in [("TERM", "TERM"), ("INT", "TERM"), ("TERM", "INT")] {
        let running = start(3 * DEADLINE);
        running.send(first);
        until("it drains", || running.status("GET /readyz", "") == 503);
        let (code, logs) = running.signal(second);
        assert_eq!(code, Some(0), "{logs}");
        assert!(logs.contains("a second signal"), "{logs}");
    }
}

#[test]
fn files_are_still_read_again_while_it_drains() {
    let running = start(3 * DEADLINE);
    running.send("TERM");
    until("it drains", || running.status("GET /readyz", "") == 503);
    running.send("HUP");
    until("the signal is handled", || running.logs().contains("SIGHUP"));
    assert_eq!(running.status("GET /healthz", ""), 503, "and it goes on draining");
}
