// Graphs of the last hour, with an axis of time and one of values.
import { el } from './elements.js';

const WIDTH = 300;
const HEIGHT = 60;
/** The spans of time that a graph can show, in minutes: the shortest one that has all samples. */
const SPANS = [5, 15, 30, 60];

/** The next round number: 1, 2 or 5 times a power of ten. */
function roundUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

/**
 * A graph of `[at, value]` points, whose times are in seconds; a value of `null` leaves a gap. `lines` are
 * `{ name, kind, points }`; `form` writes a value; `highest` sets the end of the axis.
 */
export function graph(title, lines, form, highest) {
  const points = lines.flatMap((line) => line.points).filter((point) => point[1] !== null);
  const times = lines.flatMap((line) => line.points.map((point) => point[0]));
  const end = Math.max(...times);
  const age = (end - Math.min(...times)) / 60;
  const span = SPANS.find((minutes) => age <= minutes) || SPANS[SPANS.length - 1];
  const peak = Math.max(...points.map((point) => point[1]), 0);
  const top = highest || roundUp(peak);
  const x = (at) => WIDTH * (1 - (end - at) / 60 / span);
  const y = (value) => HEIGHT * (1 - Math.min(value / top, 1));
  const draw = (line) => {
    // A new line begins after a gap.
    const parts = [[]];
    for (const [at, value] of line.points) {
      if (value === null) parts.push([]);
      else if (at >= end - span * 60) parts[parts.length - 1].push(`${x(at).toFixed(1)},${y(value).toFixed(1)}`);
    }
    // A single point would be invisible as a line.
    return parts.filter((part) => part.length > 0).map((part) => el(`polyline.${line.kind}`,
      { points: (part.length === 1 ? [part[0], part[0]] : part).join(' ') }));
  };
  const guide = (at) => el('line', { x1: 0, x2: WIDTH, y1: y(at), y2: y(at) });
  return el('figure.graph', { role: 'img', 'aria-label': `${title} in the last ${span} minutes, at most ${form(peak)}` },
    el('div.plot', el('span.most', form(top)), el('span.least', form(0)),
      el('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
        guide(0), guide(top / 2), guide(top), lines.map(draw))),
    el('div.axis', { 'aria-hidden': 'true' }, el('span', `−${span} min`), el('span', `−${span / 2} min`), el('span', 'now')),
    lines.length > 1 && el('p.legend', lines.map((line) => el(`span.${line.kind}`, line.name))));
}
