//! Every function that a module imports, every status that it may return, and what is decided then.

use self::Without::{Answers, CallEnds, Fleet, Headers, Limits, Nothing, Unreached};
use super::story::Outcome::{self, Answered, Held, Passed};

/// Every status of the ABI, and two that are none.
pub const STATUSES: [u32; 15] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 99, u32::MAX];
/// The host's status for success.
pub const OK: u32 = 0;

/// The part that is missing on a host on which a function has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// Nothing that a request notices.
    Nothing,
    /// The fleet: no reply of weir-sync arrives.
    Fleet,
    /// The same, but the host accepts the calls: none of them ends.
    CallEnds,
    /// The fleet, and conditions on a request's path: it has none.
    Headers,
    /// Every limit: there is no configuration, no address or no way to answer.
    Limits,
    /// The answers, though the host accepts them.
    Answers,
    /// No run reaches it: it is there for a panic.
    Unreached,
}

/// A function that a module may import, what is missing where it is of no use, and why that is all.
pub struct Call {
    /// Its name.
    pub name: &'static str,
    /// The part that is missing if it returns another status than OK.
    refused: (Without, &'static str),
    /// The part that is missing if it returns OK, and does nothing and writes nothing.
    empty: (Without, &'static str),
}

impl Call {
    /// The missing part if every call returns `status` and does nothing, and the reason.
    pub fn without(&self, status: u32) -> (Without, &'static str) {
        if status == OK { self.empty } else { self.refused }
    }

    /// True if the run on a host that works calls it.
    pub(super) fn is_reached(&self) -> bool {
        self.refused.0 != Unreached
    }
}

/// A function that is missed the same, whatever it returns.
const fn alike(name: &'static str, without: Without, why: &'static str) -> Call {
    Call { name, refused: (without, why), empty: (without, why) }
}

/// One whose OK is worth something else than another status, or for another reason.
const fn apart(name: &'static str, refused: (Without, &'static str), empty: (Without, &'static str)) -> Call {
    Call { name, refused, empty }
}

/// Every function that a module may import.
pub static CALLS: [Call; 26] = [
    alike("proxy_log", Nothing, "only people read it"),
    alike("proxy_get_current_time_nanoseconds", Nothing, "it dates a header: the monotonic clock decides"),
    alike("proxy_set_tick_period_milliseconds", Nothing, "the run ticks on its own"),
    alike("proxy_set_effective_context", Nothing, "the host calls back for the context that made the call"),
    apart(
        "proxy_get_buffer_bytes",
        (Limits, "the plugin has no configuration, and lets requests through"),
        (Limits, "an empty configuration is refused, and requests are let through"),
    ),
    apart(
        "proxy_get_header_map_value",
        (Headers, "no path is the strict rule's, and an answer without a status is none"),
        (Headers, "an empty path is not the strict rule's, and an empty status is none"),
    ),
    alike("proxy_get_header_map_pairs", Nothing, "a header's first line stands in for all of them"),
    alike("proxy_remove_header_map_value", Unreached, "no upstream of the run states a quota"),
    alike("proxy_add_header_map_value", Nothing, "the response goes on without the header"),
    apart(
        "proxy_get_property",
        (Limits, "a rule does not apply to a request without an address"),
        (Limits, "an empty text is no address, and the rule does not apply"),
    ),
    alike("proxy_set_property", Nothing, "the decision is only recorded for the proxy's log"),
    apart(
        "proxy_get_shared_data",
        (Nothing, "the worker has a table of its own"),
        (Nothing, "an empty value is no identity: the worker has a table of its own"),
    ),
    apart(
        "proxy_set_shared_data",
        (Nothing, "the worker has a table of its own"),
        (Nothing, "what it wrote is not there: the worker has a table of its own"),
    ),
    alike("proxy_continue_stream", Nothing, "the call is the last one for the request"),
    apart(
        "proxy_send_local_response",
        (Limits, "a request whose answer the host does not take goes on"),
        (Answers, "the host took the answer, so the request stays with it"),
    ),
    apart(
        "proxy_http_call",
        (Fleet, "weir-sync is out of reach: the worker's bucket decides, or the rule's on_sync_loss"),
        (CallEnds, "the host took the call, so the strict request waits for its end"),
    ),
    alike("proxy_define_metric", Nothing, "no decision reads a metric"),
    alike("proxy_increment_metric", Nothing, "no decision reads a metric"),
    alike("proxy_record_metric", Nothing, "no decision reads a metric"),
    alike("proxy_get_metric", Nothing, "no decision reads a metric"),
    apart(
        "clock_time_get",
        (Nothing, "the wall clock stands in"),
        (Nothing, "time stands still, and no request of the run needs a refill"),
    ),
    apart(
        "random_get",
        (Nothing, "keys are hashed with a secret that can be guessed"),
        (Nothing, "keys are hashed with a secret of zeros"),
    ),
    alike("environ_get", Unreached, "for a panic's backtrace"),
    alike("environ_sizes_get", Unreached, "for a panic's backtrace"),
    alike("fd_write", Unreached, "for a panic's message"),
    alike("proc_exit", Unreached, "for the end of a panic"),
];

/// The table's row of a function.
pub(super) fn row(function: &str) -> Option<&'static Call> {
    CALLS.iter().find(|call| call.name == function)
}

/// Outcomes of the run's requests on a host that lacks this.
pub fn decided(without: Without) -> Vec<Outcome> {
    let decided = match without {
        Nothing | Unreached => WITH_ALL,
        Fleet => WITHOUT_FLEET,
        CallEnds => WITHOUT_CALL_ENDS,
        Headers => WITHOUT_HEADERS,
        Limits => WITHOUT_LIMITS,
        Answers => WITHOUT_ANSWERS,
    };
    decided.into()
}

/// The quota is used up.
const LIMITED: Outcome = Answered(429);
/// The rule cannot be checked.
const DENIED: Outcome = Answered(503);
/// The run on a host that works: four requests of a client, two under a strict rule, two of another client, before
/// and after a grant of nothing; two without an address; one after the configuration was replaced.
const WITH_ALL: [Outcome; 11] =
    [Passed, Passed, LIMITED, LIMITED, Passed, LIMITED, Passed, LIMITED, Passed, Passed, Passed];
/// The strict rule denies what it cannot check, and there is no grant of nothing.
const WITHOUT_FLEET: [Outcome; 11] =
    [Passed, Passed, LIMITED, LIMITED, DENIED, DENIED, Passed, Passed, Passed, Passed, Passed];
/// The strict rule still waits for its reply, and there is no empty grant.
const WITHOUT_CALL_ENDS: [Outcome; 11] =
    [Passed, Passed, LIMITED, LIMITED, Held, Held, Passed, Passed, Passed, Passed, Passed];
const WITHOUT_HEADERS: [Outcome; 11] =
    [Passed, Passed, LIMITED, LIMITED, Passed, Passed, Passed, Passed, Passed, Passed, Passed];
const WITHOUT_LIMITS: [Outcome; 11] = [Passed; 11];
/// Whatever would be answered waits for that.
const WITHOUT_ANSWERS: [Outcome; 11] = [Passed, Passed, Held, Held, Passed, Held, Passed, Held, Passed, Passed, Passed];
