// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
/** Plain sentences for the words of messages: those of msg/*.msg, whose names stand before them. */

/** SelectedAction, REASON_: why the robot does what it does. */
export const REASONS = {
  best: 'This policy has the best lower bound of its value.',
  kept: 'As before: no other policy is better by enough, or for long enough.',
  unvalued: 'The first policy acts: none has been valued yet.',
  locked: 'The surgeon locked this choice.',
  caution: 'The robot holds: that is better than any policy.',
  procedure: 'The robot holds: no policy does this procedure.',
  no_policy: 'The robot holds: there is no policy that may act.',
  policy_failed: 'The robot holds: the policy failed just now.',
  shield_failed: 'The robot holds: the shield failed.',
  late: 'The robot holds: no choice came in time.',
  risk_gate: 'The robot holds: the risk is too high.',
  paused: 'The robot holds: the arm is not enabled and homed.',
  no_visibility: 'The robot holds: the endoscope sees nothing.',
  surgeon: 'The surgeon drives.',
  missing: 'The robot holds: no state of the patient has come yet.',
  stale: 'The robot holds: the newest state is too old.',
  clock: 'The robot holds: the time stamp of the state cannot be right.',
  mismatch: 'The robot holds: the state does not fit what the selector expects.',
  not_finite: 'The robot holds: a value of the state is not a number.',
  out_of_range: 'The robot holds: a value of the state is out of its range.',
  frozen: 'The robot holds: the state does not change any more.',
};

/** Why a policy acts rather than the robot holds. */
export const ACTING = new Set(['best', 'kept', 'unvalued', 'locked']);

/** SelectedAction, VETO_: why the shield replaced the action. */
export const VETOES = {
  hard_stop: 'The shield draws the tip back: far too much force.',
  force: 'The shield replaced the action: too much force ahead.',
  damage: 'The shield replaced the action: tissue would be damaged.',
  workspace: 'The shield replaced the action: the tip would leave the workspace.',
};

/** Outcome, FAILURE_: how an operation ended. */
export const FAILURES = {
  force: 'More force than the procedure allows.',
  workspace: 'The tip left the workspace.',
  depth: 'Cut or went too deep.',
  drop: 'What the jaw held was lost.',
  vitals: 'The patient was a minute below 65 mmHg.',
  time: 'The time allowed was up.',
  not_begun: 'Nobody commanded the arm in time.',
  aborted: 'Ended early.',
};

/** Visibility, REASON_: why nothing can be seen. */
export const UNSEEN = {
  no_picture: 'No picture came in time.',
  frozen: 'The same picture comes again and again.',
  dark: 'The picture is dark.',
  covered: 'The lens is covered: one colour, no contrast.',
  unusable: 'The segmenter cannot use this picture.',
};

/** PolicyStatus, STATUS_. */
export const STATUSES = {
  valuing: 'being valued',
  candidate: 'may act',
  refused: 'refused',
  vetoed: 'vetoed by the surgeon',
  replaced: 'replaced by another version',
};

/** OperationState, PROCEDURE_. */
export const PROCEDURES = {
  reach: 'Reach',
  palpation: 'Palpation',
  retraction: 'Retraction',
  incision: 'Incision',
  needle_pass: 'Needle pass',
  peg_transfer: 'Peg transfer',
  follow: 'Follow',
};

/** OperatingState, STATE_. */
export const ARM_STATES = {
  DISABLED: 'disabled',
  ENABLED: 'enabled',
  PAUSED: 'paused',
  FAULT: 'fault',
};

/** Progress, STAGE_. */
export const STAGES = {
  'collecting': 'collecting records',
  'waiting': 'waiting for a round',
  'training': 'training',
  'sending': 'sending its update',
  'home': 'training its home policy',
  'at home': 'home policy done',
};

/** RoundStatus: the phases of a round in order, and the states between rounds. */
export const PHASES = {
  OPEN: ['Open', 'Hospitals announce their round keys.'],
  SHARE: ['Share', 'Hospitals hand out sealed shares of their secrets.'],
  TRAIN: ['Train', 'Members train, mask, encrypt and send.'],
  INSPECT: ['Inspect', 'The key authority inspects each masked update.'],
  SKETCH: ['Sketch', 'Hospitals sign projections of their masks.'],
  SETTLE: ['Settle', 'Survivors sign who is in the sum.'],
  REVEAL: ['Reveal', 'Survivors reveal what takes the masks off the sum.'],
  SUM: ['Sum', 'Ciphertexts are added; the key authority decrypts the sum.'],
  RELEASED: ['Released', 'The policy of this round is published.'],
};
export const STANDING = {
  WAITING: 'Waiting: not started, just resumed, or for the key authority.',
  FAILED: 'The round failed: too few answered. It will be tried again.',
  PAUSED: 'Paused until an operator resumes.',
  FINISHED: 'Finished.',
};

/** Blame: what a hospital did. */
export const FAULTS = {
  PARCEL: 'sealed shares that their holder cannot open',
  COMPLAINT: 'complained about shares that are in order',
  REVEAL: 'revealed another share than it was dealt',
  DEAL: 'dealt shares of another secret than it published',
  SKETCH: 'signed false projections of a mask',
  UPDATE: 'sent an update that no honest hospital makes',
  MALFORMED: 'signed malformed projections',
  SILENT: 'was silent most often in a round that was abandoned',
};

/** Policies, DRIVER_. */
export const DRIVERS = { selector: 'Selector', surgeon: 'Surgeon' };

/** Privacy, UNIT_. */
export const UNITS = { patient: 'per patient', transition: 'per transition' };

/** What numbers of the same name mean, as docs/glossary.md defines them; shown on hover. */
export const DEFINITIONS = {
  test: 'The share of public patients on whom the new policy of a round succeeds in the key authority\u2019s test. Empty where the policy was rolled back.',
  trial: 'The share of public patients on whom a policy succeeds in the trial that a robot makes of it before its selector may choose it.',
};

/** Return the sentence for a word, or the word itself where it is new. */
export function sentence(table, word) {
  if (word === null || word === undefined || word === '') return '';
  return Object.hasOwn(table, word) ? table[word] : String(word);
}

/** Return the name of a policy for readers: `hospital_1` is hospital 1. */
export function policyName(name) {
  if (!name) return '\u2013';
  return String(name).replace(/^hospital_(\d+)$/, 'hospital $1');
}
