//! The state machine of one worker, which any host can drive.
//!
//! ```text
//! configure                         -> an Engine, and effects
//! request, answer_request           -> a step: continue, hold, call weir-sync, answer the client
//! response, response_sent, end      costs from the response; releases of what the request held
//! tick, answer                      -> effects: calls, requests to resume, log lines, the timer
//! leave                             the worker ends
//! ```
//!
//! There is no IO here and no clock. `now` is an argument, the state that workers share is behind a trait ([`Host`]),
//! and the host's next actions are return values.
//!
//! ```
//! use weir_limiter::engine::{Engine, LocalHost, OpenRequest, RequestStep};
//! use weir_rules::request::{Attribute, Request};
//! use weir_protocol::time::Time;
//!
//! /// A request with the one attribute that the rules below need.
//! struct Get(&'static str);
//!
//! impl Request for Get {
//!     fn attribute(&mut self, attribute: &Attribute) -> Option<Vec<u8>> {
//!         (*attribute == Attribute::SourceAddress).then(|| self.0.into())
//!     }
//! }
//!
//! let rules = br#"{"rules": [{"name": "per-client", "key": ["client_address"], "rate": "2/h"}]}"#;
//! let mut host = LocalHost::new(*b"a random secret!", 1);
//! let now = Time::from_nanos(1_000_000_000);
//! let (mut engine, _) = Engine::configure(rules, &mut host, now).expect("good rules");
//! let mut statuses = Vec::new();
//! for id in 1..=3 {
//!     let mut open = OpenRequest::new(id);
//!     let decided = engine.request(&mut open, &mut Get("192.0.2.1:80"), &mut host, now);
//!     statuses.push(if let RequestStep::Answer(answer) = decided.step { answer.status } else { 200 });
//!     engine.end(&mut open, &mut host, now);
//! }
//! assert_eq!(statuses, [200, 200, 429]);
//! ```

mod clock;
mod effects;
mod host;
mod reports;
mod requests;
mod responses;
mod state;
#[cfg(test)]
mod tests;

pub use crate::check::Booking;
pub use crate::sync::{Consume, ConsumeReply};
pub use effects::{
    ANSWER_BYTES_MAX, CallResult, Caller, Effect, LocalReply, LogLevel, RequestDecision, RequestStep, SyncCall, Unread,
    answered, no_answer,
};
pub use host::{Host, LocalHost, PushedVersions, SharedValue, SharedValues, unpacked};
pub use requests::{OpenRequest, Progress, Proxy};
pub use responses::UpstreamResponse;
pub use state::Engine;
