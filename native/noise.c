// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
//
// The sampled Gaussian mechanism's arithmetic, for fdrl_ros/privacy/{noise,mechanism}.py. No secret
// is kept here: keystreams come in, draws go out.

#include "kernels.h"

#include <float.h>
#include <math.h>

typedef double doubles __attribute__((vector_size(64), aligned(8)));
typedef int64_t longs __attribute__((vector_size(64), aligned(8)));
typedef uint64_t words_t __attribute__((vector_size(64), aligned(8)));

#define LANES 8

static const double PI = 3.141592653589793;

// -2 log((w + 1/2) / 2^64)
static inline doubles minus_twice_log(words_t w)
{
  const doubles value = __builtin_convertvector(w, doubles) + 0.5;
  // value = m 2^e with m from sqrt(1/2) to sqrt(2); log(m) = 2 artanh((m - 1) / (m + 1))
  const longs bits = (longs)value;
  const longs e = (bits - 0x3fe6a09e667f3bcd) >> 52;
  const doubles m = (doubles)(bits - (e << 52));
  const doubles s = (m - 1.0) / (m + 1.0), z = s * s;
  doubles series = 1.0 / 21.0 + z * (1.0 / 23.0);
  series = 1.0 / 19.0 + z * series;
  series = 1.0 / 17.0 + z * series;
  series = 1.0 / 15.0 + z * series;
  series = 1.0 / 13.0 + z * series;
  series = 1.0 / 11.0 + z * series;
  series = 1.0 / 9.0 + z * series;
  series = 1.0 / 7.0 + z * series;
  series = 1.0 / 5.0 + z * series;
  series = 1.0 / 3.0 + z * series;
  const doubles log_m = 2.0 * s + 2.0 * s * (z * series);
  const doubles whole = __builtin_convertvector(e - 64, doubles);
  return -2.0 * (whole * 0.6931471805599453 + log_m);
}

// Cosine and sine of 2 pi w / 2^64, w signed.
static inline void circle(longs w, doubles *cosine, doubles *sine)
{
  const longs quarter = (longs)((words_t)w + (UINT64_C(1) << 61)) >> 62;
  const longs left = (longs)((words_t)w - ((words_t)quarter << 62));
  const doubles r = __builtin_convertvector(left, doubles) * (2.0 * PI * 0x1p-64), z = r * r;
  doubles s = 1.0 / 6227020800.0 - z * (1.0 / 1307674368000.0);
  s = 1.0 / 39916800.0 - z * s;
  s = 1.0 / 362880.0 - z * s;
  s = 1.0 / 5040.0 - z * s;
  s = 1.0 / 120.0 - z * s;
  s = 1.0 / 6.0 - z * s;
  s = r - r * z * s;
  doubles c = 1.0 / 87178291200.0 - z * (1.0 / 20922789888000.0);
  c = 1.0 / 479001600.0 - z * c;
  c = 1.0 / 3628800.0 - z * c;
  c = 1.0 / 40320.0 - z * c;
  c = 1.0 / 720.0 - z * c;
  c = 1.0 / 24.0 - z * c;
  c = 0.5 - z * c;
  c = 1.0 - z * c;
  const longs swapped = -(quarter & 1);  // all ones where the quarter turns by 90 degrees
  const longs below = (quarter & 2) << 62, across = ((quarter + 1) & 2) << 62;
  *cosine = (doubles)((((longs)s & swapped) | ((longs)c & ~swapped)) ^ across);
  *sine = (doubles)((((longs)c & swapped) | ((longs)s & ~swapped)) ^ below);
}

static inline void pairs_of(const uint64_t *radii, const uint64_t *angles, double *first, double *second)
{
  const doubles square = minus_twice_log(*(const words_t *)radii);
  doubles radius, cosine, sine;
  for (int i = 0; i < LANES; i++) { radius[i] = sqrt(square[i]); }
  circle(*(const longs *)angles, &cosine, &sine);
  *(doubles *)first = radius * cosine;
  *(doubles *)second = radius * sine;
}

SIMD void fdrl_gaussian(const uint64_t *words, ptrdiff_t pairs, double *draws)
{
  ptrdiff_t i = 0;
  for (; i + LANES <= pairs; i += LANES) {
    pairs_of(words + i, words + pairs + i, draws + i, draws + pairs + i);
  }
  if (i < pairs) {
    uint64_t radii[LANES] = {0}, angles[LANES] = {0};
    double first[LANES], second[LANES];
    for (ptrdiff_t k = i; k < pairs; k++) {
      radii[k - i] = words[k];
      angles[k - i] = words[pairs + k];
    }
    pairs_of(radii, angles, first, second);
    for (ptrdiff_t k = i; k < pairs; k++) {
      draws[k] = first[k - i];
      draws[pairs + k] = second[k - i];
    }
  }
}

SIMD int fdrl_noisy_mean(
  ptrdiff_t size, const double *sum, const double *noise, double grid, double steps,
  double share, double *mean)
{
  const double per_step = 1.0 / grid;  // exact: the grid is a power of two
  int64_t wrong = 0;
  for (ptrdiff_t i = 0; i < size; i++) {
    const double each = (rint(sum[i] * per_step) + rint(noise[i] * steps)) * share;
    wrong |= !(fabs(each) <= DBL_MAX);
    mean[i] = each;
  }
  return wrong ? FDRL_NOT_FINITE : FDRL_DONE;
}

ptrdiff_t fdrl_joined(
  const uint64_t *words, ptrdiff_t count, double log_stay, int64_t units, int64_t *last,
  int64_t *joined)
{
  const double below_one = 1.0 - 0x1p-53;
  ptrdiff_t found = 0;
  for (ptrdiff_t i = 0; i < count && *last < units; i++) {
    const double coin = fmin(((double)words[i] + 0.5) * 0x1p-64, below_one);
    const double gap = fmin(log(coin) / log_stay, (double)units);
    *last += (int64_t)gap + 1;
    if (*last < units) { joined[found++] = *last; }
  }
  return found;
}
