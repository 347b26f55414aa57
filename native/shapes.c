// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
//
// Where rays meet rods, cylinders and boxes, in closed form. No product is fused with a sum, so
// that all processors give the same bytes.

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include "shapes.h"

#include <math.h>

static inline double dot(const double *a, const double *b)
{
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

// What is not a number is at the lowest.
static inline double within(double x, double low, double high)
{
  return x > low ? (x < high ? x : high) : low;
}

// Unit axis from the start of a shape to its end, and its length.
static double axis_of(const fdrl_shape *shape, double *axis)
{
  for (int i = 0; i < 3; i++) { axis[i] = shape->end[i] - shape->start[i]; }
  const double length = sqrt(dot(axis, axis));
  for (int i = 0; i < 3; i++) { axis[i] = length > 0.0 ? axis[i] / length : (i == 2); }
  return length;
}

static double meets_ball(
  const double *middle, double radius, const double *eye, const double *ray, double near)
{
  const double from[3] = {eye[0] - middle[0], eye[1] - middle[1], eye[2] - middle[2]};
  const double a = dot(ray, ray), b = dot(from, ray), c = dot(from, from) - radius * radius;
  const double root = b * b - a * c;
  if (root < 0.0) { return INFINITY; }
  const double t = (-b - sqrt(root)) / a;
  return t > near ? t : INFINITY;
}

// The cone touches the balls: with k = (r2 - r1) / L and q^2 = 1 - k^2, points of it at x along
// the axis have q times the distance from the axis equal to r1 + k x; they belong to the ball at
// (x + k r1) / q^2, which lies between the ends.
static double meets_rod(
  const fdrl_shape *shape, const double *eye, const double *ray, double near)
{
  double w[3];
  const double length = axis_of(shape, w), r = shape->first;
  const double k = length > 0.0 ? (shape->last - r) / length : 1.0;
  if (fabs(k) < 1.0) {
    const double from[3] = {
      eye[0] - shape->start[0], eye[1] - shape->start[1], eye[2] - shape->start[2]};
    const double q2 = 1.0 - k * k, x = dot(from, w), dx = dot(ray, w);
    const double a = q2 * dot(ray, ray) - dx * dx;
    const double b = q2 * dot(from, ray) - x * dx - r * k * dx;
    const double c = q2 * dot(from, from) - x * x - 2.0 * r * k * x - r * r;
    const double square = b * b - a * c;
    if (square < 0.0 && a > 0.0) { return INFINITY; }  // beside the endless cone
    if (square >= 0.0) {
      const double root = sqrt(square);
      const double t = b < 0.0 ? c / (root - b) : (a != 0.0 ? (-b - root) / a : INFINITY);
      const double along = x + t * dx, place = (along + k * r) / q2;
      if (r + k * along > 0.0 && place >= 0.0 && place <= length) {
        return t > near ? t : INFINITY;
      }
    }
  }
  const double one = meets_ball(shape->start, r, eye, ray, near);
  const double two = meets_ball(shape->end, shape->last, eye, ray, near);
  return one < two ? one : two;
}

static double meets_cylinder(
  const fdrl_shape *shape, const double *eye, const double *ray, double near)
{
  double w[3];
  const double length = axis_of(shape, w), r = shape->first;
  const double from[3] = {
    eye[0] - shape->start[0], eye[1] - shape->start[1], eye[2] - shape->start[2]};
  const double x = dot(from, w), dx = dot(ray, w);
  const double a = dot(ray, ray) - dx * dx, b = dot(from, ray) - x * dx;
  const double c = dot(from, from) - x * x - r * r, square = b * b - a * c;
  double first = -INFINITY, last = INFINITY;
  if (a > 1e-15) {
    if (square < 0.0) { return INFINITY; }
    first = (-b - sqrt(square)) / a;
    last = (-b + sqrt(square)) / a;
  } else if (c > 0.0) {
    return INFINITY;
  }
  if (fabs(dx) > 1e-15) {
    const double one = -x / dx, two = (length - x) / dx;
    first = fmax(first, fmin(one, two));
    last = fmin(last, fmax(one, two));
  } else if (x < 0.0 || x > length) {
    return INFINITY;
  }
  return first < last && first > near ? first : INFINITY;
}

static double meets_box(
  const fdrl_shape *shape, const double *eye, const double *ray, double near)
{
  double first = -INFINITY, last = INFINITY;
  const double from[3] = {
    eye[0] - shape->start[0], eye[1] - shape->start[1], eye[2] - shape->start[2]};
  for (int i = 0; i < 3; i++) {
    const double x = dot(from, shape->turn + 3 * i), dx = dot(ray, shape->turn + 3 * i);
    const double half = shape->end[i];
    if (fabs(dx) > 1e-15) {
      const double one = (-half - x) / dx, two = (half - x) / dx;
      first = fmax(first, fmin(one, two));
      last = fmin(last, fmax(one, two));
    } else if (fabs(x) > half) {
      return INFINITY;
    }
  }
  return first < last && first > near ? first : INFINITY;
}

double fdrl_meets(const fdrl_shape *shape, const double *eye, const double *ray, double near)
{
  switch (shape->kind) {
    case FDRL_ROD: return meets_rod(shape, eye, ray, near);
    case FDRL_CYLINDER: return meets_cylinder(shape, eye, ray, near);
    default: return meets_box(shape, eye, ray, near);
  }
}

double fdrl_outwards(const fdrl_shape *shape, const double *point, double *normal)
{
  double from[3], w[3];
  for (int i = 0; i < 3; i++) { from[i] = point[i] - shape->start[i]; }
  if (shape->kind == FDRL_BOX) {
    int side = 0;
    double nearest = INFINITY;
    for (int i = 0; i < 3; i++) {
      const double to = fabs(fabs(dot(from, shape->turn + 3 * i)) - shape->end[i]);
      if (to < nearest) {
        nearest = to;
        side = i;
      }
    }
    const double way = dot(from, shape->turn + 3 * side) < 0.0 ? -1.0 : 1.0;
    for (int i = 0; i < 3; i++) { normal[i] = way * shape->turn[3 * side + i]; }
    return 0.0;
  }
  const double length = axis_of(shape, w), x = dot(from, w);
  double place = x;
  if (shape->kind == FDRL_ROD) {
    const double k = length > 0.0 ? (shape->last - shape->first) / length : 0.0;
    place = fabs(k) < 1.0 ? (x + k * shape->first) / (1.0 - k * k) : (k > 0.0 ? length : 0.0);
    place = within(place, 0.0, length);
  } else if (fmin(fabs(x), fabs(x - length)) < 1e-9 + 1e-6 * length) {
    for (int i = 0; i < 3; i++) { normal[i] = x < 0.5 * length ? -w[i] : w[i]; }
    return x;
  }
  for (int i = 0; i < 3; i++) { normal[i] = from[i] - place * w[i]; }
  const double size = sqrt(dot(normal, normal));
  for (int i = 0; i < 3; i++) { normal[i] = size > 0.0 ? normal[i] / size : w[i]; }
  return place;
}

// Widen bounds (left, top, right, bottom; tangents of the view) by those of a ball before the eye.
static void widen(double x, double y, double z, double radius, double near, double *bounds)
{
  z = fmax(z, near);
  const double closest = fmax(z - radius, 0.2 * near);
  bounds[0] = fmin(bounds[0], fmin((x - radius) / closest, (x - radius) / (z + radius)));
  bounds[1] = fmin(bounds[1], fmin((y - radius) / closest, (y - radius) / (z + radius)));
  bounds[2] = fmax(bounds[2], fmax((x + radius) / closest, (x + radius) / (z + radius)));
  bounds[3] = fmax(bounds[3], fmax((y + radius) / closest, (y + radius) / (z + radius)));
}

int fdrl_frame_of(const fdrl_scene *scene, const fdrl_shape *shape, int *found)
{
  double ends[2][3], radii[2] = {shape->first, shape->last};
  double bounds[4] = {INFINITY, INFINITY, -INFINITY, -INFINITY};
  for (int end = 0; end < 2; end++) {
    const double *at = end && shape->kind != FDRL_BOX ? shape->end : shape->start;
    const double from[3] = {at[0] - scene->eye[0], at[1] - scene->eye[1], at[2] - scene->eye[2]};
    for (int i = 0; i < 3; i++) {
      ends[end][i] = scene->turn[i] * from[0] + scene->turn[3 + i] * from[1] +
                     scene->turn[6 + i] * from[2];
    }
  }
  if (shape->kind == FDRL_BOX) { radii[0] = radii[1] = sqrt(dot(shape->end, shape->end)); }
  const double *one = ends[0], *two = ends[1], least = scene->near;
  if (one[2] + radii[0] < least && two[2] + radii[1] < least) { return 0; }
  for (int end = 0; end < 2; end++) {
    const double *here = ends[end], *there = ends[1 - end];
    double share = 0.0;  // what of the way is behind the eye is left out
    if (here[2] < least && there[2] > least) { share = (least - here[2]) / (there[2] - here[2]); }
    widen(
      here[0] + share * (there[0] - here[0]), here[1] + share * (there[1] - here[1]),
      here[2] + share * (there[2] - here[2]), fmax(radii[0], radii[1]), least, bounds);
  }
  const double sizes[2] = {scene->width, scene->height};
  const double middles[2] = {scene->across, scene->down};
  const double wide = fmax(scene->across, sizes[0] - scene->across) / scene->focal;
  const double high = fmax(scene->down, sizes[1] - scene->down) / scene->focal;
  const double bent = 1.0 / fmax(1.0 + scene->barrel * (wide * wide + high * high), 0.2);
  for (int i = 0; i < 2; i++) {
    const double low = fmin(bounds[i], bounds[i] * bent);
    const double top = fmax(bounds[2 + i], bounds[2 + i] * bent);
    found[i] = (int)within(floor(low * scene->focal + middles[i]) - 1.0, 0.0, sizes[i]);
    found[2 + i] = (int)within(ceil(top * scene->focal + middles[i]) + 2.0, 0.0, sizes[i]);
  }
  return found[0] < found[2] && found[1] < found[3];
}
