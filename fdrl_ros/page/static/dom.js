// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
/** Build elements and write values; every text goes through textContent, so names stay text. */

export const NONE = '\u2013';

/**
 * Make an element.
 *
 * @param tag such as 'button.act': tag name, then classes.
 * @param attributes attributes; functions become listeners, false and null are left out.
 * @param children elements or texts.
 */
export function make(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split('.');
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(' ');
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(key, value);
    else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(key, value === true ? '' : value);
    }
  }
  element.append(...children.filter((each) => each !== null && each !== undefined));
  return element;
}

/** Write a text, only where it changes: assistive technology would announce it again. */
export function write(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Show or hide an element. */
export function show(element, visible) {
  if (element.hidden === Boolean(visible)) element.hidden = !visible;
}

/** Tell whether a value is a number that can be shown. */
export function isNumber(value) {
  return typeof value === 'number' && Number.isFinite(value);
}

/** Write a number with so many digits and its unit; an en dash where there is none. */
export function number(value, digits = 1, unit = '') {
  if (!isNumber(value)) return NONE;
  const text = value.toFixed(digits).replace(/^-(?=[0.]*$)/, '').replace('-', '\u2212');
  return unit ? `${text}\u00a0${unit}` : text;
}

/** Write an upper bound, such as an epsilon, rounded up as fdrl_ros/privacy/stated.py does. */
export function roundedUp(value, digits = 2) {
  if (!isNumber(value)) return NONE;
  // What the server sends has six digits: what is beyond them comes of the multiplication.
  return number(Math.ceil(Number((value * 10 ** digits).toFixed(6 - digits))) / 10 ** digits, digits);
}

/** Write a share as a percentage. */
export function percent(value, digits = 0) {
  return isNumber(value) ? number(100 * value, digits, '%') : NONE;
}

/** Write seconds as a person reads them: 0.7 s, 45 s, 3 min 20 s. */
export function seconds(value) {
  if (!isNumber(value)) return NONE;
  if (value < 10) return number(value, 1, 's');
  if (value < 90) return number(value, 0, 's');
  if (value < 5400) return `${Math.floor(value / 60)}\u00a0min ${number(value % 60, 0, 's')}`;
  return number(value / 3600, 1, 'h');
}

/** Write a time of day, local. */
export function clock(unix) {
  if (!isNumber(unix)) return NONE;
  return new Date(1000 * unix).toLocaleTimeString([], { hour12: false });
}

/** Write a date and the time of day, local. */
export function dateAndTime(unix) {
  return `${new Date(1000 * unix).toLocaleDateString()} ${clock(unix)}`;
}

/** Return an array, empty where a value is none. */
export function list(value) {
  return Array.isArray(value) ? value : [];
}

/** Return an object, empty where a value is none. */
export function record(value) {
  return value && typeof value === 'object' && !Array.isArray(value) ? value : {};
}

const filled = new WeakMap();

/** Put rows into a list, one element each, only where something changed. */
export function fill(parent, key, build) {
  const wanted = JSON.stringify(key);
  if (filled.get(parent) === wanted) return;
  filled.set(parent, wanted);
  parent.replaceChildren(...build());
}
