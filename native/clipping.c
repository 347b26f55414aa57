// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
//
// Clip each unit's gradient and sum (DP-DQN Alg. 1), from what network.c left in a trace.
// fdrl_ros/learner/gradient.py says what is computed; this file how.

#include "layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// One layer of a trace.
typedef struct {
  const float *inputs, *outputs;
  ptrdiff_t width, height, in_stride, out_stride;
  double *matrix, *bias;  // where the sum goes; of a head: the value's
  double *rest, *rest_bias;  // of a head: the advantage's
  int trained;
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
    .trained = net->trained[l],
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

// What of output `j` of a layer is trained.
static inline int trained_of(const traced *layer, ptrdiff_t j)
{
  return layer->trained >> (j ? 2 : 0) & (FDRL_MATRIX | FDRL_BIAS);
}

// ||o i'||^2 = |o|^2 (|i|^2 + 1), 1 for the bias; of what is trained alone
static double square_of(const traced *layer, ptrdiff_t row)
{
  const float *o = layer->outputs + row * layer->out_stride;
  const float *i = layer->inputs + row * layer->in_stride;
  const double inputs = (double)dot(layer->in_stride, i, i);
  if (layer->trained == FDRL_WHOLE) { return (double)dot(layer->out_stride, o, o) * (inputs + 1.0); }
  double square = 0.0;
  for (ptrdiff_t j = 0; j < layer->height; j++) {
    const int parts = trained_of(layer, j);
    if (parts & FDRL_MATRIX) { square += (double)o[j] * (double)o[j] * inputs; }
    if (parts & FDRL_BIAS) { square += (double)o[j] * (double)o[j]; }
  }
  return square;
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

// What a unit's gradient is multiplied by; 0 where it is not finite and adds nothing.
static double factor_of(double square, double limit)
{
  if (!isfinite(square)) { return 0.0; }
  const double norm = sqrt(square);
  return norm > limit ? limit / norm : 1.0;
}

// The sum of the clipped gradients of units of one row each, none of which is formed.
static int sum_of_rows(
  const fdrl_network *net, const float *trace, ptrdiff_t rows, double limit, double *total)
{
  ptrdiff_t wide = 0, high = 0;
  for (int l = net->frozen; l <= net->shared; l++) {
    const traced layer = layer_of(net, trace, rows, l, total);
    wide = most(wide, layer.in_stride);
    high = most(high, layer.out_stride);
  }
  double *room = malloc((size_t)(rows * (wide + high + 1) + wide * high) * sizeof(double));
  if (!room) { return FDRL_NO_MEMORY; }
  double *inputs = room, *outputs = room + rows * wide, *sum = outputs + rows * high;
  double *factors = sum + wide * high;
  for (ptrdiff_t r = 0; r < rows; r++) {
    double square = 0.0;
    for (int l = net->frozen; l <= net->shared; l++) {
      const traced layer = layer_of(net, trace, rows, l, total);
      square += square_of(&layer, r);
    }
    factors[r] = factor_of(square, limit);
  }
  for (int l = net->frozen; l <= net->shared; l++) {
    const traced layer = layer_of(net, trace, rows, l, total);
    if (!layer.trained) { continue; }  // nobody asks for its sum
    const ptrdiff_t height = rows_of(layer.height);
    for (ptrdiff_t r = 0; r < rows; r++) {
      double *o = outputs + r * height, *i = inputs + r * layer.in_stride;
      if (factors[r] == 0.0) {  // what is not finite would stay so, times 0
        memset(o, 0, (size_t)height * sizeof(double));
        memset(i, 0, (size_t)layer.in_stride * sizeof(double));
        continue;
      }
      widen(height, layer.outputs + r * layer.out_stride, factors[r], o);
      widen(layer.in_stride, layer.inputs + r * layer.in_stride, 1.0, i);
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

// Clear what is not trained of a layer's formed gradient.
static void clear_frozen(const traced *layer, float *matrix, float *bias)
{
  if (layer->trained == FDRL_WHOLE) { return; }
  for (ptrdiff_t j = 0; j < layer->height; j++) {
    const int parts = trained_of(layer, j);
    if (!(parts & FDRL_MATRIX)) {
      memset(matrix + j * layer->in_stride, 0, (size_t)layer->in_stride * sizeof(float));
    }
    if (!(parts & FDRL_BIAS)) { bias[j] = 0.0f; }
  }
}

SIMD static void add_scaled(ptrdiff_t size, double factor, const float *from, double *to)
{
  for (ptrdiff_t i = 0; i < size; i++) { to[i] += factor * (double)from[i]; }
}

// The same of units of several rows. Each gradient is formed, so that its norm is that of the very
// numbers that are added: one put together from products of rows rounds away where they cancel.
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
      clear_frozen(&layer, at, at + area);
      square += (double)dot(area, at, at) + (double)dot(layer.out_stride, at + area, at + area);
      at += area + layer.out_stride;
    }
    const double factor = factor_of(square, limit);
    if (factor == 0.0) { continue; }
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
  if (transitions == 1) { return sum_of_rows(net, trace, units, limit, total); }
  memset(total, 0, (size_t)(start_of(net, net->shared) - start_of(net, net->frozen) +
    (width(net, net->shared) + 1) * (1 + net->actions)) * sizeof(double));
  return sum_of_formed(net, trace, units, transitions, limit, total);
}

int fdrl_drawn(
  const fdrl_network *net, const fdrl_loss *loss, const float *weights, const float *target,
  const float *table, ptrdiff_t length, const int64_t *index, ptrdiff_t units,
  ptrdiff_t transitions, const float *scales, double limit, double *total)
{
  const ptrdiff_t rows = units * transitions, size = net->sizes[0], line = 2 * size + 3;
  const ptrdiff_t traced_size = fdrl_trace_size(net, rows);
  int64_t *actions = malloc(
    (size_t)rows * (sizeof(int64_t) + (size_t)(2 * size + 2) * sizeof(float)) +
    (size_t)traced_size * sizeof(float));
  if (!actions) { return FDRL_NO_MEMORY; }
  float *states = (float *)(actions + rows), *next = states + rows * size;
  float *rewards = next + rows * size, *discounts = rewards + rows, *trace = discounts + rows;
  int done = FDRL_DONE;
  for (ptrdiff_t r = 0; r < rows && done == FDRL_DONE; r++) {
    if (index[r] < 0 || index[r] >= length) {
      done = FDRL_NO_ROW;
      break;
    }
    const float *from = table + index[r] * line;
    memcpy(states + r * size, from, (size_t)size * sizeof(float));
    memcpy(next + r * size, from + size, (size_t)size * sizeof(float));
    rewards[r] = from[2 * size];
    discounts[r] = from[2 * size + 1];
    actions[r] = (int64_t)from[2 * size + 2];
  }
  if (done == FDRL_DONE) {
    done = fdrl_slopes(
      net, loss, weights, target, rows, states, actions, rewards, next, discounts, scales,
      1.0f / (float)transitions, trace);
  }
  if (done == FDRL_DONE) {
    done = fdrl_clipped_sum(net, trace, units, transitions, limit, total);
  }
  free(actions);
  return done;
}
