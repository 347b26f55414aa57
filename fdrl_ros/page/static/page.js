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
const SELECTOR_OLD = 2; // s
const AGGREGATOR_OLD = 5; // s; it tells its round at least once a second
const CHECK_EVERY = 100; // ms
const ASLEEP = 1000; // ms without a check: the browser or the device slept
const LEVELS = ['well', 'warning', 'error', 'silent'];
const MOST_EVENTS = 40;
const LAST = 'This run has ended: nothing of it is heard any more';

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
    at('theme').after(this.acts.leaveButton());
    this.snapshot = null;
    this.came = 0; // when, ms of this page
    this.federationCame = 0; // when its part came
    this.awake = { date: Date.now(), counted: performance.now() };
    this.doubted = false; // the next snapshot may have waited while the device slept
    this.drawn = true; // nothing failed while the newest snapshot was drawn
    this.connected = false;
    this.told = ''; // what the banner says
    this.since = 0; // when that began, ms since 1970
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

  /**
   * Take a snapshot, draw it, return its number.
   *
   * It is as old as it came, however long a hidden page waits to draw it. Parts that did not change
   * are left out of it. Where drawing fails, the error carries the number, so that the next comes.
   */
  async take(data) {
    const came = performance.now();
    this.noticeSleep();
    const doubted = this.doubted;
    this.doubted = false;
    const snapshot = JSON.parse(data);
    for (const part of ['federation', 'health', 'ended']) {
      if (!(part in snapshot)) snapshot[part] = this.snapshot?.[part];
      else if (part === 'federation') this.federationCame = came;
    }
    await beforeDrawing();
    this.snapshot = snapshot;
    if (!doubted) this.came = came;
    try {
      this.drawn = false;
      this.show();
      this.drawn = true;
    } catch (error) {
      error.got = snapshot.n;
      throw error;
    } finally {
      this.check();
    }
    document.body.dataset.n = snapshot.n;
    return snapshot.n;
  }

  /** After a sleep, which not every clock counts, believe only what the server sends anew. */
  noticeSleep() {
    const { date, counted } = this.awake;
    this.awake = { date: Date.now(), counted: performance.now() };
    const slept = this.awake.date - date;
    if (slept < ASLEEP) return;
    const uncounted = Math.max(0, slept - (this.awake.counted - counted));
    this.came -= uncounted;
    this.federationCame -= uncounted;
    this.doubted = true;
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
    this.showEnd(snapshot, robot);
    this.showHealth(snapshot);
  }

  /** Say that the run has ended, in place of a view of which nothing was ever heard. */
  showEnd({ ended, federation }, robot) {
    const unheard = { room: robot && !isNumber(robot.age), federation: federation && !isNumber(federation.age) }[this.tab];
    this.over = Boolean(ended && unheard);
    show(at('ended'), this.over);
    if (this.tab !== 'records') show(at(this.tab), !this.over);
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
    // Nodes of a run that has ended are silent: there is nothing to look at.
    const over = snapshot.ended && list(snapshot.health).every((each) => LEVELS[each.level] === 'silent');
    const heard = list(snapshot.health).length > 0 && !over;
    const calm = over ? 'The run has ended' : heard ? 'All well' : 'Nothing heard';
    write(at('health-summary'), health.length && !over ? `${health.length} to look at` : calm);
    at('health').dataset.level = heard ? LEVELS[Math.min(worst, 3)] : 'unknown';
    if (!at('health').open) return;
    const rows = health.slice(0, MOST_EVENTS);
    fill(at('health-list'), rows, () => rows.map((each) => make('li', {}, make('strong', {}, each.node), ` ${LEVELS[each.level] ?? ''}: ${each.summary}`)));
    const events = list(snapshot.events).slice(-MOST_EVENTS).reverse();
    fill(at('event-list'), events, () => events.map(([time, text]) => make('li', {}, make('time', {}, clock(time)), ` ${text}`)));
  }

  /** Say what is old and since when; dim the controls. */
  check() {
    this.noticeSleep();
    const waited = this.snapshot ? (performance.now() - this.came) / 1000 : null;
    const robot = record(this.snapshot?.robots)[this.robot];
    const since = (seen, came = this.came) => (isNumber(seen) ? seen + (performance.now() - came) / 1000 : null);
    const age = since(robot?.age);
    const link = !this.connected || !this.drawn || waited === null || waited > OLD;
    const room = link || age === null || age > OLD;
    const { federation } = record(this.snapshot);
    const heard = federation ? since(federation.age, this.federationCame) : 0;
    const silent = heard === null || heard > AGGREGATOR_OLD;
    this.acts.setStale(room, link);
    document.body.classList.toggle('stale', this.tab === 'room' ? room : (link || silent) && this.tab === 'federation');
    const [text, old] = this.complaint({ link, room, silent, waited, age, heard, robot, selector: since(robot?.selector_silent) });
    this.banner(text, old);
  }

  /** Return what is old, and for how long in s (null: nobody knows); '' where nothing is. */
  complaint({ link, room, silent, waited, age, heard, robot, selector }) {
    if (this.signedOut) return ['You are signed out. Ask who runs fdrl watch for a new link', waited];
    if (!this.connected) return [this.snapshot ? 'Connection lost: what is shown is old' : 'Connecting', waited];
    if (!this.drawn) return ['This page cannot draw the newest state: what is shown is old', waited];
    if (link) return ['No news from the server: what is shown is old', waited];
    const name = policyName(this.robot.replaceAll('_', ' '));
    const ended = Boolean(this.snapshot.ended);
    if (this.over) return ['', null];
    if (ended && this.tab === 'room' && this.robot && room) return [LAST, age];
    if (ended && this.tab === 'federation' && silent) return [LAST, heard];
    if (this.tab === 'room' && this.robot) {
      if (room) return [age === null ? `No data of ${name} yet` : `Data of ${name} is old: controls are dimmed`, age];
      if (robot.operating && selector === null) return [`An operation runs, and nothing has been heard of the selector of ${name}`, null];
      if (robot.operating && selector > SELECTOR_OLD) return [`The selector of ${name} is silent: nobody may be choosing`, selector];
    }
    if (this.tab !== 'federation' || !silent) return ['', null];
    return [heard === null ? 'Nothing has been heard of the aggregator yet' : 'The aggregator is silent: what is shown is old', heard];
  }

  banner(text, old) {
    if (text !== this.told) this.since = Date.now() - 1000 * (old ?? 0);
    this.told = text;
    show(at('banner'), text);
    show(at('banner-records'), text === LAST);
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
        window.fdrl = new Page({ ...session, acts: list(session.acts), calming: list(session.calming) });
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
