// Parts of the page about pools, failures, the cache and everything else that has a limit.
import { el, failureName, long, number, reasonName, table } from './elements.js';
import { bytes, figure, plural, sum, time } from './figures.js';
import { growth } from './rates.js';

function child(row) {
  const busy = row.state === 'Busy' || row.state === 'Finishing';
  return { key: String(row.pid),
    cells: [number(row.pid), el(busy ? 'td.busy-text' : 'td', row.state), number(time(row.since)),
      number(figure(row.requests)), number(bytes(row.memory)), long(busy ? `${row.method} ${row.uri}` : '')] };
}

export function pool(p) {
  const most = Math.max(p.max_children, p.active_processes + p.idle_processes, 1);
  const idle = p.children.filter((row) => row.state === 'Idle');
  const others = p.children.filter((row) => row.state !== 'Idle').sort((a, b) => b.since - a.since);
  const columns = ['#process', 'state', '#for', '#requests', '#memory', 'request'];
  const named = (caption, rows) => table(caption, columns, rows.map(child));
  const php = p.php && `PHP ${p.php}, opcache ${p.opcache ? 'on' : 'OFF'}`;
  const bar = el('div.bar', { 'aria-hidden': 'true' }, el('span.busy'), el('span.idle'));
  bar.children[0].style.width = `${(100 * p.active_processes) / most}%`;
  bar.children[1].style.width = `${(100 * p.idle_processes) / most}%`;
  return el('section',
    el('h2', `Pool ${p.pool} `, el('small', el(/^(Ready|Asleep)$/.test(p.state) ? 'span.good' : 'span.bad', p.state),
      [p.process_manager, php, `up ${time(p.uptime)}`].filter(Boolean).map((text) => `, ${text}`).join(''))),
    el('div', `${p.active_processes} busy, ${p.idle_processes} idle`, p.max_children > 0 && `, at most ${p.max_children}. `,
      p.max_children > 0 && p.max_children_reached > 0 && `All processes were busy when ${plural(p.max_children_reached, 'request')} arrived. `,
      `${plural(p.queue, 'request')} ${p.queue === 1 ? 'waits' : 'wait'} (at most ${figure(p.max_queue)} so far, room for ${figure(p.queue_size)}).`),
    bar,
    others.length > 0 && named(`Processes of ${p.pool}`, others),
    idle.length > 0 && el('details', el('summary', plural(idle.length, 'idle process', 'idle processes')), named(`Idle processes of ${p.pool}`, idle)));
}

export function slow(s) {
  const rows = s.pools.flatMap((p) => (p.slow || []).map((row) => ({ ...row, pool: p.pool })));
  rows.sort((a, b) => b.at - a.at);
  return el('section', el('h2', 'Slow requests ', el('small', 'longer than request_slowlog_timeout, with the PHP stack')),
    rows.length === 0 ? el('p.faint', 'none') : rows.map((row) => el('details', { 'data-key': `${row.at} ${row.uri}` },
      el('summary', el('span.busy-text', time(row.seconds)), ` ${row.method} ${row.uri} `,
        el('span.faint', `${new Date(row.at * 1000).toLocaleTimeString()}, pool ${row.pool}`)),
      el('pre', `${row.script}\n${row.stack}`))));
}

export function failures(s) {
  const count = (list, name) => (list.find((f) => f[0] === name) || [name, 0])[1];
  const poolCount = (x, name) => sum(x.pools.map((p) => count(p.failures, name)));
  const inPools = s.pools.flatMap((p) => p.failures.filter((f) => f[1] > 0).map((f) => f[0]));
  const ofRequests = s.failures.filter((f) => f[1] > 0).map((f) => f[0]);
  const rows = [...new Set([...ofRequests, ...inPools])].map((name) => {
    // A pool also counts its failed requests. Its other events are not failures of requests.
    const value = ofRequests.includes(name) ? (x) => count(x.failures, name) : (x) => poolCount(x, name);
    const pools = s.pools.filter((p) => count(p.failures, name) > 0).map((p) => p.pool).join(', ');
    return { name, pools, total: value(s), recent: growth(value, 60) };
  });
  rows.sort((a, b) => b.recent - a.recent || b.total - a.total);
  return el('section.half', el('h2', 'Failures by name ', el('small', 'since the start')),
    table('Failures by name', ['name', 'pool', '#total', '#last minute'],
      rows.map((row) => ({ key: row.name,
        cells: [el('td.explained', failureName(row.name)), el('td', row.pools), number(figure(row.total)), number(figure(row.recent))] }))),
    rows.length > 0 && el('p.faint', 'The error log has the details of each failure, with the number of its request.'));
}

function cacheSite(site) {
  return el('div', { 'data-key': site.site },
    el('h3', site.site),
    el('p', `${(site.hit_permille / 10).toFixed(1)} % of the requests since the start came from the cache: ${plural(site.hits, 'fresh page')}, ${plural(site.stale, 'expired page')}. `,
      `${plural(site.stored, 'page')} ${site.stored === 1 ? 'was' : 'were'} stored; ${plural(site.purges, 'purge or write', 'purges and writes')} invalidated pages.`),
    table(`Why not from the cache: ${site.site}`, ['why not from the cache', '#requests'],
      site.passes.filter((p) => p[1] > 0).sort((a, b) => b[1] - a[1]).map(([name, n]) => ({ key: name,
        cells: [el('td.explained', reasonName(name)), number(figure(n))] }))),
    el('p.faint', el('code', 'howdah cache explain URL'), ' shows why a page is not stored, and names the line of the script.'));
}

export function cache(s) {
  if (!s.cache) return null;
  return el('section.half', el('h2', 'Page cache ', el('small', `${plural(s.cache.entries, 'page')}, ${bytes(s.cache.bytes)} of ${bytes(s.cache.capacity)}`)),
    s.cache.disk && el(s.cache.disk.condition ? 'p.bad' : 'p.faint', s.cache.disk.condition
      ? ['No pages are written to disk: ', failureName(s.cache.disk.condition)]
      : `On disk: ${plural(s.cache.disk.entries, 'page')}, ${bytes(s.cache.disk.bytes)} of ${bytes(s.cache.disk.capacity)}`),
    s.cache.sites.map(cacheSite));
}

export function upstreams(s) {
  const rows = s.pools.flatMap((p) => (p.backends || []).map((b) => [p.pool, b])).concat((s.proxied || []).map((b) => ['proxy', b]));
  if (rows.length === 0) return null;
  return el('section.half', el('h2', 'Upstream servers'),
    table('Upstream servers', ['used by', 'address', 'state', '#busy', '#requests', '#failures'],
      rows.map(([of, b]) => [el('td', of), long(b.address), el(b.state === 'Up' ? 'td.good' : 'td.bad', b.state, b.why && `: ${b.why}`),
        number(b.busy), number(figure(b.requests)), number(figure(b.failures))])));
}

export function jobs(s) {
  if ((s.jobs || []).length === 0) return null;
  const now = Date.now() / 1000;
  const ran = (job) => [
    job.last && `${job.last.how}, ${time(Math.max(0, now - job.last.ended))} ago`,
    job.fleet && (job.fleet.ended ? `on ${job.fleet.member}: ${job.fleet.how}, ${time(Math.max(0, now - job.fleet.ended))} ago` : `runs on ${job.fleet.member}`),
  ].filter(Boolean).join('; ');
  const failed = (job) => job.failures.map(([name, n]) => el('div', failureName(name), plural(n, 'time')));
  return el('section', el('h2', 'Jobs'),
    table('Jobs', ['job', 'state', '#processes', '#memory', '#starts', 'next', 'last', 'failures'],
      s.jobs.map((j) => [el('td', j.job), el(j.state === 'stopped' ? 'td.bad' : 'td', j.state),
        number(`${j.processes.length} of ${j.wanted}`), number(bytes(sum(j.processes.map((p) => p.memory)))), number(figure(j.starts)),
        el('td', j.next ? `in ${time(Math.max(0, j.next - now))}` : ''), el('td', ran(j)),
        el(j.failures.length > 0 ? 'td.bad' : 'td', failed(j))])));
}

export function certificates(s) {
  if (s.certificates.length === 0 && s.failing_orders.length === 0) return null;
  const failing = s.failing_orders.map((o) => [long(o.name), el('td.bad', failureName(o.failure), plural(o.attempts, 'attempt'))]);
  const rows = s.certificates.map((c) => [long(c.names.join(', ')), c.seconds_left > 0
    ? el(c.seconds_left < 7 * 86400 ? 'td.bad' : 'td', `${time(c.seconds_left)} left`)
    : el('td.bad', `EXPIRED ${time(-c.seconds_left)} ago`)]);
  return el('section.half', el('h2', 'Certificates'), table('Certificates', ['names', 'valid'], failing.concat(rows)));
}

export function limits(s) {
  const bounded = [
    ['connections of clients', s.connections.open, s.connections.limit, figure],
    ['memory for requests and responses', s.memory.used, s.memory.limit, bytes],
    ['uploads and downloads stored on disk', s.spilled.used, s.spilled.limit, bytes],
  ];
  return el('section.half', el('h2', 'Limits'),
    table('Limits of the server', ['what', '#used', '#limit', 'share'], bounded.map(([name, used, of, form]) => [el('td', name), number(form(used)), number(form(of)),
      el('td.meter', el('meter', { value: used, max: of, high: 0.9 * of, 'aria-label': name }))])),
    s.limits.rows.length > 0 && table('Client limits', ['site', 'line', 'limit', '#refused', '#waiting'],
      s.limits.rows.map((r) => [el('td', r.site), number(r.line), long(r.limit), number(figure(r.refused)), number(r.waiting)])));
}
