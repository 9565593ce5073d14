// The first part of the page: what is happening now, and how it was in the last hour.
import { el } from './elements.js';
import { bytes, figure, percent, plural, sum, time } from './figures.js';
import { graph } from './graph.js';
import { answered, failed, fromCache, isLive, quantile, rate } from './rates.js';

/** A column of the samples as points, followed by the current value if the page already knows it. */
function points(s, value, now) {
  const all = s.history.at.map((at, i) => [at, value(s.history, i)]);
  const newest = all.length > 0 ? all[all.length - 1][0] : Math.round(Date.now() / 1000);
  if (now !== undefined && (isLive() || all.length === 0)) all.push([newest + 1, now]);
  return all;
}

const perSecond = (column) => (h, i) => h[column][i] / h.seconds[i];

function tile(title, value, unit, below, made) {
  return el('section.tile', el('h2', title), el('div.figure', value, ' ', el('small', unit)), el('p', below), made);
}

function requests(s) {
  const now = rate(answered);
  const lines = [{ name: 'requests', kind: 'main', points: points(s, perSecond('requests'), now) }];
  return tile('Requests', figure(now), 'per second', `${plural(s.requests_active, 'request')} in progress`,
    graph('Requests per second', lines, figure));
}

function errors(s) {
  const now = rate(failed, 10);
  const lines = [{ name: 'errors', kind: 'bad', points: points(s, perSecond('errors'), now) }];
  const hour = sum(s.history.errors);
  return tile('Errors', figure(now), 'per second', `${figure(hour)} in the last hour, status 500 to 599`,
    graph('Errors per second', lines, figure));
}

function times(s) {
  const lines = [
    { name: '95 % of the requests are faster', kind: 'busy', points: points(s, (h, i) => h.p95[i], quantile(0.95)) },
    { name: 'half of them are faster', kind: 'main', points: points(s, (h, i) => h.p50[i], quantile(0.5)) },
  ];
  const half = quantile(0.5);
  return tile('Response time', time(half), half === null ? '' : 'half of the requests are faster',
    half === null ? 'no requests in the last seconds' : `95 % are faster than ${time(quantile(0.95))}, 99 % than ${time(quantile(0.99))}`,
    graph('Response time', lines, time));
}

function queue(s) {
  const now = sum(s.pools.map((pool) => pool.queue));
  const lines = [{ name: 'waiting', kind: 'main', points: points(s, (h, i) => h.queue[i], now) }];
  const rooms = s.pools.map((p) => `${p.pool}: room for ${plural(p.queue_size, 'request')}`).join(', ');
  return tile('Waiting for PHP', figure(now), now === 1 ? 'request' : 'requests', rooms || 'no pools',
    graph('Requests that wait for PHP', lines, figure));
}

function connections(s) {
  const now = s.connections.open;
  const lines = [{ name: 'open', kind: 'main', points: points(s, (h, i) => h.connections[i], now) }];
  return tile('Connections', figure(now), `of ${figure(s.connections.limit)}`,
    `${figure(rate((x) => x.connections.accepted))} new connections per second`, graph('Open connections', lines, figure));
}

function cache(s) {
  if (!s.cache) {
    const now = rate((x) => x.bytes_sent);
    const lines = [{ name: 'sent', kind: 'main', points: points(s, perSecond('bytes'), now) }];
    return tile('Data sent', bytes(now), 'per second', `${bytes(s.bytes_sent)} since the start`, graph('Data sent per second', lines, bytes));
  }
  const share = (part, whole) => (whole > 0 ? Math.min(100, (100 * part) / whole) : null);
  const [hits, all] = [rate(fromCache, 10), rate(answered, 10)];
  const lines = [{ name: 'hits', kind: 'main', points: points(s, (h, i) => share(h.cache_hits[i], h.requests[i]), share(hits, all)) }];
  return tile('From the page cache', percent(hits, all), 'of the requests',
    `${plural(s.cache.entries, 'page')} stored, ${bytes(s.cache.bytes)}`, graph('Requests from the page cache', lines, (n) => `${figure(n)} %`, 100));
}

export const tiles = (s) => [requests, errors, times, queue, connections, cache].map((make) => make(s));
