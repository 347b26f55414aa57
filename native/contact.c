// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
//
// What fdrl_ros/shield/prediction.py tells of many contacts, for that of one robot: its formulas
// in its order, so that both give the same numbers to rounding. The reasons stand there.

#include "kernels.h"

#include <math.h>

#define POWER (2.0 / 3.0)
#define ROOT (1.0 / (1.0 + POWER))
#define TINY 1e-9
#define SLACK 1e-9
#define FRESH 2.0
#define LEAST_DEPTH 1e-6
#define ROUNDING 1e-9

static inline double most(double a, double b) { return a > b ? a : b; }

static inline double least(double a, double b) { return a < b ? a : b; }

// Force to the power 2/3; none below 0.
static inline double root_of(double force) { return force > 0.0 ? pow(force, POWER) : 0.0; }

static inline int row_of(double place, int rows)
{
  place = ceil(place - ROUNDING);
  return place > 0.0 ? (place < rows ? (int)place : rows - 1) : 0;
}

static inline int row_of_speed(const fdrl_contact *contact, double speed)
{
  return row_of((speed + contact->speed) / contact->speed_step, FDRL_SPEEDS);
}

static inline double inside(const fdrl_contact *contact, double high, double slow, double sinking)
{
  return high / pow(1.0 + contact->damping * least(slow + sinking, 0.0), POWER);
}

static inline double grown(
  const double now, double slow, double then, double fast, double damping)
{
  return now / pow(1.0 + damping * slow, POWER) - then / pow(1.0 + damping * fast, POWER);
}

static double gained(double now, double slow, double then, double fast, double worst)
{
  const double found = grown(now, slow, then, fast, worst);
  const double late = now * slow, early = then * fast;
  if (late > TINY && early > late) {
    const double share = pow(early / late, ROOT), span = fast - share * slow;
    if (share - 1.0 < worst * span) {
      return most(found, grown(now, slow, then, fast, (share - 1.0) / span));
    }
  }
  return found;
}

// Least and greatest speed downwards of a tip so far above its set-point.
static void speeds_of(
  const fdrl_contact *contact, double lag, double slow, double *lowest, double *highest)
{
  const double low = lag - contact->position_error, high = lag + contact->position_error;
  *lowest = most(least(low * slow, low * contact->quick), -contact->fastest);
  *highest = least(most(high * slow, high * contact->quick), contact->fastest);
}

int fdrl_look(
  const fdrl_contact *contact, const fdrl_kind *kinds, double force, double before, double lag,
  double lag_before, double sunk, double room, double room_ever, int pending, int level,
  double aside, double interval, fdrl_outlook *found)
{
  const double sum = force + before + lag + lag_before + aside + interval;
  if (!isfinite(sum) || isnan(room) || isnan(room_ever) || isinf(sunk) || interval <= 0.0) {
    return FDRL_NOT_FINITE;
  }
  if (pending < 0 || pending >= FDRL_PENDING || level < 0 || level >= FDRL_LEVELS) {
    return FDRL_NO_ROW;
  }
  const double error = contact->force_error, top = contact->speed, worst = contact->damping;
  const double change = contact->turn * interval, off = 2.0 * contact->position_error;
  const int known = !isnan(sunk);
  const double high = root_of(force + error), low = root_of(force - error);
  const double high_then = root_of(before + error), low_then = root_of(before - error);
  const int risen = known && low_then > 0.0, fallen = known && low > 0.0;
  double now_least, now_most, then_least, then_most;
  speeds_of(contact, lag, contact->slow[level], &now_least, &now_most);
  speeds_of(contact, lag_before, contact->slow[level], &then_least, &then_most);
  const double slow_now = now_least - change, slow_then = then_least - change;
  const double fast_now = most(now_most + change, slow_then);
  const double fast_then = most(then_most + change, slow_now);
  const double gone = known ? 2.0 * change : 2.0 * top;
  const double drift = known ? sunk / interval : 0.0;
  const double slid = change + (contact->slope * aside + off) / interval;
  int left = 0;
  for (int i = 0; i < FDRL_KINDS; i++) {
    const double soft = contact->ends[i], stiff = contact->ends[i + 1];
    const fdrl_kind kind = kinds[i];
    if (kind.slow > kind.fast) {
      found->kinds[i] = kind;
      continue;
    }
    const double ends[2] = {most(kind.slow - change, -top), least(kind.fast + change, top)};
    double slow = most(kind.slow - gone, -top), fast = least(kind.fast + gone, top);
    if (risen) {
      double growth = high - low_then;
      for (int end = 0; end < 2; end++) {
        const double v = ends[end];
        growth = most(growth, gained(high, v + slow_now, low_then, v + fast_then, worst));
      }
      const double kappa = growth > 0.0 ? soft : stiff;
      fast = least(fast, growth / (interval * kappa) + (slid - drift));
    }
    if (fallen) {
      double fall = high_then - low;
      for (int end = 0; end < 2; end++) {
        const double v = ends[end];
        fall = most(fall, gained(high_then, v + slow_then, low, v + fast_now, worst));
      }
      const double kappa = fall > 0.0 ? soft : stiff;
      slow = most(slow, (-slid - drift) - fall / (interval * kappa));
    }
    const int agrees = slow <= fast + SLACK;
    left |= agrees;
    if (kind.doubt == FRESH) {
      found->kinds[i] = (fdrl_kind){-top, top, 1.0};
    } else if (agrees) {
      found->kinds[i] = (fdrl_kind){least(slow, fast), fast, kind.doubt};
    } else if (kind.doubt == 0.0) {
      found->kinds[i] = (fdrl_kind){-top, top, FRESH};
    } else {
      found->kinds[i] = (fdrl_kind){top, -top, kind.doubt};
    }
  }
  found->softest = contact->ends[FDRL_KINDS];
  found->stiffest = contact->ends[0];
  double slowest = top;
  found->speed = -top;
  for (int i = 0; i < FDRL_KINDS; i++) {
    if (!left) { found->kinds[i] = (fdrl_kind){-top, top, 0.0}; }
    const fdrl_kind kind = found->kinds[i];
    if (kind.slow <= kind.fast) {
      found->softest = least(found->softest, contact->ends[i]);
      found->stiffest = most(found->stiffest, contact->ends[i + 1]);
      slowest = least(slowest, kind.slow);
      found->speed = most(found->speed, kind.fast);
    }
  }
  found->high = high;
  found->sinking = now_least;
  found->contact = inside(contact, high, slowest, now_least);
  found->fast = row_of_speed(contact, found->speed);
  found->far =
    row_of((lag + contact->position_error + contact->reach) / contact->lag_step, FDRL_BEHIND);
  found->room = room;
  found->room_ever = room_ever;
  found->pending = pending;
  found->level = level;
  return FDRL_DONE;
}

// Greatest d (1 + lambda v)^(2/3) that can come about from a depth on, by one row of the table.
static double reached(const fdrl_contact *contact, const double *row, double depth)
{
  const double *depths = contact->depths;
  int place = 1;
  while (place < FDRL_DEPTHS - 1 && depths[place] <= depth) { place++; }
  const double low = depths[place - 1], high = depths[place];
  const double share = least(most((depth - low) / (high - low), 0.0), 1.0);
  const double beyond = most(depth - depths[FDRL_DEPTHS - 1], 0.0);
  return row[place - 1] + share * (row[place] - row[place - 1]) + beyond * contact->steep;
}

// Greatest kappa d (1 + lambda v)^(2/3) there can be for kappa between soft and stiff.
static double within(
  const fdrl_contact *contact, const fdrl_outlook *seen, int move, int fast, double deeper,
  double deepest, double soft, double stiff, double felt)
{
  const ptrdiff_t place =
    ((seen->level * FDRL_SPEEDS + fast) * FDRL_BEHIND + seen->far) * FDRL_PENDING + seen->pending;
  const double *row = contact->felt + (place * FDRL_MOVES + move) * FDRL_DEPTHS;
  const double above = -seen->room;
  double depth = least(felt / stiff, above) + deeper;
  const double x = most(stiff * least(reached(contact, row, depth), deepest), 0.0);
  soft = least(most(felt / most(above, LEAST_DEPTH), soft), stiff);
  depth = least(felt / soft, above) + deeper;
  return most(x, soft * least(reached(contact, row, depth), deepest));
}

double fdrl_force(
  const fdrl_contact *contact, const fdrl_outlook *seen, int move, double aside, double enough)
{
  if (move < 0 || move >= FDRL_MOVES || !isfinite(aside) || isnan(enough)) { return NAN; }
  const double deeper = contact->slope * aside;
  const ptrdiff_t place = (seen->level * FDRL_BEHIND + seen->far) * FDRL_PENDING + seen->pending;
  double deepest = contact->sink[place * FDRL_MOVES + move] - seen->room_ever + deeper;
  if (deepest <= 0.0) { return 0.0; }
  deepest *= contact->steep;
  const double whole = within(
    contact, seen, move, seen->fast, deeper, deepest, seen->softest, seen->stiffest,
    seen->contact);
  if (whole * sqrt(whole) <= enough) { return whole * sqrt(whole); }
  double worst = 0.0;
  for (int i = 0; i < FDRL_KINDS; i++) {
    const fdrl_kind kind = seen->kinds[i];
    if (kind.slow <= kind.fast) {
      const double felt = inside(contact, seen->high, kind.slow, seen->sinking);
      worst = most(
        worst, within(
                 contact, seen, move, row_of_speed(contact, kind.fast), deeper, deepest,
                 contact->ends[i], contact->ends[i + 1], felt));
    }
  }
  return worst * sqrt(worst);
}
