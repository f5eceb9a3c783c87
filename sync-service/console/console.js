// The page at `/`: what `/v1/live` streams, and the changes that operators make most. It builds all that it shows from text
// nodes, so that no name of a rule or a POP is ever read as HTML.
'use strict';

const KEY = 'weir-token';
/** How long after a stream that ended the next one begins, in milliseconds. */
const PAUSE_MS = 2000;
/** How many points the plots keep: ten minutes. */
const POINTS_MAX = 600;

const $ = (id) => document.getElementById(id);
const say = (id, text) => { const element = $(id); if (element.textContent !== text) element.textContent = text; };
const number = (value, digits = 0) => value == null ? '-' : value.toLocaleString('en', { maximumFractionDigits: digits });

/** What a weir-sync said that it refuses. */
class Refused extends Error {
  constructor(status, detail) { super(detail); this.status = status; }
}

const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (text) => sessionStorage.setItem(KEY, text),
  forget: () => sessionStorage.removeItem(KEY),
};

/** Asks the API; the paths are relative, so that a proxy may put the page under any path. */
async function ask(path, { method = 'GET', headers = {}, body, signal } = {}) {
  const all = { ...headers };
  if (token.get()) all.authorization = `Bearer ${token.get()}`;
  if (body !== undefined) all['content-type'] = 'application/json';
  const answer = await fetch(path, { method, headers: all, body, signal, cache: 'no-store', credentials: 'omit' });
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, problem.detail || `${answer.status} ${answer.statusText}`);
}

const json = async (path, options) => (await ask(path, options)).json();

// Rows and cells.

function cell(content, kind) {
  const td = document.createElement('td');
  if (kind) td.className = kind;
  td.append(content);
  return td;
}

function rows(id, list) {
  const body = $(id);
  body.replaceChildren(...list.map((cells) => {
    const tr = document.createElement('tr');
    tr.append(...cells);
    return tr;
  }));
}

function button(text, label, act, kind) {
  const made = document.createElement('button');
  made.type = 'button';
  made.textContent = text;
  made.setAttribute('aria-label', label);
  if (kind) made.className = kind;
  made.addEventListener('click', act);
  return made;
}

function ago(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s ago`;
  if (seconds < 120) return `${Math.floor(seconds)} s ago`;
  return seconds < 7200 ? `${Math.floor(seconds / 60)} min ago` : `${Math.floor(seconds / 3600)} h ago`;
}

// Plots.

class Plot {
  constructor(id, label) {
    this.element = $(id);
    this.data = [[], []];
    this.label = label;
    this.plot = null;
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw());
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.element);
  }

  size() { return { width: Math.max(200, this.element.clientWidth), height: 144 }; }

  add(at_s, value) {
    const [times, values] = this.data;
    times.push(at_s);
    values.push(value);
    if (times.length > POINTS_MAX) { times.shift(); values.shift(); }
    if (this.plot) this.plot.setData(this.data); else this.draw();
  }

  draw() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour('--dim'), grid: { stroke: colour('--line'), width: 1 }, ticks: { stroke: colour('--line'), width: 1 } };
    this.plot?.destroy();
    this.plot = new uPlot({
      ...this.size(),
      legend: { show: false },
      cursor: { show: false },
      series: [{}, { label: this.label, stroke: colour('--mark'), width: 1.5, points: { show: false } }],
      scales: { y: { range: (_plot, _min, max) => [0, Math.max(1, (max || 0) * 1.1)] } },
      axes: [axis, { ...axis, size: 55, values: (_plot, ticks) => ticks.map((tick) => `${tick} ms`) }],
    }, this.data, this.element);
  }
}

let trips = null;

// What the stream says.

let versionShown = null;

function show(live) {
  const { store, fleet, budgets } = live;
  say('where', `${live.member}, version ${live.weir_sync}`);
  say('store-state', store.is_up ? 'in reach' : `out of reach: ${store.problem}`);
  $('store-state').className = store.is_up ? 'good' : 'bad';
  say('store-trip', store.trip_ms == null ? '-' : `${number(store.trip_ms, 1)} ms`);
  say('store-silence', ago(store.silence_s));
  say('budgets', number(budgets.count));
  say('in-debt', number(budgets.in_debt));
  trips ??= new Plot('trips', 'store');
  trips.add(live.at_s, store.trip_ms);
  if (fleet) showPops(fleet);
  rows('rules', live.rules.map((rule) => {
    const isAbove = rule.bound != null && rule.overshoot > rule.bound;
    return [cell(rule.rule), cell(number(rule.debt, 1)), cell(number(rule.overshoot, 1), isAbove ? 'bad' : ''),
      cell(number(rule.overshoot_max, 1)), cell(number(rule.bound))];
  }));
  if (fleet && fleet.version !== versionShown) {
    versionShown = fleet.version;
    versions().catch(wrong);
  }
}

function showPops(fleet) {
  const said = fleet.rule_set
    ? `Version ${fleet.rule_set} runs at ${fleet.current} of ${fleet.count} POPs.`
    : 'There is no rule set of the fleet\u2019s: POPs run their own configuration\u2019s.';
  const others = fleet.count - fleet.pops.length;
  say('pops-said', others > 0 ? `${said} ${others} of those that do are not listed.` : said);
  rows('pops', fleet.pops.map((pop) => {
    const state = pop.is_current ? 'current' : pop.refused ? `refused ${pop.refused === fleet.version ? fleet.rule_set : pop.refused}` : pop.version ? 'behind' : 'its own rules';
    return [cell(pop.name), cell(pop.region), cell(pop.is_current ? String(fleet.rule_set) : pop.version ? String(pop.version) : '-'),
      cell(state, pop.is_current ? 'good' : 'bad'), cell(ago(pop.silent_s))];
  }));
}

// The rule set's versions.

async function versions() {
  const { versions: kept } = await json('v1/rules/versions');
  const current = kept[0]?.version;
  rows('versions', kept.map((version) => {
    const actions = document.createElement('div');
    actions.className = 'actions';
    const name = version.version;
    if (name !== current) {
      actions.append(
        button('Compare', `Compare version ${name} with the current one`, () => compare(name, current)),
        button('Roll back', `Roll back to version ${name}`, () => rollBack(name, current), 'danger'),
      );
    } else {
      actions.append('current');
    }
    const made = new Date(version.at_s * 1000).toISOString().replace('T', ' ').replace('.000', '');
    return [cell(String(name)), cell(made), cell(version.author), cell(version.note), cell(version.comment, 'wide'), cell(actions)];
  }));
}

const ofVersion = (version) => json(`v1/rules?version=${encodeURIComponent(version)}`);

/** What `to` changes of `from`, a line each; as `weir-sync rules diff` says it. */
function differences(from, to) {
  const named = (document) => new Map((document.rules || []).map((rule) => [rule.name, rule]));
  const [before, after] = [named(from), named(to)];
  const text = (value) => value === undefined ? 'nothing' : JSON.stringify(value);
  const fields = (a, b, indent) => [...new Set([...Object.keys(a), ...Object.keys(b)])].sort()
    .filter((field) => field !== 'rules' && text(a[field]) !== text(b[field]))
    .map((field) => `${indent}${field}: ${text(a[field])} -> ${text(b[field])}`);
  const both = (one, other) => [...one.keys()].filter((name) => other.has(name));
  const lines = [...after.keys()].filter((name) => !before.has(name)).map((name) => `+ rule ${name}`);
  lines.push(...[...before.keys()].filter((name) => !after.has(name)).map((name) => `- rule ${name}`));
  for (const name of both(after, before)) {
    const changed = fields(before.get(name), after.get(name), '    ');
    if (changed.length) lines.push(`~ rule ${name}`, ...changed);
  }
  if (both(before, after).join() !== both(after, before).join()) lines.push('~ the order of the rules');
  lines.push(...fields(from, to, '~ '));
  return lines.length ? lines.join('\n') : 'Both say the same.';
}

async function compared(version, current) {
  const [from, to] = await Promise.all([ofVersion(current), ofVersion(version)]);
  return differences(from, to);
}

async function compare(version, current) {
  try {
    const text = await compared(version, current);
    $('diff').hidden = false;
    $('diff').textContent = `From ${current} to ${version}:\n${text}`;
    $('diff').focus();
  } catch (error) { wrong(error); }
}

// Changes, each after a question.

/** Asks, and then does it; what is refused is said in the question, which stays open. */
function confirmed(title, text, act, diff) {
  const dialog = $('ask');
  say('ask-title', title);
  say('ask-text', text);
  say('ask-wrong', '');
  $('ask-comment').value = '';
  $('ask-diff').hidden = !diff;
  $('ask-diff').textContent = diff || '';
  $('ask-yes').onclick = async (event) => {
    event.preventDefault();
    $('ask-yes').disabled = true;
    try {
      await act($('ask-comment').value.trim());
      dialog.close();
      await versions();
    } catch (error) {
      say('ask-wrong', error.message);
    } finally {
      $('ask-yes').disabled = false;
    }
  };
  dialog.showModal();
}

/** A header holds bytes: UTF-8, a character for each. */
const commented = (comment) => comment
  ? { 'weir-comment': String.fromCharCode(...new TextEncoder().encode(comment)) } : {};

async function rollBack(version, current) {
  try {
    const diff = await compared(version, current);
    confirmed(`Roll back to ${version}?`, 'This puts the version again, as a new one, in the whole fleet.', (comment) =>
      ask('v1/rules/rollback', {
        method: 'POST', headers: { 'if-match': `"${current}"`, ...commented(comment) }, body: JSON.stringify({ version }),
      }), diff);
  } catch (error) { wrong(error); }
}

function enforce(isOn) {
  const [title, text] = isOn
    ? ['Switch all rules on?', 'Rules limit again, in the whole fleet.']
    : ['Switch all rules off?', 'No rule limits anything any more, in the whole fleet, until they are switched on again.'];
  confirmed(title, text, (comment) =>
    ask('v1/enforcement', { method: 'PUT', headers: commented(comment), body: JSON.stringify({ enforce: isOn }) }));
}

// The stream.

let stream = null;

function state(kind, text) {
  $('state').dataset.state = kind;
  say('state', text);
}

function wrong(error) {
  if (error.name !== 'AbortError') state('gone', error.message);
}

/** Reads events until the stream ends: fetch, not EventSource, as a token goes in a header. */
async function listen(signal) {
  const answer = await ask('v1/live', { signal, headers: { accept: 'text/event-stream' } });
  $('enter').hidden = true;
  $('shown').hidden = false;
  $('leave').hidden = !token.get();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      const data = event.split('\n').filter((line) => line.startsWith('data: ')).map((line) => line.slice(6)).join('\n');
      if (!data) continue;
      state('live', 'live');
      show(JSON.parse(data));
    }
  }
}

async function run() {
  stream?.abort();
  const own = stream = new AbortController();
  while (!own.signal.aborted) {
    try {
      await listen(own.signal);
      state('waiting', 'the stream ended; asking again');
    } catch (error) {
      if (own.signal.aborted) return;
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) return enter(error);
      state('gone', `out of reach: ${error.message}`);
    }
    await new Promise((done) => setTimeout(done, PAUSE_MS));
  }
}

function enter(error) {
  say('entered', token.get() || error.status === 403 ? error.message : '');
  token.forget();
  state('waiting', 'not connected');
  $('shown').hidden = true;
  $('leave').hidden = true;
  $('enter').hidden = false;
  $('token').focus();
}

$('enter').addEventListener('submit', (event) => {
  event.preventDefault();
  token.set($('token').value.trim());
  $('token').value = '';
  run();
});
$('leave').addEventListener('click', () => { stream?.abort(); token.forget(); enter(new Error('')); });
$('enforce-off').addEventListener('click', () => enforce(false));
$('enforce-on').addEventListener('click', () => enforce(true));
run();
