// Rates of the last seconds, from the snapshots that this page has received.
import { sum } from './figures.js';

const KEPT = 61;
const LATENCY_SPAN = 10;
let snapshots = [];

/** Forgets all snapshots. */
export const begin = () => { snapshots = []; };

/** Adds a snapshot. */
export function remember(status) {
  const last = snapshots[snapshots.length - 1];
  // A new process counts from zero, so earlier snapshots cannot be compared with its own.
  if (last && (last.status.pid !== status.pid || last.status.requests > status.requests)) begin();
  snapshots.push({ at: performance.now(), status });
  if (snapshots.length > KEPT) snapshots.shift();
}

/** The snapshot that is `span` snapshots older than the last one, or the oldest one. */
const before = (span) => snapshots[Math.max(0, snapshots.length - 1 - span)];

/** How fast `value` of a snapshot grows, per second, over the last `span` snapshots. */
export function rate(value, span = 3) {
  const now = snapshots[snapshots.length - 1];
  const then = before(span);
  const seconds = (now.at - then.at) / 1000;
  return seconds > 0 ? Math.max(0, value(now.status) - value(then.status)) / seconds : 0;
}

/** How much `value` of a snapshot has grown over the last `span` snapshots, or since the oldest one. */
export const growth = (value, span) => Math.max(0, value(snapshots[snapshots.length - 1].status) - value(before(span).status));

/** Whether there are at least two snapshots to compare. */
export const isLive = () => snapshots.length > 1;

export const answered = (s) => sum(s.statuses.map((pair) => pair[1]));
export const failed = (s) => sum(s.statuses.filter(([code]) => code >= 500).map((pair) => pair[1]));
export const fromCache = (s) => (s.cache ? sum(s.cache.sites.map((site) => site.hits + site.stale)) : 0);

/** The time in seconds that this share of the requests of the last seconds did not exceed; `null` without requests. */
export function quantile(share) {
  const now = snapshots[snapshots.length - 1].status.durations;
  const then = before(LATENCY_SPAN).status.durations;
  const counts = now.map(([bound, n], i) => [bound, Math.max(0, n - then[i][1])]);
  const wanted = share * sum(counts.map((pair) => pair[1]));
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
