//! Finds the context that a callback is for, in the lean module, as dispatch.rs does in the others.
//!
//! The lean module has no callback for the begin of a context, for a response, or for an end: each would cost every request
//! one more call of the module. So it takes no rule that has to know of a response or of an end, and finds out the rest
//! itself:
//!
//! - A plugin begins when it is configured.
//! - Where all plugins of the VM have one name, the one that was configured last decides: while Envoy drains what a
//!   configuration replaced, both are there. Else each request is asked for the name of its plugin. A plugin whose
//!   configuration was refused hides no other of its name.
//! - At a tick, the host is asked which other plugins, and which waiting requests, are still there: it does not act for a
//!   context that has ended.

use std::cell::RefCell;
use std::rc::Rc;

use crate::calls::{self, read_answer};
use crate::host::{self, Action};
use crate::plugin::Plugin;
use crate::request::RequestContext;
use crate::worker::Worker;

/// The most requests that are remembered while they wait; beyond this, the oldest is forgotten.
const WAITING_MAX: usize = 4_096;
/// How long two configurations of one name may be there together before the log warns: longer than Envoy drains by default.
const TOGETHER_NS_MAX: u64 = 900 * 1_000_000_000;

thread_local! {
    static CONTEXTS: RefCell<Contexts> = const { RefCell::new(Contexts::NONE) };
}

/// The contexts of this VM, as far as they must be known. The lists are not borrowed while the host is called, because it
/// may call back.
struct Contexts {
    /// In the order in which they were configured.
    plugins: Vec<Known>,
    /// Who decides every request; none if that depends on its plugin's name.
    only: Option<Rc<RefCell<Worker>>>,
    /// Requests that wait for a call, oldest first.
    waiting: Vec<(u32, Rc<RefCell<RequestContext>>)>,
}

struct Known {
    id: u32,
    name: Vec<u8>,
    plugin: Rc<RefCell<Plugin>>,
    /// When it was configured; none once the log has warned of another of its name.
    since_ns: Option<u64>,
}

impl Known {
    fn worker(&self) -> Option<Rc<RefCell<Worker>>> {
        self.plugin.try_borrow().ok()?.worker()
    }
}

impl Contexts {
    const NONE: Self = Self { plugins: Vec::new(), only: None, waiting: Vec::new() };

    /// To be called whenever the plugins have changed.
    fn note_only(&mut self) {
        let one_name =
            self.plugins.windows(2).all(|two| matches!(two, [one, other] if one.name == other.name));
        self.only = if one_name { self.plugins.iter().rev().find_map(Known::worker) } else { None };
    }
}

/// Puts a plugin's configuration in force; false if it is refused.
pub(crate) fn configure(id: u32, size: usize) -> bool {
    let known = CONTEXTS.with_borrow(|contexts| contexts.plugins.iter().any(|known| known.id == id));
    if !known {
        let name = host::property("plugin_name").unwrap_or_default();
        let plugin = Rc::new(RefCell::new(Plugin::new(id)));
        let since_ns = host::monotonic_ns();
        CONTEXTS.with_borrow_mut(|contexts| contexts.plugins.push(Known { id, name, plugin, since_ns }));
    }
    let is_taken = with_plugin(id, false, |plugin| plugin.on_configure(size));
    CONTEXTS.with_borrow_mut(Contexts::note_only);
    is_taken
}

/// A plugin's timer has fired.
pub(crate) fn tick(id: u32) {
    with_plugin(id, (), Plugin::on_tick);
    forget_ended(id);
    warn_of_namesakes();
}

/// A request's headers are there. It is remembered if it waits for a call.
pub(crate) fn request_headers(id: u32, is_without_body: bool) -> Action {
    let only = CONTEXTS.with_borrow(|contexts| contexts.only.clone());
    let mut request = RequestContext::new(only.or_else(worker_by_name), id);
    let action = request.on_request_headers(is_without_body);
    if request.has_more_to_do() {
        let request = Rc::new(RefCell::new(request));
        let forgotten = CONTEXTS.with_borrow_mut(|contexts| {
            let is_full = contexts.waiting.len() >= WAITING_MAX;
            contexts.waiting.push((id, request));
            is_full.then(|| contexts.waiting.remove(0))
        });
        // What it waits for is given up here, while the list is not borrowed.
        drop(forgotten);
    }
    action
}

/// The worker of the plugin that the present request belongs to; of several with that name and a good configuration, the
/// last.
#[cold]
fn worker_by_name() -> Option<Rc<RefCell<Worker>>> {
    let name = host::property("plugin_name").unwrap_or_default();
    CONTEXTS.with_borrow(|contexts| {
        contexts.plugins.iter().rev().filter(|known| known.name == name).find_map(Known::worker)
    })
}

/// The answer to an HTTP call, for the context that made it.
pub(crate) fn answer(token: u32, headers: usize, body_size: usize) {
    let Some((id, number)) = calls::end(token) else { return };
    // It may fail on a host that has only one context: this one.
    let _ = host::act_for(id);
    let answer = read_answer(headers, body_size);
    let find = |contexts: &Contexts| contexts.waiting.iter().position(|(known, _)| *known == id);
    let Some(request) =
        CONTEXTS.with_borrow(|contexts| find(contexts).and_then(|at| contexts.waiting.get(at).cloned()))
    else {
        return with_plugin(id, (), |plugin| plugin.answered(number, answer));
    };
    let request = request.1;
    let has_more_to_do = request.try_borrow_mut().map_or(true, |mut request| {
        request.answered(number, answer);
        request.has_more_to_do()
    });
    if !has_more_to_do {
        CONTEXTS.with_borrow_mut(|contexts| contexts.waiting.retain(|(known, _)| *known != id));
    }
}

/// The result of `act` on the plugin `id`; `otherwise` if there is none, or if it is in use.
fn with_plugin<T>(id: u32, otherwise: T, act: impl FnOnce(&mut Plugin) -> T) -> T {
    let plugin = CONTEXTS.with_borrow(|contexts| {
        contexts.plugins.iter().find(|known| known.id == id).map(|known| Rc::clone(&known.plugin))
    });
    match plugin.as_ref().map(|plugin| plugin.try_borrow_mut()) {
        Some(Ok(mut plugin)) => act(&mut plugin),
        _ => otherwise,
    }
}

/// Forgets the contexts that have ended, at the tick of the plugin `id`, which has not: a plugin hands over its counters
/// and what it has not reported, and a request gives up its call.
fn forget_ended(id: u32) {
    let others: Vec<u32> = CONTEXTS.with_borrow(|contexts| {
        let plugins = contexts.plugins.iter().map(|known| known.id).filter(|known| *known != id);
        plugins.chain(contexts.waiting.iter().map(|(known, _)| *known)).collect()
    });
    if others.is_empty() {
        return;
    }
    let ended: Vec<u32> = others.into_iter().filter(|other| host::act_for(*other).is_err()).collect();
    let _ = host::act_for(id);
    if ended.is_empty() {
        return;
    }
    let (plugins, requests) = CONTEXTS.with_borrow_mut(|contexts| {
        let plugins: Vec<_> = contexts.plugins.extract_if(.., |known| ended.contains(&known.id)).collect();
        let requests: Vec<_> = contexts.waiting.extract_if(.., |(known, _)| ended.contains(known)).collect();
        contexts.note_only();
        (plugins, requests)
    });
    drop(requests);
    for known in plugins {
        if let Ok(mut plugin) = known.plugin.try_borrow_mut() {
            plugin.part();
        }
    }
}

/// Warns of a configuration whose requests another one of its name decides, and which does not end.
fn warn_of_namesakes() {
    let Some(now_ns) = host::monotonic_ns() else { return };
    let names = CONTEXTS.with_borrow_mut(|contexts| {
        let is_old =
            |known: &Known| known.since_ns.is_some_and(|ns| now_ns.saturating_sub(ns) > TOGETHER_NS_MAX);
        let mut names = Vec::new();
        let mut plugins = contexts.plugins.as_mut_slice();
        while let [first, rest @ ..] = plugins {
            if let Some(other) = rest.iter_mut().find(|other| other.name == first.name && is_old(other)) {
                other.since_ns = None;
                names.push(String::from_utf8_lossy(&other.name).into_owned());
            }
            plugins = rest;
        }
        names
    });
    for name in names {
        log::warn!(
            "two plugins of this VM have the name {name:?} and different configurations: the one that came last decides the \
             requests of both. Give each a name of its own, or load weir_filter.wasm"
        );
    }
}
