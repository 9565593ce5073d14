// Shows each snapshot that the server sends. A snapshot contains the server's samples of the last hour.
import { become, el, loadNames } from './elements.js';
import { figure, plural, time } from './figures.js';
import { answered, begin, rate, remember } from './rates.js';
import * as sections from './sections.js';
import { sites } from './sites.js';
import { tiles } from './tiles.js';

const page = (id) => document.getElementById(id);
let events = null;
let retry = 0;

function draw(s) {
  page('server').textContent = `${s.version}, process ${s.pid}, up ${time(s.uptime)}, ${plural(s.reloads, 'reload')}`;
  document.title = `${figure(rate(answered))}/s – Howdah`;
  const made = el('main', { id: 'main' }, tiles(s), sites(s), sections.failures(s), sections.cache(s), sections.slow(s),
    s.pools.map(sections.pool), sections.jobs(s), sections.limits(s), sections.upstreams(s), sections.certificates(s));
  become(page('main'), made);
}

function show(text, kind) {
  page('state').textContent = text;
  page('state').className = kind;
}

function open() {
  clearTimeout(retry);
  if (events || document.hidden) return;
  events = new EventSource('events');
  events.addEventListener('status', (event) => {
    show('live', 'live');
    const status = JSON.parse(event.data);
    remember(status);
    draw(status);
  });
  events.addEventListener('trouble', (event) => show(JSON.parse(event.data), 'lost'));
  events.addEventListener('error', () => {
    show('no connection to the server', 'lost');
    if (events && events.readyState === EventSource.CLOSED) {
      close();
      retry = setTimeout(open, 5000);
    }
  });
}

function close() {
  if (events) events.close();
  events = null;
}

document.addEventListener('visibilitychange', () => {
  if (document.hidden) {
    close();
    show('paused', '');
    // No snapshots arrive meanwhile, and samples cover ten seconds each, so the rates of the last seconds begin again.
    begin();
  } else {
    open();
  }
});

// --- Buttons, which the page has only with the rights of the control socket ---

async function ask(what, body) {
  const buttons = document.querySelectorAll('button');
  buttons.forEach((button) => { button.disabled = true; });
  let [text, bad] = ['', false];
  try {
    const answer = await fetch(what, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
    [text, bad] = [await answer.text(), !answer.ok];
  } catch (error) {
    [text, bad] = [`howdah dashboard does not respond: ${error.message}`, true];
  }
  buttons.forEach((button) => { button.disabled = false; });
  page('message').textContent = text.trim();
  page('message').className = bad ? 'bad' : '';
  page('message').hidden = false;
}

function purge(all, lines) {
  const tags = lines.filter((line) => line.startsWith('tag:')).map((line) => line.slice(4));
  const urls = lines.filter((line) => !line.startsWith('tag:'));
  page('purging').close();
  return ask('purge', { Purge: { site: null, all, urls, tags, soft: false } });
}

if (document.documentElement.dataset.acts === 'yes') {
  page('actions').hidden = false;
  page('reload').addEventListener('click', () => ask('reload', {}));
  page('purge').addEventListener('click', () => page('purging').showModal());
  page('purge-none').addEventListener('click', () => page('purging').close());
  page('purge-all').addEventListener('click', () => purge(true, []));
  page('purge-these').addEventListener('click', () => {
    const lines = page('what').value.split('\n').map((line) => line.trim()).filter(Boolean);
    if (lines.length > 0) purge(false, lines);
    else page('what').focus();
  });
}

// The page is useful without the meanings of names, which the reference contains as well.
loadNames().catch(() => {}).then(open);
