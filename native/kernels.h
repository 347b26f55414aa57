// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
//
// What fdrl_ros/runtime/kernels.py calls. build.py reads all between the two marks as it stands.

#ifndef FDRL_ROS__KERNELS_H_
#define FDRL_ROS__KERNELS_H_

#include <stddef.h>
#include <stdint.h>

// Compile for the widest vectors, and choose when loaded; other machines take what they have.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SIMD __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SIMD
#endif

// calls begin
#define FDRL_FORM 10  // of these calls: a module that was built from others is not used
#define FDRL_MOST_LAYERS 16
#define FDRL_LANES 16
#define FDRL_DONE 0
#define FDRL_NO_MEMORY 1
#define FDRL_NOT_FINITE 2
#define FDRL_NO_ACTION 3
#define FDRL_NO_ROW 4

#define FDRL_MATRIX 1
#define FDRL_BIAS 2
#define FDRL_WHOLE 15

// A dueling network: sizes of states and hidden layers; shared layers; the first ones, of which
// nothing is trained; what of each dense layer is: matrix and bias of its first output, then, two
// bits on, of the others. Of the head the first output is the value.
typedef struct {
  int shared, frozen;
  uint8_t trained[16];  // FDRL_MOST_LAYERS
  ptrdiff_t actions;
  ptrdiff_t sizes[16];  // FDRL_MOST_LAYERS
} fdrl_network;

#define FDRL_DOUBLE_DQN 0
#define FDRL_CLONING 1
#define FDRL_WEIGHTED 2

// Which loss; whether errors in value turn linear at 1; then what single losses take.
typedef struct {
  int kind, huber;
  float conservative;
  float temperature, most_weight, value_weight;
} fdrl_loss;

ptrdiff_t fdrl_trace_size(const fdrl_network *net, ptrdiff_t rows);
ptrdiff_t fdrl_trace_inputs(const fdrl_network *net, ptrdiff_t rows, int layer);
ptrdiff_t fdrl_trace_outputs(const fdrl_network *net, ptrdiff_t rows, int layer);

int fdrl_slopes(
  const fdrl_network *net, const fdrl_loss *loss, const float *weights, const float *target,
  ptrdiff_t rows, const float *states, const int64_t *actions, const float *rewards,
  const float *next_states, const float *discounts, const float *scales, float scale,
  float *trace);
int fdrl_clipped_sum(
  const fdrl_network *net, const float *trace, ptrdiff_t units, ptrdiff_t transitions,
  double limit, double *total);

// Rows of a table: states, next states, reward, discount and action, all as float.
int fdrl_drawn(
  const fdrl_network *net, const fdrl_loss *loss, const float *weights, const float *target,
  const float *table, ptrdiff_t length, const int64_t *index, ptrdiff_t units,
  ptrdiff_t transitions, const float *scales, double limit, double *total);

// How noised sums turn into steps: clipping, noise on its grid, proximal term, Adam or plain descent.
typedef struct {
  double limit, batch, grid, per_noise, share, proximal, rate, mean_decay, square_decay;
  ptrdiff_t target_period;
  int adam;
} fdrl_descent;

// Local training from `weights`, in place. Rows of a table join: those from starts[t] to
// starts[t + 1] in step t. Noise of each step, or NULL; see shadow.c.
int fdrl_local_steps(
  const fdrl_network *net, const fdrl_loss *loss, const fdrl_descent *how, const float *anchor,
  const float *table, ptrdiff_t length, const int64_t *joined, const int64_t *starts,
  ptrdiff_t steps, const double *noise, double *weights);

void fdrl_gaussian(const uint64_t *words, ptrdiff_t pairs, double *draws);
int fdrl_noisy_mean(
  ptrdiff_t size, const double *sum, const double *noise, double grid, double steps,
  double share, double *mean);
ptrdiff_t fdrl_joined(
  const uint64_t *words, ptrdiff_t count, double log_stay, int64_t units, int64_t *last,
  int64_t *joined);

// One robot's contact with tissue, as its shield predicts it; see contact.c.
#define FDRL_KINDS 8
#define FDRL_LEVELS 8
#define FDRL_SPEEDS 25
#define FDRL_BEHIND 33
#define FDRL_PENDING 3
#define FDRL_MOVES 5
#define FDRL_DEPTHS 8

// Bounds, tables and what follows from them; each field as DepthTables and Prediction have it.
typedef struct {
  double force_error, position_error, damping, slope, speed, turn, quick, fastest;
  double steep, speed_step, lag_step, reach;
  double slow[8];  // FDRL_LEVELS
  double ends[9];  // of the kinds of tissue
  double depths[8];  // FDRL_DEPTHS
  const double *felt, *sink;
} fdrl_contact;

typedef struct {
  double slow, fast, doubt;
} fdrl_kind;

typedef struct {
  fdrl_kind kinds[8];  // FDRL_KINDS
  double softest, stiffest, contact, speed, high, sinking, room, room_ever;
  int fast, far, pending, level;
} fdrl_outlook;

int fdrl_look(
  const fdrl_contact *contact, const fdrl_kind *kinds, double force, double before, double lag,
  double lag_before, double sunk, double room, double room_ever, int pending, int level,
  double aside, double interval, fdrl_outlook *found);
double fdrl_force(
  const fdrl_contact *contact, const fdrl_outlook *seen, int move, double aside, double enough);

// Value models of C candidates with K members each, P features filled up to `stride`.
typedef struct {
  ptrdiff_t candidates, members, size, features, stride;
  double reach;
  const double *projection;  // offsets, then a row for each number of a state
  const double *matrix;  // of C means, of C risks, of the K deviations of each candidate
  const double *low, *high, *rate;  // (C, size)
  const double *misfits;  // squared, (C)
} fdrl_bank;

// C means, C risks, C standard deviations, C times strangeness, (C, K) deviations; and room for
// `stride` features.
void fdrl_values(const fdrl_bank *bank, const double *state, double *found);

// Lower bounds of the advantage of each of C candidates over one of them.
void fdrl_advantages(
  ptrdiff_t count, ptrdiff_t members, ptrdiff_t than, double factor, const double *means,
  const double *deviations, const double *strangeness, double *found);
// Pictures of an operation; see endoscope.c. Lengths in metres, colours linear, 0 to 1.
#define FDRL_ROD 0
#define FDRL_CYLINDER 1
#define FDRL_BOX 2

// A rod is two balls and the cone that touches both; a cylinder has flat ends; a box has a middle
// (start), half sizes (end) and the directions of its sides as rows (turn).
typedef struct {
  double start[3], end[3], first, last, turn[9];
  float colour[3], metal, gloss, stain;
  int32_t kind, label, shades, marks;
} fdrl_shape;

// Where the tissue gives way: depth exp(-r^2 / 2 a^2), which is 0 beyond 8 a.
typedef struct {
  float x, y, depth, spread;
} fdrl_dent;

// Heights (size, size) and looks (size, size, 8) of tissue: red, green, blue, gloss, slopes along
// x and y, weight of the fine relief, room; both begin at `corner`. The fine relief (grain, grain,
// 4) and the smoke (cloud, cloud, 4) repeat; their sizes are powers of two.
typedef struct {
  double eye[3], turn[9], focal, across, down, near, far, barrel;
  float lamp[3], power, fall, ambient, wrap, shadow;
  int32_t width, height, size, grain, cloud, dents;
  const float *heights, *looks, *fine, *smoke;
  const fdrl_dent *dent;
  float corner[2], pitch, fine_pitch, surface, top, bottom, steep, relief;
  float tint[3], tinted, mean[3], gap[3], clear;
  float haze, haze_colour[3], haze_at[2], vignette, soft, fringe, gain[3], saturation, noise;
  uint32_t seed;
} fdrl_scene;

// Shapes now and a moment before (or NULL); picture (height, width, 3), depth and labels.
int fdrl_draw(
  const fdrl_scene *scene, const fdrl_shape *shapes, const fdrl_shape *before, ptrdiff_t count,
  uint8_t *picture, float *depth, uint8_t *labels);
// calls end

#endif  // FDRL_ROS__KERNELS_H_
