// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
/** Records: the list of runs, bags and episodes, and the replay of one with a slider. */

import { FederationView } from './federation.js';
import { dateAndTime, isNumber, list, make, seconds, show, write } from './dom.js';
import { RoomView } from './room.js';
import { PROCEDURES, sentence } from './words.js';

const KINDS = { run: 'Run', bag: 'Bag', episode: 'Operation' };
const BEFORE = 60; // s of charts that are drawn again after a jump
const MOST_RECORDS = 500;

export class RecordsView {
  /** @param robot returns a robot whose description is known: the one of this name, or another. */
  constructor(robot) {
    this.robot = robot;
    this.list = make('ul.records');
    this.note = make('p.side', { role: 'status' });
    this.refresh = make('button.small', { type: 'button', click: () => this.load() }, 'Refresh');
    const side = make('section.card.records-card', { 'aria-label': 'Records' },
      make('header', {}, make('h2', {}, 'Records'), this.refresh), this.note, this.list);
    this.title = make('h2', {}, 'Choose a record');
    this.player = new Player((time, jumped) => this.seek(time, jumped));
    this.room = new RoomView(null);
    this.federation = new FederationView(null);
    this.replay = make('div.replay', { hidden: true }, this.player.element, this.room.element, this.federation.element);
    this.element = make('div.records-view', {}, side, make('section.replay-side', { 'aria-label': 'Replay' }, this.title, this.replay));
    this.frames = [];
    this.rounds = [];
    this.at = -1;
    this.id = null;
  }

  /** Read the list from the server. */
  async load() {
    write(this.note, 'Reading\u2026');
    try {
      const response = await fetch('/api/records');
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      const all = list(await response.json());
      write(this.note, all.length ? '' : 'Nothing was recorded yet.');
      this.list.replaceChildren(...all.slice(0, MOST_RECORDS).map((each) => this.row(each)));
      const newest = all.find((each) => !each.broken);
      if (this.id === null && newest) this.open(String(newest.id));
    } catch (error) {
      write(this.note, `No list of records: ${error.message}.`);
    }
  }

  row(each) {
    const about = [isNumber(each.when) ? dateAndTime(each.when) : each.when && String(each.when), isNumber(each.seconds) && seconds(each.seconds)].filter(Boolean).join(', ');
    return make('li', {}, make('button.record', {
      'type': 'button',
      'data-record': each.id,
      'aria-current': String(each.id) === this.id ? 'true' : false,
      'click': () => {
        location.hash = `#/records/${encodeURIComponent(each.id)}`;
      },
    }, make(each.broken ? 'strong.over' : 'strong', {}, `${KINDS[each.kind] ?? 'Record'}: ${each.title ?? each.id}`), make('span.side', {}, about)));
  }

  /** Open a record by its id. */
  async open(id) {
    if (id === this.id) return;
    this.id = id;
    for (const each of this.list.querySelectorAll('.record')) {
      if (each.dataset.record === id) each.setAttribute('aria-current', 'true');
      else each.removeAttribute('aria-current');
    }
    this.player.pause();
    show(this.replay, false);
    write(this.title, 'Reading\u2026');
    let found;
    try {
      const response = await fetch(`/api/records/${encodeURIComponent(id)}`);
      found = await response.json();
      if (!response.ok) throw new Error(found.message || `the server answered ${response.status}`);
    } catch (error) {
      write(this.title, `This record cannot be shown: ${error.message}`);
      return;
    }
    if (id === this.id) this.begin(found);
  }

  begin(found) {
    const robot = this.robot(found.robot);
    this.frames = list(found.frames).filter((each) => isNumber(each?.t));
    this.rounds = list(found.rounds);
    this.at = -1;
    const about = list(found.procedures).filter((each) => typeof each === 'string').map((each) => sentence(PROCEDURES, each));
    write(this.title, [found.title, about.join(', ')].filter(Boolean).join(' \u2013 '));
    show(this.room.element, this.frames.length);
    show(this.federation.element, this.rounds.length);
    show(this.replay, this.frames.length || this.rounds.length);
    if (!this.frames.length && !this.rounds.length) write(this.title, `${found.title ?? 'This record'}: nothing in it can be replayed`);
    if (this.frames.length) {
      this.room.name = '';
      this.room.choose(robot, `/api/urdf/${encodeURIComponent(robot)}`).then(() => this.seek(this.player.time, true));
    }
    if (!this.frames.length) {
      this.player.begin(0, this.rounds.length - 1, true);
      return;
    }
    const last = this.frames.at(-1).t;
    this.player.begin(this.frames[0].t, Math.max(isNumber(found.duration) ? found.duration : 0, last));
  }

  /** Return the number of the last frame at or before a time. */
  index(time) {
    let [low, high] = [0, this.frames.length - 1];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.frames[middle].t <= time) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Show the record at a time in s. */
  seek(time, jumped) {
    if (this.rounds.length) this.federation.update(this.round(time));
    if (!this.frames.length) return;
    const to = this.index(time);
    let from = this.at + 1;
    if (jumped || to < this.at) {
      this.room.clear();
      from = this.index(time - BEFORE);
    }
    for (let i = from; i <= to; i += 1) this.room.add(this.frames[i], this.frames[i].t);
    this.at = to;
    this.room.update(this.frames[to], jumped ? Infinity : performance.now());
    if (jumped) this.room.drawn = 0;
  }

  /** Return the federation at a time in s; without frames, the time is the number of a round. */
  round(time) {
    if (!this.frames.length) return this.rounds[Math.floor(time)];
    return this.rounds.filter((each) => each.t <= time).at(-1) ?? this.rounds[0];
  }

  draw(now) {
    this.player.tick(now);
    if (this.frames.length) this.room.draw(now);
  }
}

/** A slider over time with play, pause and speed. */
class Player {
  /** @param seek called with a time and whether it is a jump. */
  constructor(seek) {
    this.seek = seek;
    this.first = 0;
    this.last = 0;
    this.time = 0;
    this.rounds = false;
    this.playing = false;
    this.before = 0;
    this.button = make('button.play', { 'type': 'button', 'click': () => (this.playing ? this.pause() : this.play()) }, 'Play');
    this.slider = make('input', {
      'type': 'range', 'min': 0, 'max': 0, 'step': 0.05, 'value': 0, 'aria-label': 'Time of the record', 'input': () => this.jump(Number(this.slider.value)),
    });
    this.speed = make('select', { 'aria-label': 'Speed' }, ...[0.25, 0.5, 1, 2, 4].map((each) => make('option', { value: each, selected: each === 1 }, `${each}\u00d7`)));
    this.text = make('output.value');
    this.element = make('div.player', {}, this.button, this.slider, this.text, this.speed);
  }

  /** Begin with a record from its first to its last s; or with its rounds, one a second. */
  begin(first, last, rounds = false) {
    Object.assign(this, { first, last, rounds });
    this.slider.min = first;
    this.slider.max = last;
    this.slider.step = rounds ? 1 : 0.05;
    this.jump(first);
  }

  jump(time) {
    this.time = Math.max(this.first, Math.min(this.last, time));
    this.show();
    this.seek(this.time, true);
  }

  play() {
    if (this.time >= this.last) this.jump(this.first);
    this.playing = true;
    this.before = 0;
    write(this.button, 'Pause');
  }

  pause() {
    this.playing = false;
    write(this.button, 'Play');
  }

  tick(now) {
    if (!this.playing) return;
    const passed = this.before ? (now - this.before) / 1000 : 0;
    this.before = now;
    this.time = Math.min(this.last, this.time + passed * Number(this.speed.value));
    this.show();
    this.seek(this.time, false);
    if (this.time >= this.last) this.pause();
  }

  show() {
    this.slider.value = this.time;
    const text = this.rounds ? `${Math.floor(this.time) + 1} of ${this.last + 1} rounds` : `${(this.time - this.first).toFixed(1)} of ${(this.last - this.first).toFixed(1)}\u00a0s`;
    write(this.text, text);
    this.slider.setAttribute('aria-valuetext', text);
  }
}
