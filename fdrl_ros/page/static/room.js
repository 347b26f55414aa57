// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
/** One robot at work: arm, picture, charts, the choice of the selector, and the acts of a surgeon. */

import { Strip } from './charts.js';
import { isNumber, list, make, number, percent, record, show, write } from './dom.js';
import { Picture } from './picture.js';
import { Scene } from './scene.js';
import { policyColours, Timeline } from './timeline.js';
import {
  ARM_STATES, DEFINITIONS, DRIVERS, FAILURES, policyName, PROCEDURES, REASONS, sentence, STATUSES, VETOES,
} from './words.js';

const CHARTS_EVERY = 100; // ms
const MOST_POLICIES = 60; // rows
const VITALS = [
  ['mean_arterial_pressure', 'Mean arterial pressure', 'mmHg', { index: 1, least: [50, 100] }],
  ['heart_rate', 'Heart rate', '1/min', { index: 2, least: [50, 110] }],
  ['oxygen_saturation', 'Oxygen saturation', '%', { index: 3, least: [85, 100] }],
  ['respiratory_rate', 'Respiratory rate', '1/min', { index: 4, least: [6, 22] }],
];

function card(name, title, ...children) {
  const heading = make('h2', {}, title);
  return make(`section.card.${name}`, { 'aria-label': title }, make('header', {}, heading), ...children);
}

/** A share of something as a bar with its number. */
class Bar {
  constructor(name) {
    this.name = name;
    this.fill = make('div.fill');
    this.text = make('span.value');
    this.bar = make('div.bar', { 'role': 'meter', 'aria-label': name, 'aria-valuemin': 0, 'aria-valuemax': 1 }, this.fill);
    this.element = make('div.gauge', {}, make('span.name', {}, name), this.text, this.bar);
  }

  set(share, text, level = '') {
    const shown = isNumber(share) ? Math.max(0, Math.min(1, share)) : 0;
    this.fill.style.width = `${(100 * shown).toFixed(1)}%`;
    this.bar.dataset.level = level;
    this.bar.setAttribute('aria-valuenow', shown.toFixed(2));
    this.bar.setAttribute('aria-valuetext', text);
    write(this.text, text);
  }
}

/** A name and a value in a row. */
class Fact {
  constructor(name) {
    this.value = make('dd', {}, '\u2013');
    this.elements = [make('dt', {}, name), this.value];
  }

  set(text, alarm = false) {
    write(this.value, text);
    this.value.classList.toggle('over', alarm);
  }
}

/** Say why there is no choice. */
function nobodyChose({ operating, selector_silent: silent }) {
  if (operating === false) return 'No operation runs: nobody chooses.';
  return isNumber(silent) ? 'The selector tells no choice.' : 'Nobody has chosen yet.';
}

export class RoomView {
  /** @param acts posts the acts; null in a replay, which has neither acts nor pictures. */
  constructor(acts) {
    this.acts = acts;
    this.name = '';
    this.scene = new Scene();
    this.timeline = new Timeline();
    this.picture = acts ? new Picture() : null;
    this.force = new Strip('Force on the tip', 'N', { index: 0, digits: 2, least: [0, 1], limit: true, height: 108 });
    this.vitals = VITALS.map(([field, title, unit, settings]) => ({ field, strip: new Strip(title, unit, settings) }));
    this.rows = new Map();
    this.drawn = 0;
    this.time = -Infinity;
    this.loaded = null;
    this.element = make(`div.room${acts ? '' : '.replayed'}`, {},
      this.sceneCard(), this.picture && this.pictureCard(), this.sideCards(), this.timelineCard(), this.stripsCard(), this.policiesCard());
  }

  sceneCard() {
    this.operation = make('span.side');
    this.progress = new Bar('Progress');
    this.left = new Bar('Time left');
    const made = card('scene-card', 'Arm', this.scene.element,
      make('p.legend', {},
        make('span.key.tip', {}, 'tip and its way'), make('span.key.waypoint', {}, 'waypoint'), make('span.key.force', {}, 'force')),
      make('div.gauges', {}, this.progress.element, this.left.element));
    made.firstChild.append(this.operation, this.scene.buttons);
    return made;
  }

  pictureCard() {
    const made = card('picture-card', 'Endoscope', this.picture.element, this.picture.seen);
    made.firstChild.append(this.picture.overlay);
    return made;
  }

  sideCards() {
    this.driver = make('p.driver');
    this.arm = make('p.side');
    this.swatch = make('span.swatch');
    this.policy = make('p.policy', {}, this.swatch, make('strong'));
    this.reason = make('p.reason', { 'aria-live': 'polite' });
    this.veto = make('p.veto', { 'role': 'alert', 'hidden': true });
    this.facts = {
      value: new Fact('Value of its choice'),
      ahead: new Fact('Expected risk'),
      predicted: new Fact('Force ahead, at most'),
      mitigated: new Fact('Mitigated, this case'),
      locked: new Fact('Locked'),
      vetoed: new Fact('Vetoed'),
    };
    this.risk = new Bar('Risk now');
    this.outcome = make('p.outcome', { hidden: true });
    const choice = card('choice', 'Choice', this.policy, this.reason, this.veto, this.risk.element,
      make('dl.facts', {}, ...Object.values(this.facts).flatMap((each) => each.elements)));
    choice.firstChild.append(this.driver);
    // The acts come first: what appears and vanishes above a button would move it under the finger.
    return make('div.side-cards', {}, this.acts && this.actsCard(), choice, this.outcome);
  }

  actsCard() {
    const robot = () => ({ robot: this.name });
    const button = (act) => this.acts.button(act, robot);
    const first = make('div.acts.first', {}, button('take_over'), button('hand_back'), button('pause_arm'), button('resume_arm'));
    const rest = make('div.acts', {}, ...['enable', 'disable', 'home', 'unlock', 'stop_operation'].map(button));
    const note = this.acts.session.note || 'A browser is no emergency stop.';
    const made = card('acts-card', 'Act', first, rest, make('p.note', {}, note), this.arm);
    this.lockHold = this.acts.button('lock', () => ({ robot: this.name, policy: 'hold' }), 'hold');
    if (!first.children.length && !rest.children.length) made.classList.add('empty');
    return made;
  }

  timelineCard() {
    const made = card('timeline-card', 'Choices of the newest minute', this.timeline.element,
      make('p.legend', {},
        make('span.key.hold', {}, 'the robot holds'), make('span.key.vetoed', {}, 'veto of the shield'), make('span.key.band', {}, 'value \u00b1 uncertainty')));
    return made;
  }

  stripsCard() {
    return card('strips', 'Force and vital signs', this.force.element, ...this.vitals.map((each) => each.strip.element));
  }

  policiesCard() {
    this.body = make('ul.policies');
    this.more = make('p.side');
    return card('policies-card', 'Policies of this robot', this.body, this.more);
  }

  /** Show another robot. */
  async choose(name, urdf) {
    if (this.name === name && this.loaded === name) return;
    this.name = name;
    this.acts?.forgetQuestions(); // they were about another robot
    this.clear();
    this.loaded = name;
    try {
      const response = await fetch(urdf);
      if (!response.ok) throw new Error(`no description of ${name} (${response.status})`);
      const text = await response.text();
      if (this.name !== name) return;
      this.scene.load(text);
      this.scene.tell('');
    } catch (error) {
      this.loaded = null;
      this.scene.tell(`No picture in three dimensions: ${error.message}.`);
    }
  }

  /** Forget what was drawn over time. */
  clear() {
    this.time = -Infinity;
    this.scene.clear();
    this.timeline.clear();
    this.force.clear();
    for (const { strip } of this.vitals) strip.clear();
  }

  /** Remember a state of the robot for charts and timeline. */
  add(robot, time) {
    if (!isNumber(time) || robot.operating === false) return;
    if (time < this.time) this.clear(); // a simulator began anew
    this.time = time;
    this.force.add(time, robot.force, robot.force_limit);
    for (const { field, strip } of this.vitals) strip.add(time, record(robot.vitals)[field]);
    this.timeline.add(robot, time);
  }

  /** Show a state of the robot. */
  update(robot, now = performance.now()) {
    const idle = robot.operating === false;
    this.element.classList.toggle('idle', idle);
    this.scene.update(idle ? { ...robot, waypoint: null, force: null, force_vector: null } : robot);
    this.showOperation(robot);
    this.showChoice(robot);
    this.showRobot(robot);
    this.showPolicies(robot);
    this.showOutcome(robot.outcome);
    this.picture?.follow(this.name, robot);
    if (now - this.drawn >= CHARTS_EVERY) {
      this.drawn = now;
      this.force.draw();
      for (const { strip } of this.vitals) strip.draw();
      this.timeline.valuing = list(robot.policies).some((each) => each.status === 'valuing');
      this.timeline.draw();
    }
  }

  /** Ask for no more pictures while another view is shown. */
  rest() {
    this.picture?.follow(this.name, null);
  }

  /** Draw the arm; called for each picture of the browser. */
  draw(now) {
    this.scene.draw(now);
  }

  showOperation(robot) {
    const procedure = sentence(PROCEDURES, robot.procedure);
    const about = [procedure, robot.patient && `patient ${robot.patient}`].filter(Boolean).join(', ');
    const idle = about ? `No operation runs; the last: ${about}` : 'No operation runs';
    write(this.operation, robot.operating === false ? idle : about);
    this.progress.set(robot.progress, percent(robot.progress));
    this.left.set(robot.time_left, percent(robot.time_left));
  }

  showChoice(robot) {
    const choice = record(robot.choice);
    const name = choice.policy === 'hold' ? 'Hold' : policyName(choice.policy);
    write(this.policy.lastChild, name);
    this.swatch.style.background = policyColours.of(choice.policy);
    write(this.reason, sentence(REASONS, choice.reason) || nobodyChose(robot));
    show(this.veto, choice.veto);
    write(this.veto, sentence(VETOES, choice.veto));
    const { value, ahead, predicted, mitigated, locked, vetoed } = this.facts;
    value.set(isNumber(choice.value) ? `${number(choice.value, 2)} \u00b1 ${number(choice.uncertainty, 2)}` : '\u2013');
    ahead.set(number(choice.expected_risk, 3));
    predicted.set(number(choice.predicted_force, 2, 'N'), choice.predicted_force >= robot.force_limit);
    const risk = record(robot.risk);
    mitigated.set(percent(risk.case_mitigation));
    locked.set(robot.locked ? policyName(robot.locked) : 'nothing');
    vetoed.set(list(robot.vetoed).slice(0, 8).map(policyName).join(', ') || 'nothing');
    const critical = risk.critical > 0 ? ', critical' : '';
    this.risk.set(risk.risk, `${number(risk.risk, 3)}${critical}`, critical ? 'limit' : risk.risk > 0.5 ? 'warn' : '');
  }

  showRobot(robot) {
    const surgeon = robot.driver === 'surgeon' && robot.taken_by;
    const driver = surgeon ? String(surgeon) : DRIVERS[robot.driver];
    write(this.driver, driver ? `${driver} drives` : 'Nobody says who drives');
    this.driver.dataset.driver = robot.driver ?? '';
    const arm = [`Arm ${sentence(ARM_STATES, robot.arm_state) || '\u2013'}`];
    if (robot.homed === false) arm.push('not homed');
    if (robot.armed === true) arm.push('armed');
    if (robot.armed === false) arm.push('not armed');
    write(this.arm, arm.join(', '));
    this.arm.classList.toggle('over', robot.arm_state === 'FAULT');
  }

  showOutcome(outcome) {
    show(this.outcome, outcome);
    if (!outcome) return;
    const failed = outcome.success ? 'succeeded' : 'failed';
    const why = outcome.success ? '' : ` ${sentence(FAILURES, outcome.failure)}`;
    const what = sentence(PROCEDURES, outcome.procedure) || 'The operation';
    write(this.outcome, `Last operation: ${what} ${failed}.${why} Greatest force ${number(outcome.peak_force, 2, 'N')}.`);
    this.outcome.classList.toggle('failed', !outcome.success);
  }

  showPolicies(robot) {
    const all = list(robot.policies);
    const shown = all.slice(0, MOST_POLICIES);
    const keys = new Set();
    shown.forEach((each, index) => {
      const key = `${each.name} ${each.round}`;
      keys.add(key);
      let row = this.rows.get(key);
      if (!row) {
        row = new PolicyRow(this, each);
        this.rows.set(key, row);
      }
      row.update(each, robot);
      if (this.body.children[index] !== row.element) this.body.insertBefore(row.element, this.body.children[index] ?? null);
    });
    for (const [key, row] of this.rows) {
      if (keys.has(key)) continue;
      row.element.remove();
      this.rows.delete(key);
    }
    write(this.more, all.length > shown.length ? `And ${all.length - shown.length} older ones.` : all.length ? '' : 'No policy has come yet.');
    if (this.lockHold && !this.lockHold.isConnected) {
      this.more.after(make('p.hold-row', {}, make('span.key.hold', {}, 'Hold, whatever the policies say'), this.lockHold));
    }
  }
}

class PolicyRow {
  constructor(view, { name, round }) {
    this.swatch = make('span.swatch');
    this.badges = make('span.badges');
    this.success = make('span');
    this.status = make('p.side');
    this.element = make('li', { 'data-policy': name },
      make('p.title', {}, this.swatch, make('strong', {}, policyName(name)), make('span.side', {}, ` round ${round}`), this.badges),
      make('p.tried', {}, this.success), this.status);
    this.buttons = {};
    if (!view.acts) return;
    const fields = () => ({ robot: view.name, policy: name });
    const version = () => ({ ...fields(), version: String(round) });
    for (const [act, body] of [['lock', fields], ['veto', fields], ['allow', fields], ['pin', version], ['unpin', fields]]) {
      this.buttons[act] = view.acts.button(act, body, policyName(name));
    }
    this.element.append(make('div.acts', {}, ...Object.values(this.buttons).filter(Boolean)));
  }

  update(policy, robot) {
    this.swatch.style.background = policyColours.of(policy.name);
    const locked = robot.locked === policy.name;
    const vetoed = list(robot.vetoed).includes(policy.name);
    write(this.badges, [policy.pinned && 'pinned', locked && 'locked'].filter(Boolean).join(', '));
    const status = sentence(STATUSES, policy.status);
    write(this.status, policy.reason ? `${status}: ${policy.reason}` : status);
    this.status.title = this.status.textContent;
    write(this.success, isNumber(policy.success_share) ? `${percent(policy.success_share)} success in its trial` : 'not tried by this robot yet');
    this.success.title = `${DEFINITIONS.trial} Mean return ${number(policy.mean_return, 1)}, of holding ${number(policy.hold_return, 1)}`;
    const { veto, allow, pin, unpin } = this.buttons;
    for (const [button, visible] of [[veto, !vetoed], [allow, vetoed], [pin, !policy.pinned], [unpin, policy.pinned]]) {
      if (button) show(button, visible);
    }
  }
}

export { Bar, card, Fact };
