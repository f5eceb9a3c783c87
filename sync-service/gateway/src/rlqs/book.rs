//! All buckets, and the streams of the clients that report them. Both are bounded, and removed when the streams end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Sender;
use tonic::Status;

use super::bucket::{Due, DueResult, QuotaBucket};
use super::messages::{self, Pairs, abandon};
use crate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::BucketAction;
use crate::proto::envoy::service::rate_limit_quota::v3::{RateLimitQuotaResponse, RateLimitQuotaUsageReports};

/// Maximum number of streams, of buckets per stream, and of buckets of all streams, each counted once per stream.
pub(super) const STREAMS_MAX: usize = 1_000;
pub(super) const BUCKETS_OF_STREAM_MAX: usize = 1_000;
pub(super) const BUCKETS_MAX: usize = 20_000;
/// Maximum number of characters logged of an error, which may quote a client.
const WHY_CHARS_MAX: usize = 128;
/// Time without a report after which a stream may be ended in favor of a new one.
const IDLE: Duration = Duration::from_mins(1);
/// Maximum size of a bucket's pairs, in bytes. Clients of the proxy choose parts of them.
pub(super) const BUCKET_BYTES_MAX: usize = 2_048;

pub(super) type StreamItem = Result<RateLimitQuotaResponse, Status>;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BucketName {
    domain: String,
    pairs: Pairs,
}

#[derive(Debug, Default)]
pub(super) struct Book {
    buckets: HashMap<Arc<BucketName>, QuotaBucket>,
    streams: HashMap<u64, Stream>,
    /// Number of buckets over all streams.
    reported: usize,
    numbered: u64,
    /// Reason why no more streams are accepted, if so.
    closed: Option<&'static str>,
}

#[derive(Debug)]
struct Stream {
    sender: Sender<StreamItem>,
    token: String,
    reported_at: Duration,
    domain: String,
    buckets: BTreeSet<Arc<BucketName>>,
    /// True once a warning was logged that one of its buckets is not counted.
    has_warned: bool,
}

/// Number of requests in a client's report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reported {
    pub(super) admitted: u64,
    pub(super) refused: u64,
    /// Requests of both kinds in buckets that are not counted.
    pub(super) uncounted: u64,
}

impl Book {
    /// Opens a stream for a client with this token and returns its number. Items for the client go to `sender`.
    /// If there are too many streams, another one may be ended for it.
    pub(super) fn open(&mut self, sender: Sender<StreamItem>, token: &str, now: Duration) -> Result<u64, Status> {
        if let Some(closed) = self.closed {
            return Err(Status::unavailable(closed));
        }
        if self.streams.len() >= STREAMS_MAX {
            let Some((last, why)) = self.dispensable(token, now) else {
                let expected = format!("expected at most {STREAMS_MAX} streams at a time");
                return Err(Status::resource_exhausted(expected));
            };
            if let Some(stream) = self.streams.get(&last) {
                // A client that does not read receives this later, from `look`.
                let _ = stream.sender.try_send(Err(Status::resource_exhausted(why)));
            }
            self.end(last);
        }
        self.numbered += 1;
        let stream = Stream {
            sender,
            token: token.into(),
            reported_at: now,
            domain: String::new(),
            buckets: BTreeSet::new(),
            has_warned: false,
        };
        self.streams.insert(self.numbered, stream);
        Ok(self.numbered)
    }

    /// Chooses a stream to end in favor of a client with this token, with the reason. It is the longest idle
    /// stream; if none is idle, the least active stream of the token with the most streams, provided that this
    /// token then still has at least as many as the new one's.
    fn dispensable(&self, token: &str, now: Duration) -> Option<(u64, &'static str)> {
        let longest = |of: Option<&str>| {
            let streams = self.streams.iter().filter(|(_, stream)| of.is_none_or(|of| stream.token == of));
            streams.min_by_key(|(_, stream)| stream.reported_at).map(|(number, stream)| (*number, stream.reported_at))
        };
        if let Some((idle, _)) = longest(None).filter(|(_, reported_at)| *reported_at + IDLE <= now) {
            return Some((idle, "all places are taken: expected a report within the last minute"));
        }
        let mut counts = BTreeMap::<&str, usize>::new();
        for stream in self.streams.values() {
            *counts.entry(&stream.token).or_default() += 1;
        }
        let own = counts.get(token).copied().unwrap_or(0);
        let (most, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let (last, _) = longest(Some(most)).filter(|_| count > own + 1)?;
        Some((last, "all places are taken: expected a token to leave as many to others"))
    }

    pub(super) fn end(&mut self, stream: u64) {
        let Some(ended) = self.streams.remove(&stream) else { return };
        for name in &ended.buckets {
            self.forget(stream, name);
        }
    }

    /// Ends all streams for this reason and accepts no more.
    pub(super) fn close(&mut self, why: &'static str) {
        self.closed = Some(why);
        for stream in self.streams.values() {
            // As above: a client that does not read receives this later.
            let _ = stream.sender.try_send(Err(Status::unavailable(why)));
        }
        (self.streams, self.buckets, self.reported) = (HashMap::new(), HashMap::new(), 0);
    }

    /// Fails if the stream was ended, which its client may not know if it was not reading at that time.
    pub(super) fn look(&self, stream: u64) -> Result<(), Status> {
        if self.streams.contains_key(&stream) {
            return Ok(());
        }
        let gone = "all places were taken: expected another stream from now on";
        Err(self.closed.map_or_else(|| Status::resource_exhausted(gone), Status::unavailable))
    }

    pub(super) fn counts(&self) -> (usize, usize) {
        (self.streams.len(), self.buckets.len())
    }

    /// Applies a client's report and returns the number of requests in it. Fails if it is invalid. A bucket is
    /// skipped if there is no room for it or if no descriptor can have its pairs. That is not an error: the
    /// proxy's clients can make up such buckets, and must not deprive the proxy of its others.
    pub(super) fn report(
        &mut self,
        stream: u64,
        reports: RateLimitQuotaUsageReports,
        now: Duration,
    ) -> Result<Reported, Status> {
        let RateLimitQuotaUsageReports { domain, bucket_quota_usages } = reports;
        let mut reported = Reported::default();
        self.look(stream)?;
        let Some(known) = self.streams.get_mut(&stream) else { return Ok(reported) };
        known.reported_at = now;
        let domain = known.domain_of(domain)?;
        for (index, usage) in bucket_quota_usages.into_iter().enumerate() {
            let (admitted, refused) = (usage.num_requests_allowed, usage.num_requests_denied);
            let (pairs, elapsed) = messages::bucket(index, usage)?;
            let name = Arc::new(BucketName { domain: domain.clone(), pairs });
            if let Err(why) = self.hold(stream, index, &name, now) {
                self.warn(stream, &why);
                let requests = admitted.saturating_add(refused);
                reported.uncounted = reported.uncounted.saturating_add(requests);
                continue;
            }
            let holder = self.buckets.get_mut(&name).and_then(|bucket| bucket.holders.get_mut(&stream));
            if let Some(holder) = holder {
                holder.report(now, elapsed, admitted, refused);
            }
            reported.admitted = reported.admitted.saturating_add(admitted);
            reported.refused = reported.refused.saturating_add(refused);
        }
        Ok(reported)
    }

    /// Logs why a bucket of the stream is not counted, once per stream.
    fn warn(&mut self, stream: u64, why: &Status) {
        if let Some(known) = self.streams.get_mut(&stream).filter(|known| !known.has_warned) {
            known.has_warned = true;
            let why: String = why.message().chars().take(WHY_CHARS_MAX).collect();
            tracing::warn!(?why, "a bucket of quotas is not counted");
        }
    }

    fn hold(&mut self, stream: u64, index: usize, name: &Arc<BucketName>, now: Duration) -> Result<(), Status> {
        let Some(known) = self.streams.get_mut(&stream) else { return Ok(()) };
        if known.buckets.contains(name) {
            return Ok(());
        }
        let full = |most: usize, of: &str| {
            let expected = format!("expected at most {most} buckets of {of}");
            Err(Status::resource_exhausted(format!("bucket_quota_usages[{index}]: {expected}")))
        };
        if known.buckets.len() >= BUCKETS_OF_STREAM_MAX {
            return full(BUCKETS_OF_STREAM_MAX, "a stream");
        }
        if self.reported >= BUCKETS_MAX {
            return full(BUCKETS_MAX, "all streams");
        }
        let bytes: usize = name.pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
        if bytes > BUCKET_BYTES_MAX {
            let expected = format!("expected at most {BUCKET_BYTES_MAX} bytes in all, found {bytes}");
            return Err(Status::invalid_argument(format!("bucket_quota_usages[{index}].bucket_id: {expected}")));
        }
        if !self.buckets.contains_key(name) {
            let ask = messages::ask(&name.domain, index, &name.pairs)?;
            self.buckets.insert(Arc::clone(name), QuotaBucket::new(messages::id(&name.pairs), ask, now));
        }
        if let Some(bucket) = self.buckets.get_mut(name) {
            bucket.holders.entry(stream).or_default();
        }
        known.buckets.insert(Arc::clone(name));
        self.reported += 1;
        Ok(())
    }

    pub(super) fn due(&mut self, now: Duration) -> Vec<(Arc<BucketName>, Due)> {
        let due = |(name, bucket): (&Arc<BucketName>, &mut QuotaBucket)| Some((Arc::clone(name), bucket.due(now)?));
        self.buckets.iter_mut().filter_map(due).collect()
    }

    pub(super) fn apply(&mut self, name: &BucketName, due: &Due, result: DueResult) {
        if let Some(bucket) = self.buckets.get_mut(name) {
            bucket.apply(&due.of, result);
        }
    }

    pub(super) fn assign(&mut self, now: Duration) {
        let mut actions: HashMap<u64, Vec<BucketAction>> = HashMap::new();
        let mut quiet = Vec::new();
        for (name, bucket) in &mut self.buckets {
            // A client that does not read receives no assignment, and so gets no more tokens.
            let takes = |stream: &u64| self.streams.get(stream).is_some_and(|stream| stream.sender.capacity() > 0);
            for (stream, assignment) in bucket.assign(now, takes) {
                actions.entry(stream).or_default().extend(assignment.actions(&bucket.id));
            }
            for (stream, _) in bucket.holders.iter().filter(|(_, holder)| holder.is_quiet(now)) {
                actions.entry(*stream).or_default().push(abandon(&bucket.id));
                quiet.push((*stream, Arc::clone(name)));
            }
        }
        for (stream, name) in quiet {
            if self.streams.get_mut(&stream).is_some_and(|known| known.buckets.remove(&name)) {
                self.forget(stream, &name);
            }
        }
        for (stream, bucket_action) in actions {
            if let Some(stream) = self.streams.get(&stream) {
                let _ = stream.sender.try_send(Ok(RateLimitQuotaResponse { bucket_action }));
            }
        }
    }

    fn forget(&mut self, stream: u64, name: &Arc<BucketName>) {
        self.reported -= 1;
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        bucket.holders.remove(&stream);
        if bucket.holders.is_empty() {
            self.buckets.remove(name);
        }
    }
}

impl Stream {
    /// Domain of the stream. Checks the domain in a message against it.
    fn domain_of(&mut self, domain: String) -> Result<String, Status> {
        if self.domain.is_empty() {
            if domain.is_empty() {
                let expected = "domain: expected a text in the first message of a stream, found none";
                return Err(Status::invalid_argument(expected));
            }
            crate::rls::name("domain", &domain)?;
            self.domain = domain;
        } else if !domain.is_empty() && domain != self.domain {
            let expected = format!("domain: expected `{}` as before, found `{domain}`", self.domain);
            return Err(Status::invalid_argument(expected));
        }
        Ok(self.domain.clone())
    }
}

#[cfg(test)]
mod tests;
