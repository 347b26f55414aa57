// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
//
// How a network's weights, and a trace of its rows, lie in memory. Rows are padded to 4 and columns
// to 16, with zeros, so that no loop has a remainder.

#ifndef FDRL_ROS__LAYOUT_H_
#define FDRL_ROS__LAYOUT_H_

#include "kernels.h"

#define LANES FDRL_LANES
#define BLOCK 4

typedef float floats __attribute__((vector_size(64), aligned(4)));
typedef int32_t ints __attribute__((vector_size(64), aligned(4)));
typedef double doubles __attribute__((vector_size(64), aligned(8)));

static inline ptrdiff_t padded(ptrdiff_t size) { return (size + LANES - 1) / LANES * LANES; }

static inline ptrdiff_t rows_of(ptrdiff_t rows) { return (rows + BLOCK - 1) / BLOCK * BLOCK; }

static inline ptrdiff_t most(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }

// Numbers that enter dense layer `l`: the shared ones, then the head.
static inline ptrdiff_t width(const fdrl_network *net, int l) { return net->sizes[l]; }

// Where the matrix of shared layer `l`, or of the value at l = shared, begins in flat weights.
static inline ptrdiff_t start_of(const fdrl_network *net, int l)
{
  ptrdiff_t start = 0;
  for (int i = 0; i < l; i++) { start += (width(net, i) + 1) * width(net, i + 1); }
  return start;
}

#endif  // FDRL_ROS__LAYOUT_H_
