// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
//
// Where rays meet rods, cylinders and boxes.

#ifndef FDRL_ROS__SHAPES_H_
#define FDRL_ROS__SHAPES_H_

#include "kernels.h"

// The multiple of a ray from `eye` at which it enters a shape, beyond `near`; else infinite. The
// eye is outside of the shape.
double fdrl_meets(const fdrl_shape *shape, const double *eye, const double *ray, double near);

// Direction away from a shape at a point on it, of length 1; returns the way along it, m.
double fdrl_outwards(const fdrl_shape *shape, const double *point, double *normal);

// Pixels that a shape may lie in: first column, first row, beyond the last ones; 0 if none.
int fdrl_frame_of(const fdrl_scene *scene, const fdrl_shape *shape, int *found);

#endif  // FDRL_ROS__SHAPES_H_
