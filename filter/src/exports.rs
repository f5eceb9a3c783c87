//! The callbacks that the filter needs, under the ABI's names, and their contexts. Callbacks that are not exported cost
//! nothing, because hosts skip them. Callbacks with unknown ids, and responses to unknown calls, have no effect.
#![allow(unsafe_code, reason = "an export needs it for its name; no block here has any")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::host::{self, Action};
use crate::worker::{Plugin, RequestContext, Worker};
use crate::{http, memory};

/// Called once per VM, before all other callbacks.
// The ABI prescribes the name (proxy-wasm, and WASI's reactor convention).
#[unsafe(no_mangle)]
extern "C" fn _initialize() {
    host::start();
}

/// Declares the version of proxy-wasm's ABI by its name; never called.
#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

/// Lends the host memory for its results.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_memory_allocate(size: usize) -> *mut u8 {
    memory::lend(size)
}

/// Creates a context: a plugin's if `plugin` is 0, else a request's.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(id: u32, plugin: u32) {
    if plugin == 0 {
        http::forget_calls(id);
        let fresh = Rc::new(RefCell::new(Plugin::new(id)));
        return CONTEXTS.with_borrow_mut(|contexts| {
            contexts.plugins.retain(|(known, _)| *known != id);
            contexts.plugins.push((id, fresh));
        });
    }
    let before = CONTEXTS.with_borrow_mut(|contexts| {
        // The headers of another request may still be outstanding.
        let other = contexts.begun.replace(Begun { id, plugin, is_decided: false });
        let replaced = other.filter(|other| other.id != id).and_then(|other| {
            let request = RequestContext::new(contexts.worker(other.plugin), other.id);
            contexts.remember(other.id, request)
        });
        (contexts.take_request(id), replaced)
    });
    // A host may reuse an id. The old context is dropped here, while the list is not borrowed.
    drop(before);
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_vm_start(_: u32, _: usize) -> bool {
    true
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(id: u32, size: usize) -> bool {
    with_plugin(id, false, |plugin| plugin.on_configure(size))
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_tick(id: u32) {
    with_plugin(id, (), Plugin::on_tick);
}

/// Decides a request whose headers have arrived. The request is kept if it has pending actions, unless it ended
/// meanwhile, because the host may call back during the decision.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_headers(id: u32, _: usize, ends: u32) -> Action {
    let is_without_body = ends != 0;
    let begun = CONTEXTS.with_borrow_mut(|contexts| {
        let begun = contexts.begun.as_mut().filter(|begun| begun.id == id && !begun.is_decided)?;
        begun.is_decided = true;
        let plugin = begun.plugin;
        Some(RequestContext::new(contexts.worker(plugin), id))
    });
    let Some(mut request) = begun else {
        return with_request(id, Action::Continue, |request| request.on_request_headers(is_without_body));
    };
    let action = request.on_request_headers(is_without_body);
    let ended = CONTEXTS.with_borrow_mut(|contexts| {
        // A request that began meanwhile has moved this one to `requests`, undecided.
        let was_begun = contexts.begun.take_if(|begun| begun.id == id && begun.is_decided).is_some();
        if (was_begun || contexts.take_request(id).is_some()) && request.has_more_to_do() {
            contexts.remember(id, request);
            None
        } else {
            Some(request)
        }
    });
    // Releases what the request holds, while the list is not borrowed.
    drop(ended);
    action
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_headers(id: u32, _: usize, _: u32) -> Action {
    with_request(id, Action::Continue, RequestContext::on_response_headers)
}

/// Passes the response of an HTTP call to the context that made the call.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_http_call_response(_: u32, call: u32, headers: usize, body_size: usize, _: usize) {
    let Some((id, number)) = http::end_call(call) else { return };
    // This may fail on a host with only one context: this one.
    let _ = host::act_for(id);
    let answer = http::read_answer(headers, body_size);
    if CONTEXTS.with_borrow(|contexts| contexts.plugin(id)).is_some() {
        with_plugin(id, (), |plugin| plugin.answered(number, answer));
    } else {
        with_request(id, (), |request| request.answered(number, answer));
    }
}

/// Ends a context. A plugin flushes its counters and hands over its unreported counts; a request is charged its
/// remaining cost. All of that is done here, because another callback (`proxy_on_done`, `proxy_on_log`) would cost each
/// request one more call of the module. The list is not borrowed meanwhile.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_delete(id: u32) {
    let (request, plugin) = CONTEXTS.with_borrow_mut(|contexts| {
        contexts.begun.take_if(|begun| begun.id == id);
        let plugin = contexts.plugins.iter().position(|(known, _)| *known == id);
        (contexts.take_request(id), plugin.map(|at| contexts.plugins.swap_remove(at).1))
    });
    if let Some(Ok(mut plugin)) = plugin.as_ref().map(|plugin| plugin.try_borrow_mut()) {
        plugin.end();
    }
    if let Some(Ok(mut request)) = request.as_ref().map(|request| request.try_borrow_mut()) {
        request.on_end();
    }
}

thread_local! {
    static CONTEXTS: RefCell<Contexts> =
        const { RefCell::new(Contexts { plugins: Vec::new(), begun: None, requests: VecDeque::new() }) };
}

/// All contexts of this VM. The list is not borrowed during calls into the host, because the host may call back.
struct Contexts {
    plugins: Vec<(u32, Rc<RefCell<Plugin>>)>,
    /// The last request that began, until it is decided. The few requests kept for longer are in `requests`.
    begun: Option<Begun>,
    /// Sorted by id, which a host assigns in ascending order.
    requests: VecDeque<(u32, Rc<RefCell<RequestContext>>)>,
}

#[derive(Clone, Copy)]
struct Begun {
    id: u32,
    plugin: u32,
    /// True while the request is being decided, to tell it from a later request with the same id.
    is_decided: bool,
}

impl Contexts {
    fn plugin(&self, id: u32) -> Option<Rc<RefCell<Plugin>>> {
        self.plugins.iter().find(|(known, _)| *known == id).map(|(_, plugin)| Rc::clone(plugin))
    }

    fn worker(&self, id: u32) -> Option<Rc<RefCell<Worker>>> {
        self.plugin(id)?.try_borrow().ok()?.worker.clone()
    }

    /// Index of the request `id`; if it is missing, the index that it would have.
    fn place(&self, id: u32) -> Result<usize, usize> {
        self.requests.binary_search_by_key(&id, |(known, _)| *known)
    }

    fn take_request(&mut self, id: u32) -> Option<Rc<RefCell<RequestContext>>> {
        let at = self.place(id).ok()?;
        self.requests.remove(at).map(|(_, request)| request)
    }

    /// Stores a request. Returns the previous one with this id.
    fn remember(&mut self, id: u32, request: RequestContext) -> Option<Rc<RefCell<RequestContext>>> {
        let before = self.take_request(id);
        let at = self.place(id).unwrap_or_else(|at| at);
        self.requests.insert(at, (id, Rc::new(RefCell::new(request))));
        before
    }
}

/// Runs `act` on the plugin `id`; returns `otherwise` if it is missing or borrowed.
fn with_plugin<T>(id: u32, otherwise: T, act: impl FnOnce(&mut Plugin) -> T) -> T {
    let plugin = CONTEXTS.with_borrow(|contexts| contexts.plugin(id));
    match plugin.as_ref().map(|plugin| plugin.try_borrow_mut()) {
        Some(Ok(mut plugin)) => act(&mut plugin),
        _ => otherwise,
    }
}

/// Runs `act` on the request `id`; returns `otherwise` if it is missing or borrowed.
fn with_request<T>(id: u32, otherwise: T, act: impl FnOnce(&mut RequestContext) -> T) -> T {
    let request = CONTEXTS.with_borrow(|contexts| {
        let (_, request) = contexts.requests.get(contexts.place(id).ok()?)?;
        Some(Rc::clone(request))
    });
    match request.as_ref().map(|request| request.try_borrow_mut()) {
        Some(Ok(mut request)) => act(&mut request),
        _ => otherwise,
    }
}
