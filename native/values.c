// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
//
// What all candidates are worth in one state, as fdrl_ros/selector/value/bank.py has it in NumPy.

#include "kernels.h"

#include <math.h>
#include <string.h>

typedef double doubles __attribute__((vector_size(64), aligned(8)));

#define LANES 8

static inline double clipped(double value, double low, double high)
{
  return value > low ? (value < high ? value : high) : low;
}

// Rows of a matrix with one column: both filled up with zeros to a multiple of LANES.
SIMD static void products(
  ptrdiff_t rows, ptrdiff_t stride, const double *matrix, const double *column, double *found)
{
  for (ptrdiff_t row = 0; row < rows; row++, matrix += stride) {
    doubles sum = {0.0}, other = {0.0}, a, b;
    ptrdiff_t place = 0;
    for (; place + 2 * LANES <= stride; place += 2 * LANES) {
      memcpy(&a, matrix + place, sizeof a);
      memcpy(&b, column + place, sizeof b);
      sum += a * b;
      memcpy(&a, matrix + place + LANES, sizeof a);
      memcpy(&b, column + place + LANES, sizeof b);
      other += a * b;
    }
    if (place < stride) {
      memcpy(&a, matrix + place, sizeof a);
      memcpy(&b, column + place, sizeof b);
      sum += a * b;
    }
    sum += other;
    found[row] = ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
  }
}

// The hidden features before tanh: the offset, and each number of the state times its row.
SIMD static void project(
  ptrdiff_t size, ptrdiff_t count, const double *projection, const double *expanded,
  double *hidden)
{
  memcpy(hidden, projection, count * sizeof *hidden);
  for (ptrdiff_t i = 1; i <= size; i++) {
    const double number = expanded[i], *row = projection + i * count;
    for (ptrdiff_t j = 0; j < count; j++) { hidden[j] += number * row[j]; }
  }
}

void fdrl_values(const fdrl_bank *bank, const double *state, double *found)
{
  const ptrdiff_t count = bank->candidates, size = bank->size, members = bank->members;
  double *means = found, *stds = found + 2 * count, *strangeness = found + 3 * count;
  double *deviations = found + 4 * count, *expanded = deviations + members * count;
  memset(expanded, 0, bank->stride * sizeof *expanded);
  expanded[0] = 1.0;
  for (ptrdiff_t i = 0; i < size; i++) {
    expanded[1 + i] = clipped(state[i], -bank->reach, bank->reach);
  }
  double *hidden = expanded + 1 + size;
  project(size, bank->features, bank->projection, expanded, hidden);
  for (ptrdiff_t j = 0; j < bank->features; j++) { hidden[j] = tanh(hidden[j]); }
  const double *matrix = bank->matrix;
  products(2 * count, bank->stride, matrix, expanded, means);
  products(members * count, bank->stride, matrix + 2 * count * bank->stride, expanded, deviations);
  for (ptrdiff_t each = 0; each < count; each++) {
    const double *low = bank->low + each * size, *high = bank->high + each * size;
    const double *rate = bank->rate + each * size, *own = deviations + each * members;
    double strange = 0.0, spread = 0.0;
    for (ptrdiff_t i = 0; i < size; i++) {
      const double beyond = (clipped(state[i], low[i], high[i]) - state[i]) * rate[i];
      strange += beyond * beyond;
    }
    for (ptrdiff_t k = 0; k < members; k++) { spread += own[k] * own[k]; }
    strangeness[each] = strange;
    stds[each] = sqrt(spread + strange + bank->misfits[each]);
  }
}

void fdrl_advantages(
  ptrdiff_t count, ptrdiff_t members, ptrdiff_t than, double factor, const double *means,
  const double *deviations, const double *strangeness, double *found)
{
  const double *other = deviations + than * members;
  for (ptrdiff_t each = 0; each < count; each++) {
    const double *own = deviations + each * members;
    double spread = strangeness[each] + strangeness[than];
    for (ptrdiff_t k = 0; k < members; k++) {
      spread += (own[k] - other[k]) * (own[k] - other[k]);
    }
    found[each] = means[each] - means[than] - factor * sqrt(spread);
  }
  found[than] = 0.0;
}
