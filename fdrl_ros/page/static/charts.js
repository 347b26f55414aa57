// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
/** Charts over time: strips of the newest seconds, and lines over rounds with direct labels. */

import { isNumber, make, number, percent, write } from './dom.js';
import { colour, line, onTheme } from './theme.js';
import uPlot from './vendor/uPlot.esm.js';

export const SPAN = 30; // s that a strip shows
const MOST = 4000; // points that a strip keeps
// Patterns of lines in px, so that two of a colour differ, and all do where colours cannot be told.
const DASHES = [[], [9, 4], [2, 3], [9, 3, 2, 3]];
const FONT = '12px system-ui, sans-serif';

/** Return the axis of a chart in the colours of the theme. */
function axis(more = {}) {
  return {
    stroke: colour('--muted'),
    grid: { stroke: colour('--grid'), width: 1 },
    ticks: { show: false },
    font: FONT,
    ...more,
  };
}

/** Return the pattern of a line: the first, which is of all, and every fourth after are whole. */
function dash(index) {
  return index ? DASHES[(index - 1) % DASHES.length] : [];
}

/** Draw again in other colours and sizes: uPlot takes colours only when it is made. */
class Chart {
  constructor(height) {
    this.height = height;
    this.box = make('div.chart');
    this.plot = null;
    this.data = [[]];
    onTheme(() => this.rebuild());
    new ResizeObserver(() => this.resize()).observe(this.box);
  }

  resize() {
    const width = this.box.clientWidth;
    if (!width) return;
    if (!this.plot) this.rebuild();
    else if (this.plot.width !== width) this.plot.setSize({ width, height: this.height });
  }

  rebuild() {
    const width = this.box.clientWidth;
    if (!width) return;
    this.plot?.destroy();
    this.plot = new uPlot({ width, height: this.height, ...this.options() }, this.data, this.box);
  }

  set(data) {
    this.data = data;
    this.plot?.setData(data);
  }
}

export class Strip extends Chart {
  /**
   * A value over the newest seconds, with its number beside the name.
   *
   * @param title name of the value.
   * @param unit as written behind numbers.
   * @param settings {index: colour, digits, least: [low, high] that the axis shows at least,
   *   limit: whether a limit is drawn, height: px}.
   */
  constructor(title, unit, { index = 0, digits = 0, least = [0, 1], limit = false, height = 84 } = {}) {
    super(height);
    Object.assign(this, { title, unit, index, digits, least, limited: limit });
    this.value = make('span.value', {}, '\u2013');
    this.side = make('span.side');
    this.element = make('figure.strip', {},
      make('figcaption', {}, make('span.name', {}, title), this.side, this.value), this.box);
    this.times = [];
    this.values = [];
    this.limits = [];
    this.data = [[], [], []];
  }

  options() {
    const low = () => this.least[0];
    return {
      cursor: { show: false },
      legend: { show: false },
      padding: [6, 18, 0, 0],
      scales: {
        x: { time: false, range: () => [-SPAN, 0] },
        y: { range: (_, min, max) => this.range(min ?? low(), max ?? low()) },
      },
      axes: [
        axis({ size: 20, values: (_, ticks) => ticks.map((each) => (each === 0 ? 'now' : `${each}\u00a0s`.replace('-', '\u2212'))) }),
        axis({ size: 40, space: 20 }),
      ],
      series: [
        {},
        { stroke: line(this.index), width: 2, points: { show: false }, spanGaps: false },
        { stroke: colour('--limit'), width: 2, dash: [6, 4], points: { show: false } },
      ],
    };
  }

  range(min, max) {
    const [low, high] = [Math.min(min, this.least[0]), Math.max(max, this.least[1])];
    return [low, high + 0.05 * (high - low)];
  }

  /** Add the value at a time in s, later than the last. */
  add(time, value, limit = null) {
    if (!(time <= this.times.at(-1))) {
      this.times.push(time);
      this.values.push(isNumber(value) ? value : null);
      this.limits.push(isNumber(limit) ? limit : null);
    }
    let old = 0;
    while (this.times[old] < time - SPAN - 1) old += 1;
    old = Math.max(old, this.times.length - MOST);
    if (old > 0) for (const each of [this.times, this.values, this.limits]) each.splice(0, old);
  }

  clear() {
    this.times = [];
    this.values = [];
    this.limits = [];
  }

  /** Draw up to the newest value. */
  draw() {
    const now = this.times.at(-1) ?? 0;
    this.set([this.times.map((each) => each - now), this.values, this.limits]);
    const [value, limit] = [this.values.at(-1), this.limits.at(-1)];
    write(this.value, number(value, this.digits, this.unit));
    if (!this.limited) return;
    write(this.side, isNumber(limit) ? `limit ${number(limit, this.digits, this.unit)}` : '');
    this.value.classList.toggle('over', isNumber(value) && isNumber(limit) && value >= limit);
  }
}

export class Lines extends Chart {
  /** Shares in [0, 1] over rounds, each line with its name at its end. */
  constructor(height = 260) {
    super(height);
    this.reading = make('output.reading', { 'aria-live': 'polite' });
    this.element = make('div.lines', {}, this.box, this.reading);
    for (const [name, value] of [['tabindex', 0], ['role', 'group'], ['aria-label', 'Success over rounds; arrow keys choose a round']]) {
      this.box.setAttribute(name, value);
    }
    this.box.addEventListener('focus', () => {
      if (this.box.matches(':focus-visible')) this.point(this.data[0].length - 1);
    });
    this.box.addEventListener('blur', () => this.point(null));
    this.box.addEventListener('keydown', (event) => this.move(event));
    this.names = [];
    this.data = [[]];
    this.at = null; // number of the round whose values are told
    this.tell();
  }

  rebuild() {
    super.rebuild();
    this.at = null;
    this.tell();
  }

  /** Tell the values of another round. */
  move(event) {
    const last = this.data[0].length - 1;
    const to = { ArrowLeft: (this.at ?? last) - 1, ArrowRight: (this.at ?? -1) + 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.point(Math.max(0, Math.min(last, to)));
  }

  /** Put the cursor on a round, as the mouse does; null takes it away. */
  point(index) {
    if (!this.plot) return;
    const left = index === null || index < 0 ? -10 : this.plot.valToPos(this.data[0][index], 'x');
    this.plot.setCursor({ left, top: left < 0 ? -10 : 1 });
  }

  /** Write the values of the round at the cursor below the lines. */
  tell() {
    const round = this.data[0][this.at];
    const values = this.names.map((name, index) => [name, this.data[index + 1]?.[this.at]]);
    const known = values.filter(([, value]) => isNumber(value)).map(([name, value]) => `${name} ${percent(value, 1)}`);
    write(this.reading, isNumber(round) ? `Round ${round}: ${known.join(', ') || 'nothing known'}` : 'Point at a round, or use the arrow keys, for its values.');
  }

  options() {
    return {
      legend: { show: false },
      cursor: { y: false, points: { size: 7 } },
      padding: [10, 158, 0, 0],
      scales: { x: { time: false, range: (_, min, max) => [min, Math.max(max, min + 1)] }, y: { range: [0, 1] } },
      axes: [
        axis({ label: 'round', labelSize: 18, size: 26, labelFont: FONT, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500] }),
        axis({ size: 52, values: (_, ticks) => ticks.map((each) => `${Math.round(100 * each)}\u00a0%`) }),
      ],
      series: [{}, ...this.names.map((name, index) => ({
        label: name,
        stroke: index ? line(index - 1) : colour('--ink'),
        width: index ? 2 : 3,
        dash: dash(index),
        spanGaps: true,
        points: { show: true, size: 5 },
      }))],
      hooks: {
        draw: [(plot) => this.label(plot)],
        setCursor: [(plot) => {
          this.at = plot.cursor.idx ?? null;
          this.tell();
        }],
      },
    };
  }

  /** Write the names at the ends of the lines, moved apart where lines end at one place. */
  label(plot) {
    const ratio = window.devicePixelRatio || 1;
    const ends = [];
    this.names.forEach((name, index) => {
      const values = this.data[index + 1];
      let last = values.length - 1;
      while (last >= 0 && !isNumber(values[last])) last -= 1;
      if (last < 0) return;
      const y = plot.valToPos(values[last], 'y', true);
      ends.push({ name, value: values[last], index, y, wanted: y });
    });
    ends.sort((a, b) => a.y - b.y);
    const apart = 15 * ratio;
    for (let i = 1; i < ends.length; i += 1) ends[i].y = Math.max(ends[i].y, ends[i - 1].y + apart);
    const bottom = plot.bbox.top + plot.bbox.height + 6 * ratio;
    for (let i = ends.length - 1, most = bottom; i >= 0; i -= 1, most -= apart) {
      ends[i].y = Math.min(ends[i].y, most);
    }
    const { ctx } = plot;
    ctx.save();
    ctx.font = `${12 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = 'middle';
    ctx.textAlign = 'left';
    const right = plot.bbox.left + plot.bbox.width;
    for (const { name, value, index, y, wanted } of ends) {
      ctx.fillStyle = ctx.strokeStyle = index ? line(index - 1) : colour('--ink');
      ctx.lineWidth = ratio;
      ctx.beginPath();
      ctx.moveTo(right + 2 * ratio, wanted);
      ctx.lineTo(right + 10 * ratio, y);
      ctx.stroke();
      // A piece of the line as a key: its pattern tells lines of one colour apart.
      ctx.lineWidth = (index ? 2 : 3) * ratio;
      ctx.setLineDash(dash(index).map((each) => each * ratio));
      ctx.beginPath();
      ctx.moveTo(right + 12 * ratio, y);
      ctx.lineTo(right + 38 * ratio, y);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.fillText(`${name} ${Math.round(100 * value)}\u00a0%`, right + 42 * ratio, y);
    }
    ctx.restore();
  }

  /** Show lines: x values, and {name: values}; the first name is the main one. */
  show(rounds, byName) {
    const names = Object.keys(byName);
    const same = JSON.stringify(names) === JSON.stringify(this.names);
    this.names = names;
    this.data = [rounds, ...names.map((each) => byName[each])];
    if (same && this.plot) this.set(this.data);
    else this.rebuild();
  }
}
