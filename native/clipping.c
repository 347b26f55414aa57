// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
//
// Clip each unit's gradient and sum (DP-DQN Alg. 1), from what network.c left in a trace.
// fdrl_ros/trainer/gradient.py says what is computed; this file how.

#include "layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMED_FROM 5  // transitions of a unit: from so many on, its gradient is formed

// One layer of a trace.
typedef struct {
  const float *inputs, *outputs;
  ptrdiff_t width, height, in_stride, out_stride;
  double *matrix, *bias;  // where the sum goes; of a head: the value's
  double *rest, *rest_bias;  // of a head: the advantage's
} traced;

static traced layer_of(const fdrl_network *net, const float *trace, ptrdiff_t rows, int l, double *total)
{
  const int head = l == net->shared;
  const ptrdiff_t wide = width(net, l), high = head ? 1 + net->actions : width(net, l + 1);
  double *at = total ? total + start_of(net, l) - start_of(net, net->frozen) : NULL;
  traced layer = {
    .inputs = trace + fdrl_trace_inputs(net, rows, l),
    .outputs = trace + fdrl_trace_outputs(net, rows, l),
    .width = wide, .height = high, .in_stride = padded(wide), .out_stride = padded(high),
    .matrix = at, .bias = at + (head ? wide : wide * high),
    .rest = at + wide + 1, .rest_bias = at + wide + 1 + wide * net->actions,
  };
  return layer;
}

// Where row `j` of a layer's matrix, and its bias, lie in the sum.
static double *line_of(const traced *layer, int head, ptrdiff_t j, double **bias)
{
  if (head && j) {
    *bias = layer->rest_bias + j - 1;
    return layer->rest + (j - 1) * layer->width;
  }
  *bias = layer->bias + j;
  return layer->matrix + j * layer->width;
}

static inline float sum_of(floats each)
{
  float sum = 0.0f;
  for (int i = 0; i < LANES; i++) { sum += each[i]; }
  return sum;
}

SIMD static float dot(ptrdiff_t size, const float *a, const float *b)
{
  floats sum = {0};
  for (ptrdiff_t i = 0; i < size; i += LANES) {
    sum += *(const floats *)(a + i) * *(const floats *)(b + i);
  }
  return sum_of(sum);
}

// ||sum_t o_t i_t'||^2 = sum over t, u of (o_t . o_u)(i_t . i_u), 1 for the bias
static double square_of(const traced *layer, ptrdiff_t first, ptrdiff_t transitions)
{
  double sum = 0.0;
  for (ptrdiff_t t = 0; t < transitions; t++) {
    const float *ot = layer->outputs + (first + t) * layer->out_stride;
    const float *it = layer->inputs + (first + t) * layer->in_stride;
    for (ptrdiff_t u = 0; u <= t; u++) {
      const float outer = dot(layer->out_stride, ot, layer->outputs + (first + u) * layer->out_stride);
      const float inner = dot(layer->in_stride, it, layer->inputs + (first + u) * layer->in_stride);
      sum += (u < t ? 2.0 : 1.0) * (double)outer * ((double)inner + 1.0);
    }
  }
  return sum > 0.0 || isnan(sum) ? sum : 0.0;
}

// sum = o' i over rows, 4 outputs at once: columns of i a multiple of 16, of o of 4.
SIMD static void outer_sum(
  ptrdiff_t rows, ptrdiff_t height, ptrdiff_t columns, const double *outputs,
  const double *inputs, double *sum)
{
  for (ptrdiff_t j = 0; j < height; j += BLOCK) {
    for (ptrdiff_t i = 0; i < columns; i += LANES) {
      doubles a0 = {0}, a1 = {0}, a2 = {0}, a3 = {0}, b0 = {0}, b1 = {0}, b2 = {0}, b3 = {0};
      for (ptrdiff_t r = 0; r < rows; r++) {
        const double *o = outputs + r * height + j;
        const doubles a = *(const doubles *)(inputs + r * columns + i);
        const doubles b = *(const doubles *)(inputs + r * columns + i + LANES / 2);
        a0 += o[0] * a; b0 += o[0] * b;
        a1 += o[1] * a; b1 += o[1] * b;
        a2 += o[2] * a; b2 += o[2] * b;
        a3 += o[3] * a; b3 += o[3] * b;
      }
      double *to = sum + j * columns + i;
      *(doubles *)to = a0; *(doubles *)(to + LANES / 2) = b0;
      to += columns;
      *(doubles *)to = a1; *(doubles *)(to + LANES / 2) = b1;
      to += columns;
      *(doubles *)to = a2; *(doubles *)(to + LANES / 2) = b2;
      to += columns;
      *(doubles *)to = a3; *(doubles *)(to + LANES / 2) = b3;
    }
  }
}

SIMD static void widen(ptrdiff_t size, const float *from, double factor, double *to)
{
  for (ptrdiff_t i = 0; i < size; i++) { to[i] = factor * (double)from[i]; }
}

// The sum of all units' clipped gradients, none of which is formed.
static int sum_of_factors(
  const fdrl_network *net, const float *trace, ptrdiff_t units, ptrdiff_t transitions,
  const double *factors, double *total)
{
  const ptrdiff_t rows = units * transitions;
  ptrdiff_t wide = 0, high = 0;
  for (int l = net->frozen; l <= net->shared; l++) {
    const traced layer = layer_of(net, trace, rows, l, total);
    wide = most(wide, layer.in_stride);
    high = most(high, layer.out_stride);
  }
  double *room = malloc((size_t)(rows * (wide + high) + wide * high) * sizeof(double));
  if (!room) { return FDRL_NO_MEMORY; }
  double *inputs = room, *outputs = room + rows * wide, *sum = outputs + rows * high;
  for (int l = net->frozen; l <= net->shared; l++) {
    const traced layer = layer_of(net, trace, rows, l, total);
    const ptrdiff_t height = rows_of(layer.height);
    widen(rows * layer.in_stride, layer.inputs, 1.0, inputs);
    for (ptrdiff_t r = 0; r < rows; r++) {
      widen(height, layer.outputs + r * layer.out_stride, factors[r / transitions], outputs + r * height);
    }
    outer_sum(rows, height, layer.in_stride, outputs, inputs, sum);
    for (ptrdiff_t j = 0; j < layer.height; j++) {
      double *bias, *line = line_of(&layer, l == net->shared, j, &bias), added = 0.0;
      memcpy(line, sum + j * layer.in_stride, (size_t)layer.width * sizeof(double));
      for (ptrdiff_t r = 0; r < rows; r++) { added += outputs[r * height + j]; }
      *bias = added;
    }
  }
  free(room);
  return FDRL_DONE;
}

// A unit's gradient of one layer, (height padded to 4, stride), and of its biases.
SIMD static void form(const traced *layer, ptrdiff_t first, ptrdiff_t transitions, float *matrix, float *bias)
{
  const ptrdiff_t height = rows_of(layer->height), columns = layer->in_stride;
  const float *outputs = layer->outputs + first * layer->out_stride;
  const float *inputs = layer->inputs + first * columns;
  for (ptrdiff_t j = 0; j < height; j += BLOCK) {
    for (ptrdiff_t i = 0; i < columns; i += LANES) {
      floats c0 = {0}, c1 = {0}, c2 = {0}, c3 = {0};
      for (ptrdiff_t t = 0; t < transitions; t++) {
        const float *o = outputs + t * layer->out_stride + j;
        const floats line = *(const floats *)(inputs + t * columns + i);
        c0 += o[0] * line;
        c1 += o[1] * line;
        c2 += o[2] * line;
        c3 += o[3] * line;
      }
      float *to = matrix + j * columns + i;
      *(floats *)to = c0;
      *(floats *)(to + columns) = c1;
      *(floats *)(to + 2 * columns) = c2;
      *(floats *)(to + 3 * columns) = c3;
    }
  }
  for (ptrdiff_t j = 0; j < layer->out_stride; j += LANES) {
    floats sum = {0};
    for (ptrdiff_t t = 0; t < transitions; t++) {
      sum += *(const floats *)(outputs + t * layer->out_stride + j);
    }
    *(floats *)(bias + j) = sum;
  }
}

SIMD static void add_scaled(ptrdiff_t size, double factor, const float *from, double *to)
{
  for (ptrdiff_t i = 0; i < size; i++) { to[i] += factor * (double)from[i]; }
}

// What a unit's gradient is multiplied by, and whether its norm is a number.
static double factor_of(double square, double limit)
{
  const double norm = sqrt(square);
  return norm > limit ? limit / norm : 1.0;
}

// The same sum, each unit's gradient formed: cheaper where a unit has many transitions.
static int sum_of_formed(
  const fdrl_network *net, const float *trace, ptrdiff_t units, ptrdiff_t transitions,
  double limit, double *total)
{
  const ptrdiff_t rows = units * transitions;
  ptrdiff_t size = 0;
  for (int l = net->frozen; l <= net->shared; l++) {
    const traced layer = layer_of(net, trace, rows, l, total);
    size += rows_of(layer.height) * layer.in_stride + layer.out_stride;
  }
  float *room = malloc((size_t)size * sizeof(float));
  if (!room) { return FDRL_NO_MEMORY; }
  for (ptrdiff_t unit = 0; unit < units; unit++) {
    double square = 0.0;
    float *at = room;
    for (int l = net->frozen; l <= net->shared; l++) {
      const traced layer = layer_of(net, trace, rows, l, total);
      const ptrdiff_t area = rows_of(layer.height) * layer.in_stride;
      form(&layer, unit * transitions, transitions, at, at + area);
      square += (double)dot(area, at, at) + (double)dot(layer.out_stride, at + area, at + area);
      at += area + layer.out_stride;
    }
    if (!isfinite(square)) {
      free(room);
      return FDRL_NOT_FINITE;
    }
    const double factor = factor_of(square, limit);
    at = room;
    for (int l = net->frozen; l <= net->shared; l++) {
      const traced layer = layer_of(net, trace, rows, l, total);
      const float *biases = at + rows_of(layer.height) * layer.in_stride;
      for (ptrdiff_t j = 0; j < layer.height; j++) {
        double *bias, *line = line_of(&layer, l == net->shared, j, &bias);
        add_scaled(layer.width, factor, at + j * layer.in_stride, line);
        *bias += factor * (double)biases[j];
      }
      at += rows_of(layer.height) * layer.in_stride + layer.out_stride;
    }
  }
  free(room);
  return FDRL_DONE;
}

int fdrl_clipped_sum(
  const fdrl_network *net, const float *trace, ptrdiff_t units, ptrdiff_t transitions,
  double limit, double *total)
{
  if (transitions >= FORMED_FROM) {
    memset(total, 0, (size_t)(start_of(net, net->shared) - start_of(net, net->frozen) +
      (width(net, net->shared) + 1) * (1 + net->actions)) * sizeof(double));
    return sum_of_formed(net, trace, units, transitions, limit, total);
  }
  double *factors = malloc((size_t)units * sizeof(double));
  if (!factors) { return FDRL_NO_MEMORY; }
  for (ptrdiff_t unit = 0; unit < units; unit++) {
    double square = 0.0;
    for (int l = net->frozen; l <= net->shared; l++) {
      const traced layer = layer_of(net, trace, units * transitions, l, NULL);
      square += square_of(&layer, unit * transitions, transitions);
    }
    if (!isfinite(square)) {
      free(factors);
      return FDRL_NOT_FINITE;
    }
    factors[unit] = factor_of(square, limit);
  }
  const int done = sum_of_factors(net, trace, units, transitions, factors, total);
  free(factors);
  return done;
}
