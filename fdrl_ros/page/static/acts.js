// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
/** Buttons of acts: post them, ask twice for the dangerous ones, show what the server answers. */

import { make, show, write } from './dom.js';

/**
 * What each button says, whether it asks for confirmation, and what it is done to: the room, the
 * federation, which does not change within half a second, or the session of this page.
 */
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
  pause: { label: 'Pause', of: 'federation' },
  resume: { label: 'Resume', of: 'federation' },
  stop: { label: 'Stop federation', of: 'federation', kind: 'danger', asks: true },
  withdraw: { label: 'Withdraw', of: 'federation', kind: 'danger', asks: true },
  admit: { label: 'Admit', of: 'federation', asks: true },
  forgive: { label: 'Forgive', of: 'federation', asks: true },
  roll_back: { label: 'Roll back', of: 'federation', kind: 'danger', asks: true },
  leave: { label: 'Sign out', of: 'session', kind: 'small', asks: true },
};

const ASKS_FOR = 5000; // ms that a question stands
const DOUBLE = 350; // ms within which a second press is a double tap, no answer

export class Acts {
  /**
   * Post acts in the name of a session.
   *
   * @param session what /api/session answers; its acts `calming`, after which less happens, stay
   *   possible when data is old, after confirmation.
   * @param told called with ({ok, text, act}) after each act.
   */
  constructor(session, told) {
    this.session = session;
    this.told = told;
    this.stale = { room: true, federation: true, session: false };
    this.over = { room: '', federation: '', session: '' };
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
   * @param body returns the other fields of the request, such as {robot}; it throws an Error that
   *   says what is wrong where there can be no request.
   * @param name what the act is done to, for assistive technology.
   * @param how returns words for the label and the question, such as 'to round 4', from the fields.
   */
  button(act, body, name = '', how = () => '') {
    return this.may(act) ? this.add(new ActButton(this, act, body, name, how)) : null;
  }

  /** Make the button that ends the session, whoever it is. */
  leaveButton() {
    return this.add(new ActButton(this, 'leave', () => ({}), '', () => ''));
  }

  add(button) {
    this.buttons.add(button);
    button.dim();
    return button.element;
  }

  /** Take all questions back, as when an answer would be about something else. */
  forgetQuestions() {
    for (const each of this.buttons) each.forgetQuestion();
  }

  /** Forget buttons that are no longer on the page. */
  forget() {
    for (const each of this.buttons) if (!each.element.isConnected) this.buttons.delete(each);
  }

  /** Dim the acts on the room where its data is old, and all where the connection is lost. */
  setStale(room, link) {
    if (room === this.stale.room && link === this.stale.federation) return;
    this.stale = { room, federation: link, session: false };
    this.forget();
    for (const each of this.buttons) each.dim();
  }

  /** Dim the acts on a thing to which nothing can be done any more, and say why; '' undoes it. */
  setOver(of, why) {
    if (this.over[of] === why) return;
    this.over[of] = why;
    for (const each of this.buttons) each.dim();
  }

  /** End the session; then the server shows nothing more to this browser. */
  async leave(label) {
    try {
      const response = await fetch('/leave', { method: 'POST', headers: { 'X-CSRF-Token': this.session.csrf } });
      // Whose session had ended already is signed out as well.
      if (response.ok || response.status === 401 || response.status === 403) location.reload();
      else this.told({ ok: false, act: 'leave', text: `${label}: the server refused it (${response.status}).` });
    } catch {
      this.told({ ok: false, act: 'leave', text: `${label}: the server did not answer. You are still signed in.` });
    }
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
  constructor(acts, act, body, name, how) {
    this.acts = acts;
    this.act = act;
    this.body = body;
    this.how = how;
    this.fields = {};
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
    return this.acts.stale[this.rule.of ?? 'room'];
  }

  /** Return why nothing can be done any more; empty where something can. */
  get over() {
    return this.acts.over[this.rule.of ?? 'room'];
  }

  dim() {
    const over = Boolean(this.over);
    this.element.classList.toggle('dimmed', this.stale || over);
    this.element.disabled = this.busy || over || (this.stale && !this.acts.session.calming.includes(this.act));
    this.element.title = this.over;
    if (this.element.disabled) this.forgetQuestion();
  }

  press() {
    const asks = this.rule.asks || this.stale;
    const now = performance.now();
    if (this.asked && now - this.asked < DOUBLE) return undefined;
    const confirmed = this.asked;
    this.forgetQuestion();
    if (confirmed) return this.send(); // what was asked, whatever the page shows by now
    try {
      this.fields = this.body();
    } catch (error) {
      return this.acts.told({ ok: false, act: this.act, text: `${this.label}: ${error.message}` });
    }
    return asks ? this.ask(now) : this.send();
  }

  /** Return what the button would do, such as Roll back to round 4. */
  get whole() {
    return [this.label, this.how(this.fields)].filter(Boolean).join(' ');
  }

  ask(now) {
    this.asked = now;
    const question = this.stale ? `Data is old. ${this.whole}?` : `Confirm: ${this.whole.toLowerCase()}`;
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
    const label = this.name ? `${this.whole} ${this.name}` : this.whole;
    if (this.act === 'leave') await this.acts.leave(label);
    else await this.acts.post(this.act, this.fields, label);
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
