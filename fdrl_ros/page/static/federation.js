// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
/** The federation: its round, its hospitals and their budgets, success on public patients, orders. */

import { Lines } from './charts.js';
import { clock, fill, isNumber, list, make, NONE, number, percent, record, roundedUp, seconds, show, write } from './dom.js';
import { Bar, card } from './room.js';
import { DEFINITIONS, FAULTS, PHASES, policyName, PROCEDURES, sentence, STAGES, STANDING, UNITS } from './words.js';

const MOST_ROWS = 20; // of a list of events
const MOST_CARDS = 60; // hospitals that are shown
const OVER = 'The federation has finished: no round is left to order anything about. To replace its newest policy all the same: fdrl operator roll-back ROUND.';

function names(all) {
  const shown = list(all).slice(0, 12).map(policyName).join(', ');
  const more = list(all).length - 12;
  return more > 0 ? `${shown} and ${more} more` : shown || 'none';
}

/** Say a phase and its reason in sentences; of a federation that has finished the reason is all. */
function standing(phase, reason) {
  const what = PHASES[phase]?.[1] ?? sentence(STANDING, phase) ?? '';
  const why = String(reason || '').replace(/\.$/, '');
  if (!why) return what;
  return phase === 'FINISHED' ? `Finished: ${why}.` : `${what} ${why[0].toUpperCase()}${why.slice(1)}.`;
}

/** Say what the number of rounds that a budget pays for includes. */
function included({ home }) {
  const after = home ? ', with one more home policy after them as planned: fine-tuning and its private choice' : '';
  return `Whole further rounds of the plan that what is left of the budget pays for${after}. It follows from the epsilon that the hospital published and the plan.`;
}

export class FederationView {
  /** @param acts posts orders; null in a replay. */
  constructor(acts) {
    this.acts = acts;
    this.cards = new Map();
    this.newest = 0;
    this.none = make('p.empty-note', { hidden: true }, 'No federation is watched here.');
    this.all = make('div.federation', {},
      this.roundCard(), acts && this.ordersCard(), this.hospitalsCard(), this.successCard(), this.eventsCard());
    this.element = make('div', {}, this.none, this.all);
  }

  roundCard() {
    this.title = make('span.side');
    this.standing = make('p.standing', { 'aria-live': 'polite' });
    this.steps = new Map();
    const stepper = this.stepper = make('ol.stepper', { 'aria-label': 'Phases of the round' });
    for (const [phase, [name, what]] of Object.entries(PHASES)) {
      const step = make('li', { 'title': what, 'data-phase': phase }, name);
      this.steps.set(phase, step);
      stepper.append(step);
    }
    this.rounds = new Bar('Rounds');
    this.members = make('dd');
    this.survivors = make('dd');
    this.missing = make('ul.missing');
    this.facts = make('dl.facts', {}, make('dt', {}, 'Members'), this.members, make('dt', {}, 'Update arrived whole'), this.survivors);
    const made = card('round-card', 'Round', this.rounds.element, stepper, this.standing, this.facts, this.missing);
    made.firstChild.append(this.title);
    return made;
  }

  ordersCard() {
    const first = make('div.acts', {}, ...['pause', 'resume', 'stop'].map((act) => this.acts.button(act, () => ({}))));
    this.to = make('input', { 'type': 'number', 'min': 0, 'step': 1, 'required': true, 'id': 'to-round', 'inputmode': 'numeric', 'input': () => this.acts.forgetQuestions() });
    const back = this.acts.button('roll_back', () => ({ to_round: this.toRound() }), '', ({ to_round: round }) => `to round ${round}`);
    if (back) first.append(make('span.roll-back', {}, make('label', { for: 'to-round' }, 'to round'), this.to, back));
    this.over = make('p.why', { 'role': 'status', 'hidden': true });
    const made = card('orders-card', 'Orders', first, this.over,
      make('p.note', {}, 'Orders are signed with the operator\u2019s key on the server. ', this.acts.session.note || 'A browser is no emergency stop.'));
    if (!first.children.length) made.classList.add('empty');
    return made;
  }

  /** Return the round to roll back to; no number is none, never the round before all. */
  toRound() {
    if (!this.to.checkValidity()) throw new Error('write the number of the round first, such as 4.');
    return Number(this.to.value);
  }

  hospitalsCard() {
    this.hospitals = make('div.hospitals');
    this.more = make('p.side');
    return card('hospitals-card', 'Hospitals and their privacy budgets', this.hospitals, this.more);
  }

  successCard() {
    this.lines = new Lines();
    this.policies = make('select', { 'aria-label': 'Policy whose success is shown', 'change': () => this.showSuccess() });
    this.successNote = make('p.empty-note', {}, 'No policy has been tested on public patients yet.');
    this.shown = [];
    const made = card('success-card', 'Success in the public test of the key authority', this.successNote, this.lines.element);
    made.querySelector('h2').title = DEFINITIONS.test;
    made.firstChild.append(this.policies);
    return made;
  }

  eventsCard() {
    const parts = [['roll_backs', 'Roll-backs'], ['blames', 'Blamed'], ['refusals', 'Refused messages']];
    this.events = {};
    const made = card('events-card', 'What went wrong');
    for (const [key, title] of parts) {
      this.events[key] = make('ul');
      made.append(make('h3', {}, title), this.events[key]);
    }
    return made;
  }

  update(federation) {
    show(this.none, !federation);
    show(this.all, federation);
    if (!federation) return;
    this.showRound(federation);
    this.showOver(federation);
    this.showHospitals(federation);
    this.shown = list(federation.success);
    this.showSuccess();
    this.showEvents(federation);
  }

  showRound(federation) {
    const { round, rounds, attempt, phase } = federation;
    const parts = [];
    if (federation.namespace) parts.push(String(federation.namespace));
    if (attempt > 1) parts.push(`attempt ${attempt}`);
    if (isNumber(federation.time_left) && federation.time_left > 0) parts.push(`${seconds(federation.time_left)} left`);
    write(this.title, parts.join(', '));
    // Once it has finished the aggregator stands before a round that never comes: no phase, no updates.
    const over = phase === 'FINISHED';
    const last = over && isNumber(round) ? Math.max(0, round - 1) : round;
    const planned = isNumber(rounds) ? ` of ${rounds}` : '';
    const said = over ? `${last}${planned} done` : `round ${last}${planned}`;
    this.rounds.set(isNumber(rounds) && rounds > 0 ? last / rounds : 0, isNumber(last) ? said : NONE);
    show(this.stepper, !over);
    show(this.facts, !over);
    let past = Object.hasOwn(PHASES, phase);
    for (const [each, step] of this.steps) {
      const now = each === phase;
      if (now) past = false;
      step.className = now ? 'now' : past ? 'past' : '';
      if (now) step.setAttribute('aria-current', 'step');
      else step.removeAttribute('aria-current');
    }
    write(this.standing, phase ? standing(phase, federation.reason) : 'Nothing has been heard of the aggregator yet.');
    this.standing.classList.toggle('over', phase === 'FAILED');
    write(this.members, names(federation.members));
    write(this.survivors, names(federation.survivors));
    const missing = Object.entries(record(federation.missing)).slice(0, MOST_ROWS);
    fill(this.missing, missing, () => missing.map(([name, why_]) => make('li', {}, make('strong', {}, policyName(name)), ` is missing: ${why_}`)));
  }

  /** Dim the orders of a federation that has finished, and say so. */
  showOver({ phase }) {
    if (!this.acts) return;
    const why = phase === 'FINISHED' ? OVER : '';
    this.acts.setOver('federation', why);
    show(this.over, why);
    write(this.over, why);
  }

  showHospitals(federation) {
    const all = Object.entries(record(federation.hospitals));
    const shown = all.slice(0, MOST_CARDS);
    const keys = new Set(shown.map(([name]) => name));
    for (const [name, state] of shown) {
      let own = this.cards.get(name);
      if (!own) {
        own = new HospitalCard(name, this.acts);
        this.cards.set(name, own);
        this.hospitals.append(own.element);
      }
      own.update(record(state), federation);
    }
    for (const [name, own] of this.cards) {
      if (keys.has(name)) continue;
      own.element.remove();
      this.cards.delete(name);
    }
    write(this.more, all.length > shown.length ? `And ${all.length - shown.length} more.` : all.length ? '' : 'No hospital has been heard yet.');
  }

  showSuccess() {
    const policies = [...new Set(this.shown.map((each) => String(each.policy)))].slice(0, MOST_CARDS);
    fill(this.policies, policies, () => policies.map((each) => make('option', { value: each }, policyName(each))));
    show(this.policies, policies.length > 1);
    const chosen = policies.includes(this.policies.value) ? this.policies.value : policies[0];
    const rows = this.shown.filter((each) => each.policy === chosen && isNumber(each.round)).sort((a, b) => a.round - b.round);
    show(this.successNote, !rows.length);
    show(this.lines.element, rows.length);
    const procedures = [...new Set(rows.flatMap((each) => Object.keys(record(each.procedures))))].slice(0, 12);
    const byName = { all: rows.map((each) => each.success ?? null) };
    for (const each of procedures) byName[sentence(PROCEDURES, each)] = rows.map((row) => record(row.procedures)[each] ?? null);
    const key = JSON.stringify([rows, chosen]);
    if (!rows.length || key === this.key) return;
    this.key = key;
    this.lines.show(rows.map((each) => each.round), byName);
  }

  showEvents(federation) {
    const rows = {
      roll_backs: list(federation.roll_backs).map(([time, text]) => [time, text]),
      refusals: list(federation.refusals).map(([time, text]) => [time, text]),
      blames: list(federation.blames).map(([time, hospital, fault]) => [
        time, `${policyName(hospital)} ${sentence(FAULTS, String(fault).toUpperCase())}`,
      ]),
    };
    for (const [key, all] of Object.entries(rows)) {
      const newest = all.slice(-MOST_ROWS).reverse();
      fill(this.events[key], newest, () => (newest.length
        ? newest.map(([time, text]) => make('li', {}, make('time', {}, clock(time)), ` ${text}`))
        : [make('li.none', {}, 'none')]));
    }
  }
}

class HospitalCard {
  constructor(name, acts) {
    this.name = name;
    this.state = make('span.side');
    this.dot = make('span.dot');
    this.budget = new Bar('Epsilon');
    this.forecast = make('p.side');
    this.training = new Bar('Training');
    this.element = make('article.hospital', { 'aria-label': policyName(name), 'data-hospital': name },
      make('header', {}, this.dot, make('h3', {}, policyName(name)), this.state),
      this.budget.element, this.forecast, this.training.element);
    if (!acts) return;
    const buttons = ['withdraw', 'admit', 'forgive'].map((act) => acts.button(act, () => ({ hospital: name }), policyName(name)));
    if (buttons.some(Boolean)) this.element.append(make('div.acts', {}, ...buttons.filter(Boolean)));
  }

  update(state, federation) {
    this.dot.dataset.alive = String(state.alive);
    const missing = Object.hasOwn(record(federation.missing), this.name);
    const where = missing ? 'missing' : list(federation.survivors).includes(this.name)
      ? 'update arrived' : list(federation.members).includes(this.name) ? 'member' : 'not in this round';
    const unheard = state.alive === false && !state.stage && !missing;
    const silent = state.alive === false && !unheard ? 'silent' : '';
    write(this.state, unheard ? 'not heard yet' : [where, silent].filter(Boolean).join(', '));
    const { epsilon, budget } = state;
    const share = epsilon / budget;
    const known = isNumber(epsilon) || isNumber(budget);
    this.budget.set(share, known ? `${roundedUp(epsilon)} of ${number(budget, 2)}` : NONE, share > 1 ? 'limit' : share > 0.8 ? 'warn' : '');
    write(this.forecast, this.say(state, federation));
    this.forecast.title = isNumber(state.pays_for) ? included(federation) : '';
    this.forecast.classList.toggle('over', state.secure === false || state.pays_for === 0);
    const trains = state.stage === 'training' && state.steps > 0;
    const done = trains ? state.step / state.steps : ['sending', 'at home'].includes(state.stage) ? 1 : 0;
    const stage = sentence(STAGES, state.stage) || NONE;
    this.training.set(done, trains ? `step ${state.step} of ${state.steps}` : stage);
  }

  /** Say what a budget pays for, per what, and whether the noise protects. */
  say({ pays_for: rounds, unit, delta, secure }, { home }) {
    const parts = [];
    if (secure === false) parts.push('Not private: noise from a seed');
    const after = home ? ' with a home policy after' : '';
    if (rounds === 0) parts.push(`pays for no further round${after}`);
    else if (isNumber(rounds)) parts.push(`pays for ${rounds} more round${rounds === 1 ? '' : 's'}${after}`);
    if (unit) parts.push(sentence(UNITS, unit));
    if (isNumber(delta)) parts.push(`\u03b4 ${delta.toExponential(0).replace('e-', 'e\u2212')}`);
    return parts.join(', ');
  }
}
