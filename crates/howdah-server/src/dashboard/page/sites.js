// What was requested of each site in the last hour.
import { el, long, number, table } from './elements.js';
import { figure, percent, plural, statusName, sum, time } from './figures.js';

/** The number of pages in each list. */
const SHOWN_PAGES = 8;

const average = (counted) => (counted.requests > 0 ? counted.seconds / counted.requests : null);

function pages(caption, all, cached) {
  const columns = ['page', '#requests', '#average', '#slowest', '#errors'].concat(cached ? ['#cached'] : []);
  return table(caption, columns, all.slice(0, SHOWN_PAGES).map((page) => ({
    key: page.path,
    cells: [long(page.path), number(figure(page.requests)), number(time(average(page))), number(time(page.longest)),
      el(page.errors > 0 ? 'td.number.bad' : 'td.number', figure(page.errors)),
      cached && number(percent(page.cache_hits, page.requests))].filter(Boolean),
  })));
}

function site(of, only, cached) {
  const slowest = [...of.pages].sort((a, b) => average(b) - average(a));
  const words = [plural(of.requests, 'request'), plural(of.errors, 'error'), cached && `${percent(of.cache_hits, of.requests)} from the cache`,
    of.requests > 0 && `${time(average(of))} on average`].filter(Boolean).join(', ');
  return el('details.site', { 'data-key': of.site }, only && { open: '' },
    el('summary', el('b', of.site), ` ${words}`),
    of.requests > 0 && el('div.columns',
      el('div', el('h3', 'Most frequent pages'), pages(`Most frequent pages of ${of.site}`, of.pages, cached)),
      el('div', el('h3', 'Slowest pages'), pages(`Slowest pages of ${of.site}`, slowest, cached)),
      el('div', el('h3', 'Responses'), table(`Responses of ${of.site}`, ['status', 'meaning', '#responses', '#share'],
        of.statuses.map(([code, n]) => ({ key: String(code), cells: [el(code >= 500 ? 'td.bad' : 'td', code || 'other'), el('td', statusName(code)),
          number(figure(n)), number(percent(n, of.requests))] }))))));
}

export function sites(s) {
  const all = [...s.sites].sort((a, b) => b.requests - a.requests);
  if (all.length === 0) return null;
  const minutes = Math.max(1, Math.round(Math.max(...all.map((of) => of.period)) / 60));
  const cached = new Set(s.cache ? s.cache.sites.map((of) => of.site) : []);
  const total = sum(all.map((of) => of.requests));
  return el('section', el('h2', 'Sites ', el('small', `in the last ${minutes === 1 ? 'minute' : `${minutes} minutes`}, ${plural(total, 'request')}`)),
    all.map((of, i) => site(of, i === 0, cached.has(of.site))),
    el('p.faint', 'In a page’s path, * is a number or another part that differs from visitor to visitor. Queries are not counted. ',
      el('code', 'howdah explain URL'), ' shows how a request is handled.'));
}
