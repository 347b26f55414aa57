// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
/** Dark and light, and colours that colour-blind people tell apart (Okabe and Ito). */

const KEY = 'fdrl-theme';
const dark = window.matchMedia('(prefers-color-scheme: dark)');
const listeners = new Set();
const palette = { light: [], dark: [] };
// Blue, green, orange, purple, sky, yellow; vermillion marks limits and dangers alone.
palette.light = ['#0072b2', '#009e73', '#c77f00', '#a8558a', '#2f9bd6', '#8f8600'];
palette.dark = ['#4ba3dd', '#19c296', '#e69f00', '#dd94bf', '#8accf2', '#f0e442'];

function stored() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // storage is switched off: the system's choice holds
  }
}

/** Return 'dark' or 'light'. */
export function theme() {
  const own = stored();
  return own === 'dark' || own === 'light' ? own : dark.matches ? 'dark' : 'light';
}

/** Return what the style sheet says of a colour, such as '--limit'. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Return the colours of lines, in their order. */
export function lines() {
  return palette[theme()];
}

/** Return the colour of the nth line; the same again after the last. */
export function line(index) {
  const all = lines();
  return all[index % all.length];
}

/** Call a function whenever the theme changes. */
export function onTheme(listener) {
  listeners.add(listener);
}

function apply() {
  document.documentElement.dataset.theme = theme();
  for (const each of listeners) each(theme());
}

/** Choose the other theme, and keep it in this browser. */
export function switchTheme() {
  const other = theme() === 'dark' ? 'light' : 'dark';
  try {
    localStorage.setItem(KEY, other);
  } catch {
    // it holds until the page is left
  }
  apply();
}

dark.addEventListener('change', apply);
apply();
