// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
/** Buttons of acts: post them, ask twice for the dangerous ones, show what the server answers. */

import { make, show, write } from './dom.js';

/** What each button says, and whether it asks for confirmation. */
export const ACTS = {
  take_over: { label: 'Take over', kind: 'primary' },
  hand_back: { label: 'Hand back', asks: true },
  lock: { label: 'Lock' },
  unlock: { label: 'Unlock', asks: true },
  veto: { label: 'Veto' },
  allow: { label: 'Allow', asks: true },
  pin: { label: 'Pin' },
  unpin: { label: 'Unpin' },
  enable: { label: 'Enable arm', asks: true },
  disable: { label: 'Disable arm', asks: true },
  pause_arm: { label: 'Pause arm', kind: 'primary' },
  resume_arm: { label: 'Resume arm', asks: true },
  home: { label: 'Home arm', asks: true },
  stop_operation: { label: 'Stop operation', kind: 'danger', asks: true },
  pause: { label: 'Pause' },
  resume: { label: 'Resume' },
  stop: { label: 'Stop federation', kind: 'danger', asks: true },
  withdraw: { label: 'Withdraw', kind: 'danger', asks: true },
  admit: { label: 'Admit', asks: true },
  forgive: { label: 'Forgive', asks: true },
  roll_back: { label: 'Roll back', kind: 'danger', asks: true },
};

/** Acts after which less happens: they stay possible when data is old, after confirmation. */
const CALMING = new Set([
  'take_over', 'lock', 'veto', 'pause_arm', 'disable', 'stop_operation', 'pause', 'stop',
]);
/** Acts on the federation, which does not change within half a second. */
const OF_THE_FEDERATION = new Set([
  'pause', 'resume', 'stop', 'withdraw', 'admit', 'forgive', 'roll_back',
]);

const ASKS_FOR = 5000; // ms that a question stands
const DOUBLE = 350; // ms within which a second press is a double tap, no answer

export class Acts {
  /**
   * Post acts in the name of a session.
   *
   * @param session what /api/session answers.
   * @param told called with ({ok, text, act}) after each act.
   */
  constructor(session, told) {
    this.session = session;
    this.told = told;
    this.stale = { room: true, link: true };
    this.buttons = new Set();
  }

  /** Tell whether this role may do an act here. */
  may(act) {
    return this.session.acts.includes(act);
  }

  /**
   * Make the button of an act; null where this role may not do it.
   *
   * @param act its name.
   * @param body returns the other fields of the request, such as {robot}.
   * @param name what the act is done to, for assistive technology and the question.
   */
  button(act, body, name = '') {
    if (!this.may(act)) return null;
    const button = new ActButton(this, act, body, name);
    this.buttons.add(button);
    button.dim();
    return button.element;
  }

  /** Forget buttons that are no longer on the page. */
  forget() {
    for (const each of this.buttons) if (!each.element.isConnected) this.buttons.delete(each);
  }

  /** Dim the acts on the room where its data is old, and all where the connection is lost. */
  setStale(room, link) {
    if (room === this.stale.room && link === this.stale.link) return;
    this.stale = { room, link };
    this.forget();
    for (const each of this.buttons) each.dim();
  }

  async post(act, fields, label) {
    let answer;
    try {
      const response = await fetch('/api/act', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', 'X-CSRF-Token': this.session.csrf },
        body: JSON.stringify({ act, ...fields }),
      });
      answer = await response.json().catch(() => ({}));
      answer = { ok: response.ok && answer.ok !== false, text: answer.message, status: response.status };
    } catch {
      answer = { ok: false, text: 'The server did not answer: nobody knows whether it was done.' };
    }
    const text = answer.text || (answer.ok ? 'Done.' : `Refused (${answer.status}).`);
    this.told({ ok: answer.ok, act, text: `${label}: ${text}` });
  }
}

class ActButton {
  constructor(acts, act, body, name) {
    this.acts = acts;
    this.act = act;
    this.body = body;
    this.rule = ACTS[act];
    this.label = this.rule.label;
    this.name = name;
    this.timer = 0;
    this.asked = 0;
    this.busy = false;
    const kind = this.rule.kind ? `.${this.rule.kind}` : '';
    this.element = make(`button.act${kind}`, {
      'type': 'button',
      'data-act': act,
      'aria-label': name ? `${this.label}: ${name}` : false,
      'click': () => this.press(),
      'blur': () => this.forgetQuestion(),
      'keydown': (event) => event.key === 'Escape' && this.forgetQuestion(),
    }, this.label);
  }

  get stale() {
    const { room, link } = this.acts.stale;
    return link || (room && !OF_THE_FEDERATION.has(this.act));
  }

  dim() {
    this.element.classList.toggle('dimmed', this.stale);
    this.element.disabled = this.busy || (this.stale && !CALMING.has(this.act));
    if (this.element.disabled) this.forgetQuestion();
  }

  press() {
    const asks = this.rule.asks || this.stale;
    const now = performance.now();
    if (asks && !this.asked) return this.ask(now);
    if (asks && now - this.asked < DOUBLE) return undefined;
    this.forgetQuestion();
    return this.send();
  }

  ask(now) {
    this.asked = now;
    const question = this.stale ? `Data is old. ${this.label}?` : `Confirm: ${this.label.toLowerCase()}`;
    write(this.element, question);
    this.element.classList.add('asking');
    this.element.setAttribute('aria-label', this.name ? `${question}: ${this.name}` : question);
    this.timer = setTimeout(() => this.forgetQuestion(), ASKS_FOR);
  }

  forgetQuestion() {
    if (!this.asked) return;
    clearTimeout(this.timer);
    this.asked = 0;
    write(this.element, this.label);
    this.element.classList.remove('asking');
    if (this.name) this.element.setAttribute('aria-label', `${this.label}: ${this.name}`);
    else this.element.removeAttribute('aria-label');
  }

  async send() {
    this.busy = true;
    this.element.setAttribute('aria-busy', 'true');
    this.element.disabled = true;
    const fields = this.body();
    await this.acts.post(this.act, fields, this.name ? `${this.label} ${this.name}` : this.label);
    this.busy = false;
    this.element.removeAttribute('aria-busy');
    this.dim();
  }
}

/** The line in which the answer to the newest act stands. */
export class Answer {
  constructor() {
    this.element = make('p.answer', { 'role': 'status', 'aria-live': 'polite', 'hidden': true });
    this.timer = 0;
  }

  tell({ ok, text, act }) {
    show(this.element, true);
    this.element.dataset.act = act;
    this.element.classList.toggle('refused', !ok);
    write(this.element, ok ? `\u2713 ${text}` : `\u2717 ${text}`);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => show(this.element, false), ok ? 8000 : 30000);
  }
}
