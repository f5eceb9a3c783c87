use tokio::sync::mpsc::{Receiver, channel};
use tonic::Code;

use super::super::bucket::QuotaDecision;
use super::super::holder::HolderTerms;
use super::*;
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::bucket_action;
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_usage_reports::BucketQuotaUsage;
use crate::proto::envoy::service::rate_limit_quota::v3::{BucketId, RateLimitQuotaUsageReports as Reports};
use bucket_action::BucketAction as Action;

const SECOND: Duration = Duration::from_secs(1);

fn usage(bucket: &str, requests: u64) -> BucketQuotaUsage {
    let bucket_id = Some(BucketId { bucket: [("bucket".to_owned(), bucket.to_owned())].into() });
    let time_elapsed = Some(prost_types::Duration { seconds: 5, nanos: 0 });
    BucketQuotaUsage { bucket_id, time_elapsed, num_requests_allowed: requests, num_requests_denied: 0 }
}

fn reports(usages: impl IntoIterator<Item = BucketQuotaUsage>) -> Reports {
    Reports { domain: "edge".into(), bucket_quota_usages: usages.into_iter().collect() }
}

/// Opens a stream for a client with this token; it takes one item at a time.
fn open(book: &mut Book, token: &str, now: Duration) -> Result<(u64, Receiver<StreamItem>), Code> {
    let (sender, receiver) = channel(1);
    book.open(sender, token, now).map(|number| (number, receiver)).map_err(|status| status.code())
}

/// A book in which one stream has reported this.
fn reported(usages: impl IntoIterator<Item = BucketQuotaUsage>) -> (Book, u64, Receiver<StreamItem>) {
    let mut book = Book::default();
    let (stream, receiver) = open(&mut book, "edge", Duration::ZERO).unwrap();
    book.report(stream, reports(usages), Duration::ZERO).unwrap();
    (book, stream, receiver)
}

/// Admits every request that is due, and sends the clients their assignments.
fn go_on(book: &mut Book, now: Duration) {
    for (name, due) in book.due(now) {
        let decision =
            QuotaDecision::Counted(HolderTerms { burst: 100.0, rate: 10.0, is_prepaid: false, holders: 1.0 });
        book.apply(&name, &due, DueResult { asked: due.count, given: due.count, decision });
    }
    book.assign(now);
}

/// For each bucket in the next message to a client, true if it is to be abandoned.
fn abandoned(receiver: &mut Receiver<StreamItem>) -> Vec<bool> {
    let sent = receiver.try_recv().expect("an answer").expect("no error");
    let is_abandoned = |action: &BucketAction| matches!(action.bucket_action, Some(Action::AbandonAction(_)));
    sent.bucket_action.iter().map(is_abandoned).collect()
}

#[test]
fn a_bucket_without_requests_is_abandoned_and_forgotten() {
    let (mut book, stream, mut receiver) = reported([usage("a", 5), usage("b", 5)]);
    for second in 1..=70 {
        let now = SECOND * second;
        if second % 5 == 0 {
            let busy = usage("b", 5);
            let quiet = (second <= 60).then(|| usage("a", 0));
            book.report(stream, reports(quiet.into_iter().chain([busy])), now).unwrap();
        }
        go_on(&mut book, now);
        let is_time = second == 60;
        if !receiver.is_empty() || is_time {
            assert_eq!(abandoned(&mut receiver).contains(&true), is_time, "after {second} s");
        }
    }
    assert_eq!((book.counts(), book.reported), ((1, 1), 1));
    // It begins again like any other.
    book.report(stream, reports([usage("a", 1)]), SECOND * 71).unwrap();
    assert_eq!(book.counts(), (1, 2));
}

#[test]
fn streams_and_buckets_have_maxima() {
    let mut book = Book::default();
    let mut receivers = Vec::new();
    for stream in 0..STREAMS_MAX {
        let (number, receiver) = open(&mut book, "edge", Duration::ZERO).unwrap();
        receivers.push(receiver);
        let first = stream * BUCKETS_OF_STREAM_MAX;
        if first < BUCKETS_MAX {
            let usages = (first..first + BUCKETS_OF_STREAM_MAX).map(|number| usage(&number.to_string(), 1));
            book.report(number, reports(usages), SECOND).unwrap();
        } else {
            let none = Reported { uncounted: 1, ..Reported::default() };
            assert_eq!(book.report(number, reports([usage("a", 1)]), SECOND).unwrap(), none);
        }
    }
    assert_eq!(book.counts(), (STREAMS_MAX, BUCKETS_MAX));
    let refused = book.open(channel(1).0, "edge", Duration::ZERO).unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::ResourceExhausted, "expected at most 1000 streams at a time")
    );
    book.end(1);
    book.open(channel(1).0, "edge", Duration::ZERO).expect("there is room again");
}

/// Clients of a proxy choose a header's value, and may not take away the quotas that it has for others.
#[test]
fn a_bucket_that_cannot_be_counted_leaves_the_others() {
    let (long, address) = ("x".repeat(BUCKET_BYTES_MAX), "remote_address");
    let mut bad = [usage("a", 2), usage(&long, 3), usage("b", 4)];
    for (usage, (key, value)) in bad.iter_mut().zip([(address, "nowhere"), ("bucket", long.as_str()), ("", "c")]) {
        usage.bucket_id = Some(BucketId { bucket: [(key.to_owned(), value.to_owned())].into() });
    }
    let (mut book, stream, _receiver) = reported([usage("a", 5)]);
    let many = (0..BUCKETS_OF_STREAM_MAX as u64 + 5).map(|number| usage(&number.to_string(), 1));
    let all = book.report(stream, reports(bad.into_iter().chain(many)), SECOND).unwrap();
    // There is room for all but the first one.
    let admitted = BUCKETS_OF_STREAM_MAX as u64 - 1;
    assert_eq!(all, Reported { admitted, refused: 0, uncounted: 2 + 3 + 4 + 6 });
    assert_eq!(book.counts(), (1, BUCKETS_OF_STREAM_MAX));
}

#[test]
fn a_full_stream_gets_new_assignments_later() {
    let (mut book, _, mut receiver) = reported([usage("a", 5)]);
    let (second, mut other) = open(&mut book, "edge", Duration::ZERO).unwrap();
    go_on(&mut book, SECOND);
    assert_eq!(receiver.len(), 1);
    // Now that there are two of them, each has half.
    book.report(second, reports([usage("a", 5)]), SECOND).unwrap();
    go_on(&mut book, SECOND * 2);
    assert_eq!((receiver.len(), other.len()), (1, 1));
    assert_eq!((abandoned(&mut receiver), abandoned(&mut other)), (vec![false], vec![false]));
    go_on(&mut book, SECOND * 3);
    assert_eq!(receiver.len(), 1, "it gets the news since");
}

#[test]
fn an_idle_stream_gives_its_place_to_a_new_one() {
    let (mut book, _, mut receiver) = reported([usage("a", 5)]);
    let others: Vec<_> = (1..STREAMS_MAX).map(|_| open(&mut book, "edge", SECOND).unwrap()).collect();
    assert_eq!(open(&mut book, "edge", SECOND * 59).err(), Some(Code::ResourceExhausted));
    let _new = open(&mut book, "edge", SECOND * 60).unwrap();
    let end = receiver.try_recv().expect("an answer").expect_err("its end");
    assert!(end.message().contains("expected a report"), "{end}");
    assert_eq!((book.counts(), book.reported), ((STREAMS_MAX, 0), 0), "what it reported is forgotten");
    assert_eq!(open(&mut book, "edge", SECOND * 60).err(), Some(Code::ResourceExhausted), "the next has a second more");
    drop(others);
}

/// Else it would report for ever and be given nothing.
#[test]
fn a_full_stream_that_is_ended_gets_an_error_later() {
    let (mut book, stream, receiver) = reported([usage("a", 5)]);
    go_on(&mut book, SECOND);
    assert_eq!((receiver.capacity(), book.look(stream).is_ok()), (0, true));
    let later = SECOND * 61;
    let _others: Vec<_> = (0..STREAMS_MAX).map(|_| open(&mut book, "edge", later).expect("a place")).collect();
    assert_eq!(receiver.len(), 1, "the assignment from before");
    let refused = [book.look(stream), book.report(stream, reports([usage("a", 5)]), later).map(drop)];
    assert_eq!(refused.map(|refused| refused.unwrap_err().code()), [Code::ResourceExhausted; 2]);
    assert_eq!(book.counts(), (STREAMS_MAX, 0));
}

#[test]
fn a_token_that_has_all_places_leaves_as_many_to_others() {
    let mut book = Book::default();
    let mut open = |token: &str| open(&mut book, token, SECOND).map(|(_, receiver)| receiver);
    let mut greedy: Vec<_> = (0..STREAMS_MAX).map(|_| open("greedy").unwrap()).collect();
    let modest: Vec<_> = (0..STREAMS_MAX / 2).map(|_| open("modest").unwrap()).collect();
    assert_eq!([open("modest"), open("greedy")].map(Result::err), [Some(Code::ResourceExhausted); 2]);
    let mut has_ended = |receiver: &mut Receiver<StreamItem>| receiver.try_recv().is_ok_and(|sent| sent.is_err());
    let ended = greedy.iter_mut().map(&mut has_ended).filter(|has_ended| *has_ended).count();
    assert_eq!(ended, STREAMS_MAX / 2);
    assert!(open("third").is_ok());
    drop(modest);
}
