// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
/** The page: session, tabs, the socket of snapshots, and the banner that says when data is old. */

import { Acts, Answer } from './acts.js';
import { clock, fill, isNumber, list, make, record, seconds, show, write } from './dom.js';
import { FederationView } from './federation.js';
import { beforeDrawing, Link } from './link.js';
import { RecordsView } from './records.js';
import { RoomView } from './room.js';
import { onTheme, switchTheme, theme } from './theme.js';
import { policyName } from './words.js';

const OLD = 0.5; // s
const CHECK_EVERY = 100; // ms
const LEVELS = ['well', 'warning', 'error', 'silent'];
const MOST_EVENTS = 40;

const at = (id) => document.getElementById(id);

class Page {
  constructor(session) {
    this.session = session;
    this.answer = new Answer();
    this.acts = new Acts(session, (what) => this.answer.tell(what));
    this.room = new RoomView(this.acts);
    this.federation = new FederationView(this.acts);
    this.records = new RecordsView((name) => this.described(name));
    at('room').append(this.room.element);
    at('federation').append(this.federation.element);
    at('records').append(this.records.element);
    at('answers').append(this.answer.element);
    write(at('who'), `${session.name}, ${session.role}`);
    this.snapshot = null;
    this.came = 0; // when, ms of this page
    this.connected = false;
    this.since = null; // when data began to be old, ms since 1970
    this.signedOut = false;
    this.robot = '';
    at('robots').addEventListener('change', () => {
      location.hash = `#/room/${encodeURIComponent(at('robots').value)}`;
    });
    window.addEventListener('hashchange', () => this.route());
    this.route();
    this.link = new Link('/ws', (data) => this.take(data), (up) => this.connect(up));
    setInterval(() => this.check(), CHECK_EVERY);
    this.check();
    const frame = (now) => {
      this.visible?.draw?.(now);
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  /** Return a robot whose description the server has: the named one, or the one that is shown. */
  described(name) {
    const all = Object.keys(record(this.snapshot?.robots));
    return all.includes(name) || !all.length ? name || 'robot_1' : this.robot;
  }

  /** Show the tab that the address names. */
  route() {
    const [tab, what] = location.hash.replace(/^#\//, '').split('/').map((each) => this.decoded(each));
    this.tab = ['room', 'federation', 'records'].includes(tab) ? tab : 'room';
    if (this.tab === 'room' && what) this.wanted = what;
    for (const each of document.querySelectorAll('nav a')) {
      const here = each.dataset.tab === this.tab;
      if (here) each.setAttribute('aria-current', 'page');
      else each.removeAttribute('aria-current');
    }
    for (const each of ['room', 'federation', 'records']) show(at(each), each === this.tab);
    show(at('robot-chooser'), this.tab === 'room');
    this.visible = { room: this.room, records: this.records }[this.tab];
    if (this.tab !== 'room') this.room.rest();
    if (this.tab === 'records') {
      if (!this.listed) this.records.load();
      this.listed = true;
      if (what) this.records.open(what);
    }
    if (this.snapshot) this.show();
    this.check();
  }

  decoded(text) {
    try {
      return decodeURIComponent(text);
    } catch {
      return '';
    }
  }

  connect(up) {
    this.connected = up;
    if (up) this.signedOut = false;
    else this.askWhoIAm();
    this.check();
  }

  /** Find out whether the connection was refused, as after a sign-out. */
  async askWhoIAm() {
    try {
      const response = await fetch('/api/session');
      this.signedOut = response.status === 401 || response.status === 403;
      if (response.ok) {
        const session = await response.json(); // a server that began anew has another token
        this.session.csrf = session.csrf;
      }
    } catch {
      // the server is away: the banner says so
    }
    this.check();
  }

  /** Take a snapshot, draw it, return its number. */
  async take(data) {
    const snapshot = JSON.parse(data);
    await beforeDrawing();
    this.snapshot = snapshot;
    this.came = performance.now();
    this.show();
    this.check();
    document.body.dataset.n = snapshot.n;
    return snapshot.n;
  }

  show() {
    const { snapshot } = this;
    const robots = record(snapshot.robots);
    this.chooseRobot(Object.keys(robots));
    const robot = robots[this.robot];
    if (robot) {
      this.room.add(robot, isNumber(robot.stamp) ? robot.stamp : snapshot.time);
      if (this.tab === 'room') this.room.update(robot);
    }
    show(this.room.element, robot);
    show(at('no-robot'), !robot);
    if (this.tab === 'federation') this.federation.update(snapshot.federation);
    this.showHealth(snapshot);
  }

  chooseRobot(names) {
    fill(at('robots'), names, () => names.map((each) => make('option', { value: each }, each.replaceAll('_', ' '))));
    const robot = names.includes(this.wanted) ? this.wanted : names.includes(this.robot) ? this.robot : (names[0] ?? '');
    if (robot && robot !== this.room.name) this.room.choose(robot, `/api/urdf/${encodeURIComponent(robot)}`);
    this.robot = robot;
    if (at('robots').value !== robot) at('robots').value = robot;
  }

  showHealth(snapshot) {
    const health = list(snapshot.health).filter((each) => each.level > 0);
    const worst = Math.max(0, ...health.map((each) => each.level || 0));
    write(at('health-summary'), health.length ? `${health.length} to look at` : 'All well');
    at('health').dataset.level = LEVELS[Math.min(worst, 3)];
    if (!at('health').open) return;
    const rows = health.slice(0, MOST_EVENTS);
    fill(at('health-list'), rows, () => rows.map((each) => make('li', {}, make('strong', {}, each.node), ` ${LEVELS[each.level] ?? ''}: ${each.summary}`)));
    const events = list(snapshot.events).slice(-MOST_EVENTS).reverse();
    fill(at('event-list'), events, () => events.map(([time, text]) => make('li', {}, make('time', {}, clock(time)), ` ${text}`)));
  }

  /** Say what is old and since when; dim the controls. */
  check() {
    const waited = this.snapshot ? (performance.now() - this.came) / 1000 : null;
    const robot = record(this.snapshot?.robots)[this.robot];
    const age = robot && isNumber(robot.age) ? robot.age + waited : null;
    const link = !this.connected || waited === null || waited > OLD;
    const room = link || age === null || age > OLD;
    this.acts.setStale(room, link);
    document.body.classList.toggle('stale', this.tab === 'room' ? room : link && this.tab === 'federation');
    this.banner(link, room, waited, age);
  }

  banner(link, room, waited, age) {
    let text = '';
    let old = waited;
    if (this.signedOut) text = 'You are signed out. Ask who runs fdrl watch for a new link';
    else if (!this.connected) text = this.snapshot ? 'Connection lost: what is shown is old' : 'Connecting';
    else if (link) text = 'No news from the server: what is shown is old';
    else if (room && this.tab === 'room' && this.robot) {
      const name = policyName(this.robot.replaceAll('_', ' '));
      text = age === null ? `No data of ${name} yet` : `Data of ${name} is old: controls are dimmed`;
      old = age;
    }
    if (!text) this.since = null;
    else if (!this.since) this.since = Date.now() - 1000 * (old ?? 0);
    show(at('banner'), text);
    if (!text) return;
    write(at('banner-text'), old === null ? `${text}.` : `${text}, since ${clock(this.since / 1000)}`);
    // Every second anew: not for assistive technology.
    write(at('banner-age'), old === null ? '' : `(${seconds(old)})`);
  }
}

function nameTheme() {
  const other = theme() === 'dark' ? 'light' : 'dark';
  write(at('theme'), other === 'dark' ? 'Dark' : 'Light');
  at('theme').setAttribute('aria-label', `Change to ${other} colours`);
}

async function begin() {
  at('theme').addEventListener('click', switchTheme);
  onTheme(nameTheme);
  nameTheme();
  for (let wait = 500; ; wait = Math.min(2 * wait, 5000)) {
    try {
      const response = await fetch('/api/session');
      if (response.status === 401 || response.status === 403) {
        show(at('banner'), true);
        write(at('banner-text'), 'You are not signed in. Ask who runs fdrl watch for a link.');
        return;
      }
      if (response.ok) {
        const session = await response.json();
        window.fdrl = new Page({ ...session, acts: list(session.acts) });
        return;
      }
    } catch {
      // the server is away
    }
    show(at('banner'), true);
    write(at('banner-text'), 'The server does not answer. Trying again.');
    await new Promise((resolve) => {
      setTimeout(resolve, wait);
    });
  }
}

begin();
