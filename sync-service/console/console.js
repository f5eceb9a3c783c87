// The console at `/`: live data from `/v1/live`, queries, and an operator's most common changes.

import { Refused, ask, token } from './api.js';
import { $, setText } from './dom.js';
import { showCanary, startCanary } from './canary.js';
import { startExplain } from './explain.js';
import { refreshKeys, startKeys } from './keys.js';
import { listOverrides, refreshOverrides, startOverrides, tickOverrides } from './overrides.js';
import { showStatus } from './status.js';
import { listVersions, startVersions } from './versions.js';

/** Pause before a stream that ended is opened again, in milliseconds. */
const PAUSE_MS = 2000;
/** Silence after which a stream is considered dead, in milliseconds. weir-sync sends an event every second. */
const SILENCE_MS = 8000;

let stream = null;
let revision = null;

function state(kind, text, more = '') {
  $('state').dataset.state = kind;
  setText('state', text);
  setText('gone', more);
  $('gone').hidden = !more;
  document.body.classList.toggle('stale', kind === 'gone');
}

function show(live) {
  showStatus(live);
  if (live.fleet) showCanary(live.fleet.canary);
  refreshKeys();
  tickOverrides();
  listOverrides();
  // The revision changes with each version of the rule set and with each override.
  if (live.fleet && live.fleet.version !== revision) {
    revision = live.fleet.version;
    refreshOverrides();
    listVersions().then(() => setText('versions-wrong', ''), (error) => { revision = null; setText('versions-wrong', error.message); });
  }
}

/** Shows the operator's name and applies the role. */
function you({ name, role }) {
  setText('you', role === 'read' ? `${name}, who may only look` : name);
  document.body.classList.toggle('reads', role === 'read');
}

const EVENTS = { status: show, you };

/** Reads events until the stream ends. EventSource cannot send the token in a header, so this uses fetch. */
async function listen(signal) {
  const own = new AbortController();
  const giveUp = () => own.abort(new Error(`nothing was received for ${SILENCE_MS / 1000} s`));
  let silence = setTimeout(giveUp, SILENCE_MS);
  try {
    const answer = await ask('v1/live', { signal: AbortSignal.any([signal, own.signal]), headers: { accept: 'text/event-stream' } });
    $('enter').hidden = true;
    $('shown').hidden = false;
    $('leave').hidden = !token.get();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(silence);
      silence = setTimeout(giveUp, SILENCE_MS);
      const events = (rest + value).split('\n\n');
      rest = events.pop();
      events.forEach(handle);
    }
  } catch (error) {
    throw own.signal.aborted ? own.signal.reason : error;
  } finally {
    clearTimeout(silence);
    // Also frees the stream if an event could not be shown, because weir-sync limits their number.
    own.abort();
  }
}

function handle(event) {
  const of = (field) => event.split('\n').filter((line) => line.startsWith(`${field}: `)).map((line) => line.slice(field.length + 2)).join('\n');
  state('live', 'live');
  EVENTS[of('event')]?.(JSON.parse(of('data')));
}

async function run() {
  stream?.abort();
  const own = stream = new AbortController();
  revision = null;
  while (!own.signal.aborted) {
    try {
      await listen(own.signal);
      state('waiting', 'asking again');
    } catch (error) {
      if (own.signal.aborted) return;
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) return enter(error);
      const [text, what] = error instanceof Refused ? ['refused', 'weir-sync refuses'] : ['out of reach', 'weir-sync does not answer'];
      state('gone', text, `${what}, and what is shown is as it was: ${error.message}`);
    }
    await new Promise((done) => setTimeout(done, PAUSE_MS));
  }
}

function enter(error) {
  setText('entered', token.get() || error.status === 403 ? error.message : '');
  token.forget();
  state('waiting', 'not connected');
  setText('you', '');
  for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close();
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
document.addEventListener('changed', () => { refreshKeys(true); refreshOverrides(); });
startKeys();
startOverrides();
startExplain();
startCanary();
startVersions();
run();
