// Shows each snapshot that the server sends. Keeps the last two minutes of them for rates and curves. All
// text comes into the page as text: what visitors have sent is in it.
'use strict';

const KEPT = 120;
const LATENCY_SPAN = 10;
const history = [];
const page = (id) => document.getElementById(id);
let events = null;
let retry = 0;

// --- From one snapshot to the next ---

/** A snapshot's age in snapshots, or the oldest there is. */
const before = (span) => history[Math.max(0, history.length - 1 - span)];

/** How much a number of snapshots grows in a second, over some seconds. */
function rate(value, span = 3) {
  const now = history[history.length - 1];
  const then = before(span);
  const seconds = (now.at - then.at) / 1000;
  return seconds > 0 ? Math.max(0, value(now.status) - value(then.status)) / seconds : 0;
}

const sum = (pairs) => pairs.reduce((all, pair) => all + pair[1], 0);
const answered = (s) => sum(s.statuses);
const failed = (s) => sum(s.statuses.filter(([code]) => code >= 500));

/** The time that a share of the requests of the last seconds took at most, in seconds. */
function quantile(share) {
  const now = history[history.length - 1].status.durations;
  const then = before(LATENCY_SPAN).status.durations;
  const counts = now.map(([bound, n], i) => [bound, Math.max(0, n - then[i][1])]);
  const wanted = share * sum(counts);
  if (wanted === 0) return null;
  let passed = 0;
  let low = 0;
  for (const [bound, n] of counts) {
    if (bound === null) return low;
    if (n > 0 && passed + n >= wanted) return low + ((wanted - passed) / n) * (bound - low);
    passed += n;
    low = bound;
  }
  return low;
}

// --- Words and figures ---

function figure(n) {
  if (n >= 1e6) return (n / 1e6).toFixed(1) + ' M';
  if (n >= 1e4) return (n / 1e3).toFixed(1) + ' k';
  return n >= 100 || Number.isInteger(n) ? String(Math.round(n)) : n.toFixed(1);
}

function time(seconds) {
  if (seconds === null) return '–';
  if (seconds > 0 && seconds < 0.001) return (seconds * 1e6).toFixed(0) + ' µs';
  if (seconds > 0 && seconds < 1) return (seconds * 1e3).toFixed(seconds < 0.01 ? 1 : 0) + ' ms';
  if (seconds < 60) return (Number.isInteger(seconds) ? seconds : seconds.toFixed(1)) + ' s';
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds / 60) % 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds / 3600) % 24)} h`;
}

function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit += 1; }
  return `${n >= 10 || unit === 0 ? n.toFixed(0) : n.toFixed(1)} ${units[unit]}`;
}

const percent = (part, whole) => (whole > 0 ? ((100 * part) / whole).toFixed(1) + ' %' : '–');

// --- Elements ---

/** An element: `el('td.number', text, …)`; an object sets attributes. */
function el(kind, ...parts) {
  const [tag, ...classes] = kind.split('.');
  const svg = tag === 'svg' || tag === 'polyline';
  const made = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  if (classes.length > 0) made.setAttribute('class', classes.join(' '));
  for (const part of parts.flat(Infinity)) {
    if (part === null || part === undefined || part === false) continue;
    if (part instanceof Node) made.append(part);
    else if (typeof part === 'object') for (const name in part) made.setAttribute(name, part[name]);
    else made.append(String(part));
  }
  return made;
}

/** Makes one element like another without replacing what is alike: focus, selection and what is open stay. */
function become(old, made) {
  if (old.nodeType !== made.nodeType || old.nodeName !== made.nodeName) {
    old.replaceWith(made);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== made.data) old.data = made.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!made.hasAttribute(name) && name !== 'open') old.removeAttribute(name);
  }
  for (const { name, value } of made.attributes) {
    // The page's policy forbids the attribute, not the property.
    if (name === 'style') old.style.cssText = value;
    else if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const there = [...old.childNodes];
  const wanted = [...made.childNodes];
  wanted.forEach((child, i) => (i < there.length ? become(there[i], child) : old.append(child)));
  there.slice(wanted.length).forEach((child) => child.remove());
}

function table(caption, columns, rows) {
  if (rows.length === 0) return el('p.faint', 'none');
  const head = columns.map((column) => el(column.startsWith('#') ? 'th.number' : 'th', column.replace('#', '')));
  return el('div.scroll', { tabindex: 0, role: 'region', 'aria-label': caption },
    el('table', el('thead', el('tr', head)), el('tbody', rows.map((row) => el('tr', row)))));
}

const number = (text) => el('td.number', text);
const long = (text) => el('td.long', text);

function spark(values) {
  const most = Math.max(...values, 1e-9);
  const points = values.map((v, i) => `${(100 - ((values.length - 1 - i) * 100) / (KEPT - 1)).toFixed(1)},${(30 - (28 * v) / most).toFixed(1)}`);
  return el('svg.spark', { viewBox: '0 0 100 31', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    el('polyline', { points: points.join(' ') }));
}

function tile(title, value, unit, below, values) {
  return el('section.tile', el('h2', title), el('div.figure', value, ' ', el('small', unit)),
    el('p', below), values && spark(values));
}

// --- Parts of the page ---

function tiles(s) {
  const bad = rate(failed, 10);
  const queued = s.pools.reduce((n, pool) => n + pool.queue, 0);
  const made = [
    tile('Requests', figure(rate(answered)), 'a second', `${s.requests_active} in progress, ${figure(bad)} errors a second`,
      history.map((h) => h.requests)),
    tile('Latency', time(quantile(0.5)), 'median',
      `p95 ${time(quantile(0.95))}, p99 ${time(quantile(0.99))}`, history.map((h) => h.slow)),
    tile('Waiting for PHP', figure(queued), 'requests',
      s.pools.map((p) => `${p.pool}: ${p.queue} of ${p.queue_size}`).join(', ') || 'no pools', history.map((h) => h.queue)),
  ];
  if (s.cache) {
    const hits = (c) => c.sites.reduce((n, site) => n + site.hits + site.stale, 0);
    const recent = rate((x) => (x.cache ? hits(x.cache) : 0), 10);
    made.push(tile('Page cache hits', percent(recent, rate(answered, 10)), 'of requests',
      `${figure(s.cache.entries)} pages, ${bytes(s.cache.bytes)}`, history.map((h) => h.hits)));
  } else {
    made.push(tile('Connections', figure(s.connections.open), `of ${figure(s.connections.limit)}`,
      `${figure(rate((x) => x.connections.accepted))} new a second`, history.map((h) => h.connections)));
  }
  return made;
}

function child(row) {
  const busy = row.state === 'Busy' || row.state === 'Finishing';
  return [number(row.pid), el(busy ? 'td.busy-text' : 'td', row.state), number(time(row.since)),
    el('td.number.optional', figure(row.requests)), el('td.number.optional', bytes(row.memory)),
    long(busy ? `${row.method} ${row.uri}` : '')];
}

function pool(p) {
  const most = Math.max(p.max_children, p.active_processes + p.idle_processes, 1);
  const idle = p.children.filter((row) => row.state === 'Idle');
  const others = p.children.filter((row) => row.state !== 'Idle').sort((a, b) => b.since - a.since);
  const columns = ['#pid', 'state', '#for', '#requests', '#memory', 'request'];
  const named = (caption, rows) => {
    const made = table(caption, columns, rows.map(child));
    made.querySelectorAll('th')[3]?.classList.add('optional');
    made.querySelectorAll('th')[4]?.classList.add('optional');
    return made;
  };
  const php = p.php && `PHP ${p.php}, opcache ${p.opcache ? 'on' : 'OFF'}`;
  const bar = el('div.bar', { 'aria-hidden': 'true' }, el('span.busy'), el('span.idle'));
  bar.children[0].style.width = `${(100 * p.active_processes) / most}%`;
  bar.children[1].style.width = `${(100 * p.idle_processes) / most}%`;
  return el('section',
    el('h2', `Pool ${p.pool} `, el('small', el(/^(Ready|Asleep)$/.test(p.state) ? 'span.good' : 'span.bad', p.state),
      [p.process_manager, php, `up ${time(p.uptime)}`].filter(Boolean).map((text) => `, ${text}`).join(''))),
    el('div', `${p.active_processes} busy, ${p.idle_processes} idle`, p.max_children > 0 && `, at most ${p.max_children}; `,
      `queue ${p.queue} of ${p.queue_size} (at most ${p.max_queue}); all busy ${figure(p.max_children_reached)} times`),
    bar,
    others.length > 0 && named(`Processes of ${p.pool}`, others),
    idle.length > 0 && el('details', el('summary', `${idle.length} idle processes`), named(`Idle processes of ${p.pool}`, idle)));
}

function slow(s) {
  const rows = s.pools.flatMap((p) => (p.slow || []).map((row) => ({ ...row, pool: p.pool })));
  rows.sort((a, b) => b.at - a.at);
  return el('section', el('h2', 'Slow requests ', el('small', 'beyond request_slowlog_timeout, with PHP’s stack')),
    rows.length === 0 ? el('p.faint', 'none') : rows.map((row) => el('details',
      el('summary', el('span.busy-text', time(row.seconds)), ` ${row.method} ${row.uri} `,
        el('span.faint', `${new Date(row.at * 1000).toLocaleTimeString()}, pool ${row.pool}`)),
      el('pre', `${row.script}\n${row.stack}`))));
}

function failures(s) {
  const rows = s.failures.filter(([, n]) => n > 0).map(([name, n]) => [name, '', n,
    rate((x) => (x.failures.find((f) => f[0] === name) || [0, 0])[1], 60)]);
  for (const p of s.pools) {
    const of = (x) => (x.pools.find((other) => other.pool === p.pool) || { failures: [] }).failures;
    for (const [name, n] of p.failures.filter((f) => f[1] > 0)) {
      rows.push([name, p.pool, n, rate((x) => (of(x).find((f) => f[0] === name) || [0, 0])[1], 60)]);
    }
  }
  rows.sort((a, b) => b[3] - a[3] || b[2] - a[2]);
  return el('section.half', el('h2', 'Failures by name'),
    table('Failures by name', ['name', 'pool', '#total', '#a minute'],
      rows.map(([name, of, n, r]) => [el('td', name), el('td', of), number(figure(n)), number(figure(Math.round(r * 60)))])),
    el('p.faint', 'Responses: ', s.statuses.map(([code, n]) => `${code || 'other'} ${figure(n)}`).join(', ') || 'none'));
}

function cache(s) {
  if (!s.cache) return null;
  return el('section.half', el('h2', 'Page cache ', el('small', `${figure(s.cache.entries)} pages, ${bytes(s.cache.bytes)} of ${bytes(s.cache.capacity)}`)),
    s.cache.disk && el(s.cache.disk.condition ? 'p.bad' : 'p.faint', s.cache.disk.condition
      ? `disk: not written: ${s.cache.disk.condition}`
      : `disk: ${figure(s.cache.disk.entries)} pages, ${bytes(s.cache.disk.bytes)} of ${bytes(s.cache.disk.capacity)}`),
    s.cache.sites.map((site) => [
      el('p', `${site.site}: ${(site.hit_permille / 10).toFixed(1)} % from the store; ${figure(site.hits)} hits, ${figure(site.stale)} stale, ${figure(site.stored)} stored, ${figure(site.purges)} purges and writes`),
      table(`Why not from the cache: ${site.site}`, ['why not', '#requests'],
        site.passes.filter((p) => p[1] > 0).sort((a, b) => b[1] - a[1]).map(([name, n]) => [el('td', name), number(figure(n))])),
    ]));
}

function upstreams(s) {
  const rows = s.pools.flatMap((p) => (p.backends || []).map((b) => [p.pool, b])).concat((s.proxied || []).map((b) => ['proxy', b]));
  if (rows.length === 0) return null;
  return el('section.half', el('h2', 'Upstream servers'),
    table('Upstream servers', ['of', 'address', 'state', '#busy', '#requests', '#failures'],
      rows.map(([of, b]) => [el('td', of), long(b.address), el(b.state === 'Up' ? 'td.good' : 'td.bad', b.state, b.why && `: ${b.why}`),
        number(b.busy), number(figure(b.requests)), number(figure(b.failures))])));
}

function jobs(s) {
  if ((s.jobs || []).length === 0) return null;
  const now = Date.now() / 1000;
  const ran = (job) => [
    job.last && `${job.last.how}, ${time(Math.max(0, now - job.last.ended))} ago`,
    job.fleet && (job.fleet.ended ? `on ${job.fleet.member}: ${job.fleet.how}, ${time(Math.max(0, now - job.fleet.ended))} ago` : `runs on ${job.fleet.member}`),
  ].filter(Boolean).join('; ');
  const failed = (job) => job.failures.map(([name, n]) => `${name} ${figure(n)}`).join(', ');
  return el('section', el('h2', 'Jobs'),
    table('Jobs', ['job', 'state', '#processes', '#memory', '#starts', 'next', 'last', 'failures'],
      s.jobs.map((j) => [el('td', j.job), el(j.state === 'stopped' ? 'td.bad' : 'td', j.state),
        number(`${j.processes.length} of ${j.wanted}`), number(bytes(j.processes.reduce((sum, p) => sum + p.memory, 0))), number(figure(j.starts)),
        el('td', j.next ? `in ${time(Math.max(0, j.next - now))}` : ''), el('td', ran(j)),
        el(j.failures.length > 0 ? 'td.bad' : 'td', failed(j))])));
}

function certificates(s) {
  if (s.certificates.length === 0 && s.failing_orders.length === 0) return null;
  const failing = s.failing_orders.map((o) => [long(o.name), el('td.bad', `${o.failure}, ${o.attempts} times`)]);
  const rows = s.certificates.map((c) => [long(c.names.join(', ')), c.seconds_left > 0
    ? el(c.seconds_left < 7 * 86400 ? 'td.bad' : 'td', `${time(c.seconds_left)} left`)
    : el('td.bad', `EXPIRED ${time(-c.seconds_left)} ago`)]);
  return el('section.half', el('h2', 'Certificates'), table('Certificates', ['names', 'valid'], failing.concat(rows)));
}

function limits(s) {
  const bounded = [
    ['connections', s.connections.open, s.connections.limit, figure],
    ['memory of the front', s.memory.used, s.memory.limit, bytes],
    ['bodies and responses in files', s.spilled.used, s.spilled.limit, bytes],
  ];
  return el('section.half', el('h2', 'Limits'),
    table('Limits of the server', ['', '#used', '#of', ''], bounded.map(([name, used, of, form]) => [el('td', name), number(form(used)), number(form(of)),
      el('td.meter', el('meter', { value: used, max: of, high: 0.9 * of, 'aria-label': name }))])),
    s.limits.rows.length > 0 && table('Client limits', ['site', 'line', 'limit', '#refused', '#waiting'],
      s.limits.rows.map((r) => [el('td', r.site), number(r.line), long(r.limit), number(figure(r.refused)), number(r.waiting)])));
}

// --- The page as a whole ---

function draw(s) {
  page('server').textContent = `${s.version}, process ${s.pid}, up ${time(s.uptime)}, ${s.reloads} reloads`;
  document.title = `${figure(rate(answered))}/s – Howdah`;
  const made = el('main', { id: 'main' }, tiles(s), s.pools.map(pool), jobs(s), slow(s), failures(s), limits(s), cache(s), upstreams(s), certificates(s));
  become(page('main'), made);
}

function show(text, kind) {
  page('state').textContent = text;
  page('state').className = kind;
}

function take(status) {
  const last = history[history.length - 1];
  // Another process counts from the beginning.
  if (last && (last.status.pid !== status.pid || last.status.requests > status.requests)) history.length = 0;
  const taken = { at: performance.now(), status };
  history.push(taken);
  if (history.length > KEPT) history.shift();
  taken.requests = rate(answered);
  taken.slow = quantile(0.95) || 0;
  taken.queue = status.pools.reduce((n, p) => n + p.queue, 0);
  taken.connections = status.connections.open;
  taken.hits = status.cache ? rate((s) => (s.cache ? s.cache.sites.reduce((n, c) => n + c.hits + c.stale, 0) : 0)) : 0;
  draw(status);
}

function open() {
  clearTimeout(retry);
  if (events || document.hidden) return;
  events = new EventSource('events');
  events.addEventListener('status', (event) => {
    show('live', 'live');
    take(JSON.parse(event.data));
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
    // What happened meanwhile is not known: rates begin again.
    history.length = 0;
  } else {
    open();
  }
});

// --- Buttons, where the server is asked with the rights to use them ---

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

open();
