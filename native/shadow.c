// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
//
// Many steps of a hospital's local training in one call, for the shadow models of an attacker.
// fdrl_ros/learner/trainer.py says what is computed; here is the same arithmetic in the same order,
// so that the weights are the same bit for bit. No ledger is charged: nothing of it is released.

#include "layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// A contracted multiplication and addition would round once where NumPy rounds twice.
#if defined(__GNUC__) && !defined(__clang__)
#define AS_WRITTEN __attribute__((optimize("fp-contract=off")))
#else
#pragma STDC FP_CONTRACT OFF
#define AS_WRITTEN
#endif

// The step of plain descent or of Adam (fdrl_ros/learner/optimizer.py) along a gradient.
SIMD AS_WRITTEN static void descend(
  const fdrl_descent *how, ptrdiff_t size, ptrdiff_t count, const float *anchor,
  const double *gradient, double *first, double *second, double *weights)
{
  const double pull = how->proximal;
  if (!how->adam) {
    for (ptrdiff_t i = 0; i < size; i++) {
      double slope = gradient[i];
      if (pull != 0.0) { slope += pull * (weights[i] - (double)anchor[i]); }
      weights[i] += slope * -how->rate;
    }
    return;
  }
  const double mean_share = 1.0 - how->mean_decay, square_share = 1.0 - how->square_decay;
  const double mean_part = 1.0 - pow(how->mean_decay, (double)count);
  const double square_part = 1.0 - pow(how->square_decay, (double)count);
  for (ptrdiff_t i = 0; i < size; i++) {
    double slope = gradient[i];
    if (pull != 0.0) { slope += pull * (weights[i] - (double)anchor[i]); }
    first[i] += mean_share * (slope - first[i]);
    second[i] += square_share * (slope * slope - second[i]);
    const double mean = first[i] / mean_part, square = second[i] / square_part;
    weights[i] += -how->rate * mean / (sqrt(square) + 1e-8);
  }
}

SIMD static void narrow(ptrdiff_t size, const double *from, float *to)
{
  for (ptrdiff_t i = 0; i < size; i++) { to[i] = (float)from[i]; }
}

int fdrl_local_steps(
  const fdrl_network *net, const fdrl_loss *loss, const fdrl_descent *how, const float *anchor,
  const float *table, ptrdiff_t length, const int64_t *joined, const int64_t *starts,
  ptrdiff_t steps, const double *noise, double *weights)
{
  const ptrdiff_t size =
    start_of(net, net->shared) + (width(net, net->shared) + 1) * (1 + net->actions);
  double *sum = calloc((size_t)size, 3 * sizeof(double) + 2 * sizeof(float));
  if (!sum) { return FDRL_NO_MEMORY; }
  double *first = sum + size, *second = first + size;
  float *current = (float *)(second + size), *target = current + size;
  int done = FDRL_DONE;
  for (ptrdiff_t step = 0; step < steps && done == FDRL_DONE; step++) {
    narrow(size, weights, current);
    if (step % how->target_period == 0) { memcpy(target, current, (size_t)size * sizeof(float)); }
    const ptrdiff_t units = starts[step + 1] - starts[step];
    if (units) {
      done = fdrl_drawn(
        net, loss, current, target, table, length, joined + starts[step], units, 1, NULL,
        how->limit, sum);
    } else {
      memset(sum, 0, (size_t)size * sizeof(double));
    }
    if (done != FDRL_DONE) { break; }
    if (noise) {
      done = fdrl_noisy_mean(
        size, sum, noise + step * size, how->grid, how->per_noise, how->share, sum);
    } else {
      for (ptrdiff_t i = 0; i < size; i++) { sum[i] /= how->batch; }
    }
    if (done == FDRL_DONE) {
      descend(how, size, step + 1, anchor, sum, first, second, weights);
    }
  }
  free(sum);
  return done;
}
