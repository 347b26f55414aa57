// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
/** Which policy acted in the newest minute, where the robot held, vetoes, and the value with its uncertainty. */

import { isNumber, list, make, number } from './dom.js';
import { colour, line, onTheme } from './theme.js';
import { ACTING, policyName } from './words.js';

const SPAN = 60; // s
const MOST = 4000; // values kept
const HEIGHT = 176; // px
const LEFT = 44;
const RIGHT = 8;
const APART = 10; // px between two labels
const LANE = { top: 18, bottom: 56 };
const VALUE = { top: 72, bottom: 152 };

/** Gives each policy its colour, the same on the whole page. */
class Colours {
  constructor() {
    this.names = ['global', 'home'];
  }

  index(name) {
    if (!this.names.includes(name)) {
      if (this.names.length > 60) this.names.length = 2; // names come from outside: keep no more
      this.names.push(name);
    }
    return this.names.indexOf(name);
  }

  of(name) {
    return name === 'hold' || !name ? colour('--hold') : line(this.index(name));
  }
}

export const policyColours = new Colours();

function holds(policy, reason) {
  return policy === 'hold' || !ACTING.has(reason);
}

function same(one, other) {
  return one?.policy === other?.policy && one?.reason === other?.reason && one?.veto === other?.veto;
}

export class Timeline {
  constructor() {
    this.canvas = make('canvas', { 'role': 'img', 'aria-label': 'Policies of the newest minute' });
    this.element = make('div.timeline', {}, this.canvas);
    this.values = [];
    this.changes = [];
    this.seen = [];
    this.stamp = 0;
    this.valuing = false; // whether the robot still values policies
    onTheme(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  clear() {
    this.values = [];
    this.seen = [];
    this.changes = [];
  }

  /** Add a state of the room. */
  add(robot, time) {
    const choice = robot.choice;
    this.stamp = time;
    const last = this.values.at(-1);
    if (choice && !(last?.time >= time)) {
      this.values.push({ time, value: choice.value, spread: choice.uncertainty });
      const now = { at: time, policy: choice.policy, reason: choice.reason, veto: choice.veto };
      if (!same(now, this.seen.at(-1))) this.seen.push(now);
    }
    while (this.values.length > MOST || this.values[0]?.time < time - SPAN - 1) this.values.shift();
    while (this.seen.length > MOST || this.seen[1]?.at < time - SPAN) this.seen.shift();
    // The server saw every change of late; what was before, this page remembers.
    const told = list(robot.timeline).filter((each) => isNumber(each?.[0]))
      .map(([at, policy, reason, veto]) => ({ at, policy, reason, veto }));
    const older = told.length ? this.seen.filter((each) => each.at < told[0].at) : this.seen;
    this.changes = [...older, ...told];
  }

  draw() {
    const width = this.element.clientWidth;
    if (!width) return;
    const ratio = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = HEIGHT * ratio;
    }
    const context = this.canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, HEIGHT);
    context.font = '12px system-ui, sans-serif';
    context.textBaseline = 'middle';
    this.context = context;
    this.width = width;
    this.grid();
    this.lane();
    this.band();
  }

  x(seconds) {
    return LEFT + (this.width - LEFT - RIGHT) * (1 + seconds / SPAN);
  }

  /** Return the seconds between two marks of the axis, so that their labels stand apart. */
  between() {
    const apart = this.context.measureText(`\u2212${SPAN}\u00a0s`).width + APART;
    return [10, 20, 30].find((each) => this.x(0) - this.x(-each) >= apart) ?? SPAN;
  }

  grid() {
    const { context } = this;
    context.strokeStyle = colour('--grid');
    context.fillStyle = colour('--muted');
    context.lineWidth = 1;
    context.textAlign = 'center';
    for (let back = 0; back <= SPAN; back += this.between()) {
      const x = Math.round(this.x(-back)) + 0.5;
      context.beginPath();
      context.moveTo(x, LANE.top);
      context.lineTo(x, VALUE.bottom);
      context.stroke();
      if (back === 0) context.textAlign = 'right';
      context.fillText(back ? `\u2212${back}\u00a0s` : 'now', back ? x : x + RIGHT, HEIGHT - 10);
      context.textAlign = 'center';
    }
  }

  lane() {
    const runs = [];
    this.changes.forEach(({ at, policy, reason, veto }, index) => {
      const from = Math.max(at - this.stamp, -SPAN);
      const until = Math.min((this.changes[index + 1]?.at ?? this.stamp) - this.stamp, 0);
      if (until < -SPAN || until < from) return;
      const held = holds(policy, reason);
      const run = runs.at(-1);
      if (run && run.held === held && (held || run.policy === policy)) run.until = until;
      else runs.push({ held, policy, from, until, longest: -1 });
      const own = runs.at(-1);
      if (until - from > own.longest) Object.assign(own, { longest: until - from, reason });
      if (veto && at - this.stamp >= -SPAN) own.vetoes = [...(own.vetoes ?? []), from];
    });
    for (const run of runs) {
      this.block(run);
      for (const at of run.vetoes ?? []) this.mark(this.x(at));
    }
  }

  /** Draw what was the same for a while, with the reason that held longest. */
  block({ held, policy, reason, from, until }) {
    const { context } = this;
    const left = this.x(from);
    const right = Math.max(this.x(until), left + 1);
    context.save();
    context.beginPath();
    context.rect(left, LANE.top, Math.max(right - left - 1, 1), LANE.bottom - LANE.top);
    context.clip();
    context.fillStyle = held ? colour('--hold') : policyColours.of(policy);
    context.fillRect(left, LANE.top, right - left, LANE.bottom - LANE.top);
    if (held) this.hatch(left, right);
    const why = String(reason).replaceAll('_', ' ');
    const names = reason === 'surgeon' ? ['surgeon'] : held ? [`hold: ${why}`, 'hold'] : [policyName(policy), policyName(policy).replace('hospital', 'hosp.')];
    context.font = '600 12px system-ui, sans-serif';
    context.textAlign = 'left';
    const name = names.find((each) => context.measureText(each).width <= right - left - 7);
    if (name) {
      if (held) {
        context.fillStyle = colour('--hold');
        context.fillRect(left, LANE.top + 10, context.measureText(name).width + 10, LANE.bottom - LANE.top - 20);
      }
      context.fillStyle = held ? colour('--ink') : colour('--on-line');
      context.fillText(name, left + 5, (LANE.top + LANE.bottom) / 2);
    }
    context.restore();
  }

  hatch(left, right) {
    const { context } = this;
    context.strokeStyle = colour('--hatch');
    context.lineWidth = 2;
    context.beginPath();
    for (let x = left - 40 - (left % 8); x < right; x += 8) {
      context.moveTo(x, LANE.bottom);
      context.lineTo(x + 40, LANE.top - 2);
    }
    context.stroke();
  }

  mark(x) {
    const { context } = this;
    context.fillStyle = colour('--veto');
    context.beginPath();
    context.moveTo(x - 6, 3);
    context.lineTo(x + 6, 3);
    context.lineTo(x, 15);
    context.fill();
  }

  band() {
    const { context } = this;
    const shown = this.values.filter((each) => each.time >= this.stamp - SPAN && isNumber(each.value));
    context.fillStyle = colour('--muted');
    context.textAlign = 'right';
    if (!shown.length) {
      context.textAlign = 'left';
      const room = this.width - LEFT - 6 - RIGHT;
      const words = [...(this.valuing ? ['No value yet: policies are being valued.'] : []), 'No value yet.'];
      const text = words.find((each) => context.measureText(each).width <= room) ?? '';
      context.fillText(text, LEFT + 6, (VALUE.top + VALUE.bottom) / 2);
      return;
    }
    let [low, high] = [Infinity, -Infinity];
    for (const { value, spread } of shown) {
      low = Math.min(low, value - (spread || 0));
      high = Math.max(high, value + (spread || 0));
    }
    if (high - low < 0.5) [low, high] = [(low + high) / 2 - 0.25, (low + high) / 2 + 0.25];
    const y = (value) => VALUE.bottom - ((value - low) / (high - low)) * (VALUE.bottom - VALUE.top);
    context.fillText(number(high, 1), LEFT - 6, VALUE.top + 4);
    context.fillText(number(low, 1), LEFT - 6, VALUE.bottom - 4);
    const x = (each) => this.x(each.time - this.stamp);
    // A gap of a second is one: no line pretends a value.
    const runs = [];
    for (const each of shown) {
      const run = runs.at(-1);
      if (run && each.time - run.at(-1).time < 1) run.push(each);
      else runs.push([each]);
    }
    for (const run of runs) {
      context.fillStyle = colour('--band');
      context.beginPath();
      for (const each of run) context.lineTo(x(each), y(each.value + (each.spread || 0)));
      for (const each of [...run].reverse()) context.lineTo(x(each), y(each.value - (each.spread || 0)));
      context.fill();
      context.strokeStyle = colour('--ink');
      context.lineWidth = 1.5;
      context.beginPath();
      for (const each of run) context.lineTo(x(each), y(each.value));
      context.stroke();
    }
  }
}
