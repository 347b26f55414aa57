// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
//
// Slopes of a loss at the outputs of each dense layer of a dueling network, row by row.
// fdrl_ros/learner/{network,losses,gradient}.py say what is computed; this file how.

#include "layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEN 0x41200000  // 10, as its bits: tanh is 1 from there on

// What a trace holds, and where. Inputs of a layer are those of the states, then of the next; the
// last numbers are the errors, one a row. No row's numbers depend on another row: each row
// is computed by the same operations in the same order, wherever it lies.
ptrdiff_t fdrl_trace_inputs(const fdrl_network *net, ptrdiff_t rows, int l)
{
  ptrdiff_t at = 0;
  for (int i = 0; i < l; i++) { at += 2 * rows_of(rows) * padded(width(net, i)); }
  return at;
}

ptrdiff_t fdrl_trace_outputs(const fdrl_network *net, ptrdiff_t rows, int l)
{
  ptrdiff_t at = fdrl_trace_inputs(net, rows, net->shared + 1);
  for (int i = 0; i < l; i++) { at += rows_of(rows) * padded(width(net, i + 1)); }
  return at;
}

ptrdiff_t fdrl_trace_size(const fdrl_network *net, ptrdiff_t rows)
{
  const ptrdiff_t heads = rows_of(rows) * padded(1 + net->actions);
  return fdrl_trace_outputs(net, rows, net->shared) + heads + rows;
}

// c = bias + a b; rows a multiple of 4, columns of b and c a multiple of 16.
SIMD static void product(
  ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t inner, const float *a, ptrdiff_t stride,
  const float *b, const float *bias, float *c)
{
  const floats none = {0};
  for (ptrdiff_t j = 0; j < columns; j += LANES) {
    const floats first = bias ? *(const floats *)(bias + j) : none;
    for (ptrdiff_t i = 0; i < rows; i += BLOCK) {
      const float *a0 = a + i * stride, *a1 = a0 + stride, *a2 = a1 + stride, *a3 = a2 + stride;
      floats c0 = first, c1 = first, c2 = first, c3 = first;
      for (ptrdiff_t k = 0; k < inner; k++) {
        const floats line = *(const floats *)(b + k * columns + j);
        c0 += a0[k] * line;
        c1 += a1[k] * line;
        c2 += a2[k] * line;
        c3 += a3[k] * line;
      }
      float *to = c + i * columns + j;
      *(floats *)to = c0;
      *(floats *)(to + columns) = c1;
      *(floats *)(to + 2 * columns) = c2;
      *(floats *)(to + 3 * columns) = c3;
    }
  }
}

// tanh(x) = e / (e + 2) with e = exp(2 |x|) - 1 = 2^n (exp(r) - 1) + (2^n - 1), and its sign; to
// 3e-7, relative. What is not a number stays so.
SIMD static void hyperbolic_tangent(ptrdiff_t size, float *values)
{
  for (ptrdiff_t i = 0; i < size; i += LANES) {
    const ints x = *(ints *)(values + i), sign = x & INT32_MIN;
    const floats length = (floats)(x & INT32_MAX);
    const ints beyond = length > 10.0f, wrong = length != length;
    const floats twice = 2.0f * (floats)((x & INT32_MAX & ~beyond) | (TEN & beyond));
    const ints n = __builtin_convertvector(twice * 1.44269504f + 0.5f, ints);
    const floats whole = __builtin_convertvector(n, floats);
    const floats r = (twice - whole * 0.693359375f) + whole * 2.12194440e-4f;  // |r| <= ln(2) / 2
    floats series = 1.0f / 720.0f + r * (1.0f / 5040.0f);
    series = 1.0f / 120.0f + r * series;
    series = 1.0f / 24.0f + r * series;
    series = 1.0f / 6.0f + r * series;
    series = 0.5f + r * series;
    const floats power = (floats)((n + 127) << 23);
    const floats e = power * (r + r * r * series) + (power - 1.0f);
    const ints found = (ints)(e / (e + 2.0f));
    *(ints *)(values + i) = ((found | sign) & ~wrong) | (x & wrong);
  }
}

// A network ready for products: transposed matrices for the way there, padded for the way back.
typedef struct {
  float *there[FDRL_MOST_LAYERS];
  float *bias[FDRL_MOST_LAYERS];
  float *back[FDRL_MOST_LAYERS];
} packed;

static ptrdiff_t packed_size(const fdrl_network *net)
{
  ptrdiff_t size = 0;
  for (int l = 0; l <= net->shared; l++) {
    const ptrdiff_t outputs = l < net->shared ? width(net, l + 1) : net->actions;
    size += (padded(width(net, l)) + 1) * padded(outputs) + outputs * padded(width(net, l));
  }
  return size;
}

SIMD static void pack_layer(
  ptrdiff_t inputs, ptrdiff_t outputs, const float *matrix, const float *bias, int both,
  float *there, float *bias_to, float *back)
{
  const ptrdiff_t columns = padded(outputs), stride = padded(inputs);
  for (ptrdiff_t k = 0; k < inputs; k++) {
    for (ptrdiff_t j = 0; j < outputs; j++) { there[k * columns + j] = matrix[j * inputs + k]; }
    for (ptrdiff_t j = outputs; j < columns; j++) { there[k * columns + j] = 0.0f; }
  }
  for (ptrdiff_t j = 0; j < columns; j++) { bias_to[j] = j < outputs ? bias[j] : 0.0f; }
  if (!both) { return; }
  for (ptrdiff_t j = 0; j < outputs; j++) {
    memcpy(back + j * stride, matrix + j * inputs, (size_t)inputs * sizeof(float));
    for (ptrdiff_t k = inputs; k < stride; k++) { back[j * stride + k] = 0.0f; }
  }
}

// Lay a network out in `room`; what value and advantage make together is one head.
static void pack(
  const fdrl_network *net, const float *weights, int both, float *room, float *head, packed *to)
{
  const int last = net->shared;
  for (int l = 0; l <= last; l++) {
    const ptrdiff_t inputs = width(net, l), outputs = l < last ? width(net, l + 1) : net->actions;
    const float *matrix = weights + start_of(net, l), *bias = matrix + inputs * outputs;
    if (l == last) {
      const float *value = matrix, *value_bias = value + inputs;
      const float *advantage = value_bias + 1, *advantage_bias = advantage + inputs * outputs;
      const float share = 1.0f / (float)outputs;
      float *head_bias = head + inputs * outputs;
      for (ptrdiff_t k = 0; k < inputs; k++) {
        float mean = 0.0f;
        for (ptrdiff_t j = 0; j < outputs; j++) { mean += advantage[j * inputs + k]; }
        mean *= share;
        for (ptrdiff_t j = 0; j < outputs; j++) {
          head[j * inputs + k] = advantage[j * inputs + k] - mean + value[k];
        }
      }
      float mean = 0.0f;
      for (ptrdiff_t j = 0; j < outputs; j++) { mean += advantage_bias[j]; }
      mean *= share;
      for (ptrdiff_t j = 0; j < outputs; j++) {
        head_bias[j] = advantage_bias[j] - mean + value_bias[0];
      }
      matrix = head;
      bias = head_bias;
    }
    to->there[l] = room;
    room += inputs * padded(outputs);
    to->bias[l] = room;
    room += padded(outputs);
    to->back[l] = room;
    if (both) { room += outputs * padded(inputs); }
    pack_layer(inputs, outputs, matrix, bias, both, to->there[l], to->bias[l], to->back[l]);
  }
}

// Values of `rows` (a multiple of 4) states; inputs[0] is given, the others are filled.
static void forward(
  const fdrl_network *net, const packed *weights, ptrdiff_t rows, float *const *inputs,
  float *values)
{
  for (int l = 0; l <= net->shared; l++) {
    const ptrdiff_t columns = padded(l < net->shared ? width(net, l + 1) : net->actions);
    float *to = l < net->shared ? inputs[l + 1] : values;
    product(
      rows, columns, width(net, l), inputs[l], padded(width(net, l)), weights->there[l],
      weights->bias[l], to);
    if (l < net->shared) { hyperbolic_tangent(rows * columns, to); }
  }
}

static void copy_rows(ptrdiff_t rows, ptrdiff_t size, const float *from, float *to)
{
  const ptrdiff_t stride = padded(size);
  memset(to, 0, (size_t)(rows_of(rows) * stride) * sizeof(float));
  for (ptrdiff_t i = 0; i < rows; i++) {
    memcpy(to + i * stride, from + i * size, (size_t)size * sizeof(float));
  }
}

// The best action's number, the lowest of equal ones; a value that is not a number counts as the
// best, as in NumPy.
static ptrdiff_t best(ptrdiff_t actions, const float *values)
{
  ptrdiff_t found = 0;
  for (ptrdiff_t a = 0; a < actions; a++) {
    if (isnan(values[a])) { return a; }
    if (values[a] > values[found]) { found = a; }
  }
  return found;
}

// The slope of the loss of an error in value.
static inline float turned(const fdrl_loss *loss, float error)
{
  if (loss->huber && error > 1.0f) { return 1.0f; }
  if (loss->huber && error < -1.0f) { return -1.0f; }
  return error;
}

// slopes = share softmax(values); return log sum exp of the values.
static float softmax(ptrdiff_t actions, const float *values, float share, float *slopes)
{
  const float top = values[best(actions, values)];
  float sum = 0.0f;
  for (ptrdiff_t a = 0; a < actions; a++) {
    slopes[a] = expf(values[a] - top);
    sum += slopes[a];
  }
  share /= sum;
  for (ptrdiff_t a = 0; a < actions; a++) { slopes[a] *= share; }
  return top + logf(sum);
}

// V = mean(Q), since Q = V + A - mean(A).
static float value_of(ptrdiff_t actions, const float *values)
{
  float sum = 0.0f;
  for (ptrdiff_t a = 0; a < actions; a++) { sum += values[a]; }
  return sum * (1.0f / (float)actions);
}

// Slopes of the double DQN loss of a row at its Q values, with the conservative term; its error.
// The caller cleared `slopes`.
static float of_double_dqn(
  const fdrl_loss *loss, ptrdiff_t actions, const float *values, int64_t action, float aim,
  float *slopes)
{
  const float error = values[action] - aim;
  float slope = turned(loss, error);
  if (loss->conservative != 0.0f) {
    softmax(actions, values, loss->conservative, slopes);
    slope -= loss->conservative;
  }
  slopes[action] += slope;
  return error;
}

// Slopes of the weighted cross-entropy of a row's action at its Q values, and of the loss of
// its value if asked for; returns the loss. `aims`: the target network's Q, or NULL to clone.
static float of_cloning(
  const fdrl_loss *loss, ptrdiff_t actions, const float *values, int64_t action, float reward,
  const float *aims, float *slopes)
{
  float weight = 1.0f;
  if (aims) {
    weight = expf((reward - value_of(actions, aims)) / loss->temperature);
    if (weight > loss->most_weight) { weight = loss->most_weight; }
  }
  float total = weight * (softmax(actions, values, weight, slopes) - values[action]);
  slopes[action] -= weight;
  if (aims) {
    const float error = value_of(actions, values) - reward, slope = turned(loss, error);
    const float each = loss->value_weight * slope * (1.0f / (float)actions);
    for (ptrdiff_t a = 0; a < actions; a++) { slopes[a] += each; }
    total += loss->value_weight * slope * (error - 0.5f * slope);
  }
  return total;
}

// back = (slopes matrix) (1 - hidden^2)
SIMD static void through_tangent(ptrdiff_t size, const float *hidden, float *back)
{
  for (ptrdiff_t i = 0; i < size; i += LANES) {
    const floats at = *(const floats *)(hidden + i);
    *(floats *)(back + i) = *(const floats *)(back + i) * (1.0f - at * at);
  }
}

int fdrl_slopes(
  const fdrl_network *net, const fdrl_loss *loss, const float *weights, const float *target,
  ptrdiff_t rows, const float *states, const int64_t *actions, const float *rewards,
  const float *next_states, const float *discounts, const float *scales, float scale,
  float *trace)
{
  const ptrdiff_t high = rows_of(rows), columns = padded(net->actions);
  const int last = net->shared;
  ptrdiff_t widest = padded(net->sizes[0]);
  for (int l = 1; l <= last; l++) { widest = most(widest, padded(width(net, l))); }
  const ptrdiff_t head = (width(net, last) + 1) * net->actions, both = packed_size(net);
  float *room = malloc((size_t)(head + 2 * both + high * (4 * columns + 2 * widest)) * sizeof(float));
  if (!room) { return FDRL_NO_MEMORY; }
  for (ptrdiff_t i = 0; i < rows; i++) {
    if (actions[i] < 0 || actions[i] >= net->actions) {
      free(room);
      return FDRL_NO_ACTION;
    }
  }
  float *values = room + head + 2 * both, *aims = values + 2 * high * columns;
  float *slopes = aims + high * columns, *ping = slopes + high * columns;
  float *pong = ping + high * widest, *inputs[FDRL_MOST_LAYERS], *next[FDRL_MOST_LAYERS];
  packed online, fixed;
  pack(net, weights, 1, room + head, room, &online);
  pack(net, target, 0, room + head + both, room, &fixed);

  for (int l = 0; l <= last; l++) {
    inputs[l] = trace + fdrl_trace_inputs(net, rows, l);
    next[l] = l % 2 ? ping : pong;
  }
  next[0] = inputs[0] + high * padded(net->sizes[0]);
  copy_rows(rows, net->sizes[0], states, inputs[0]);
  if (loss->kind == FDRL_DOUBLE_DQN) {
    copy_rows(rows, net->sizes[0], next_states, next[0]);
  } else {  // of the next state nothing is needed
    next[0] = inputs[0];
  }
  forward(net, &online, loss->kind == FDRL_DOUBLE_DQN ? 2 * high : high, inputs, values);
  if (loss->kind != FDRL_CLONING) { forward(net, &fixed, high, next, aims); }

  memset(slopes, 0, (size_t)(high * columns) * sizeof(float));
  float *heads = trace + fdrl_trace_outputs(net, rows, last);
  const ptrdiff_t stride = padded(1 + net->actions);
  float *errors = heads + high * stride;
  memset(heads, 0, (size_t)(high * stride) * sizeof(float));
  for (ptrdiff_t i = 0; i < rows; i++) {
    const float size = scales ? scale * scales[i] : scale, *own = values + i * columns;
    float *of_row = slopes + i * columns, *to = heads + i * stride, total = 0.0f;
    if (loss->kind == FDRL_DOUBLE_DQN) {
      const ptrdiff_t chosen = best(net->actions, own + high * columns);
      const float aim = rewards[i] + discounts[i] * aims[i * columns + chosen];
      errors[i] = of_double_dqn(loss, net->actions, own, actions[i], aim, of_row);
    } else {
      const float *by_target = loss->kind == FDRL_WEIGHTED ? aims + i * columns : NULL;
      errors[i] =
        of_cloning(loss, net->actions, own, actions[i], rewards[i], by_target, of_row);
    }
    for (ptrdiff_t a = 0; a < net->actions; a++) { of_row[a] *= size; }
    for (ptrdiff_t a = 0; a < net->actions; a++) { total += of_row[a]; }
    to[0] = total;
    const float share = total * (1.0f / (float)net->actions);
    for (ptrdiff_t a = 0; a < net->actions; a++) { to[1 + a] = of_row[a] - share; }
  }
  const float *from = slopes;
  ptrdiff_t outputs = net->actions;
  for (int l = last; l > net->frozen; l--) {
    float *to = trace + fdrl_trace_outputs(net, rows, l - 1);
    const ptrdiff_t count = padded(width(net, l));
    product(high, count, outputs, from, padded(outputs), online.back[l], NULL, to);
    through_tangent(high * count, inputs[l], to);
    from = to;
    outputs = width(net, l);
  }
  free(room);
  return FDRL_DONE;
}
