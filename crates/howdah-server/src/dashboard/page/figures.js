// Figures, times and sizes as people read them.

export function figure(n) {
  if (n >= 1e6) return (n / 1e6).toFixed(1) + ' M';
  if (n >= 1e4) return (n / 1e3).toFixed(1) + ' k';
  return n >= 100 || Number.isInteger(n) ? String(Math.round(n)) : n.toFixed(1);
}

/** A number with its noun: `1 reload`, `2 reloads`. The caller passes an irregular plural. */
export const plural = (n, one, many = one + 's') => `${figure(n)} ${n === 1 ? one : many}`;

export function time(seconds) {
  if (seconds === null) return '–';
  if (seconds > 0 && seconds < 0.001) return (seconds * 1e6).toFixed(0) + ' µs';
  if (seconds > 0 && seconds < 1) return (seconds * 1e3).toFixed(seconds < 0.01 ? 1 : 0) + ' ms';
  if (seconds < 60) return (Number.isInteger(seconds) ? seconds : seconds.toFixed(1)) + ' s';
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds / 60) % 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds / 3600) % 24)} h`;
}

export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit += 1; }
  return `${n >= 10 || unit === 0 ? n.toFixed(0) : n.toFixed(1)} ${units[unit]}`;
}

export const percent = (part, whole) => (whole > 0 ? ((100 * part) / whole).toFixed(1) + ' %' : '–');

export const sum = (values) => values.reduce((all, value) => all + value, 0);

/** The names of the statuses that sites send most (RFC 9110 §15; 499 is nginx' own). */
const STATUSES = {
  200: 'OK', 201: 'created', 204: 'no content', 206: 'part of a file', 301: 'moved permanently', 302: 'found elsewhere',
  303: 'see other', 304: 'not modified', 307: 'temporary redirect', 308: 'permanent redirect', 400: 'bad request',
  401: 'password needed', 403: 'forbidden', 404: 'not found', 405: 'method not allowed', 408: 'client too slow',
  413: 'upload too large', 421: 'wrong host', 429: 'too many requests', 431: 'header too large',
  499: 'the client disconnected first', 500: 'application error', 502: 'PHP or the upstream failed',
  503: 'overloaded or down', 504: 'took too long', 508: 'proxy loop',
};

export const statusName = (code) => STATUSES[code] || '';
