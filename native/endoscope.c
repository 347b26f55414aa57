// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
//
// A picture of tissue and shapes under the lamp of an endoscope: rays are marched to the tissue and
// meet shapes in closed form. fdrl_ros/surgery/render/scene.py says what the numbers are.
//
// The same bytes on every processor: no product is fused with a sum, no sum is reordered, and
// but for square roots, which are exact, no function of the C library is called.

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include "shapes.h"

#include <math.h>
#include <stdlib.h>

#define NOTHING (-2)
#define TISSUE (-1)
#define STEPS 64
#define NEAR_ENOUGH 1e-5f  // metres between a ray and the tissue that it has met
#define SHINES 0.03f  // metres of tissue that a shape may shine through
#define EXTRA 3
#define GUESSED 0.96f  // of the depth of the pixel above

// NumPy aligns memory to 16 bytes, or to the numbers of a slice: no wider aligned loads.
typedef float looks __attribute__((vector_size(32), aligned(4)));
typedef float four __attribute__((vector_size(16), aligned(4)));
typedef struct {
  float x, y, z;
} vec;

typedef struct {
  const fdrl_scene *scene;
  const fdrl_shape *shapes, *before;
  ptrdiff_t count;
  float *colours, *shade, *depth;  // of the whole picture
  int16_t *now, *then;
} frame;

static inline float least(float a, float b) { return a < b ? a : b; }

static inline float most(float a, float b) { return a > b ? a : b; }

static inline float clamp(float x) { return least(most(x, 0.0f), 1.0f); }

static inline float smooth(float x)
{
  x = clamp(x);
  return x * x * (3.0f - 2.0f * x);
}

static inline float mix(float a, float b, float share) { return a + share * (b - a); }

static inline float dot(vec a, vec b) { return a.x * b.x + a.y * b.y + a.z * b.z; }

static inline vec scaled(vec a, float by) { return (vec){a.x * by, a.y * by, a.z * by}; }

static inline vec less(vec a, vec b) { return (vec){a.x - b.x, a.y - b.y, a.z - b.z}; }

static inline vec unit(vec a) { return scaled(a, 1.0f / sqrtf(dot(a, a) + 1e-20f)); }

static inline vec of(const float *a) { return (vec){a[0], a[1], a[2]}; }

// The ray through a place in the picture; its depth along the view is 1.
static inline vec ray_of(const fdrl_scene *s, double column, double row)
{
  double u = (column - s->across) / s->focal, v = (row - s->down) / s->focal;
  const double bent = 1.0 + s->barrel * (u * u + v * v);
  u *= bent, v *= bent;
  const double *t = s->turn;
  return (vec){
    (float)(t[0] * u + t[1] * v + t[2]), (float)(t[3] * u + t[4] * v + t[5]),
    (float)(t[6] * u + t[7] * v + t[8])};
}

// exp(-x) as (1 - x / 32)^32, which is 0 from 32 on; and with one factor less for its slope.
static inline float fading(float x, float *slope)
{
  const float one = most(1.0f - x * (1.0f / 32.0f), 0.0f);
  float all = one, rest = 1.0f;
  for (int i = 0; i < 5; i++) {
    rest *= all;
    all *= all;
  }
  *slope = rest;
  return all;
}

// How far dents have a place below untouched tissue; adds their slopes along x and y.
static inline float dented(const fdrl_scene *s, float x, float y, float *along)
{
  float depth = 0.0f;
  for (int i = 0; i < s->dents; i++) {
    const fdrl_dent *dent = s->dent + i;
    const float dx = x - dent->x, dy = y - dent->y, a2 = dent->spread * dent->spread;
    float rest;
    depth += dent->depth * fading((dx * dx + dy * dy) / (2.0f * a2), &rest);
    along[0] += dent->depth * rest * dx / a2;
    along[1] += dent->depth * rest * dy / a2;
  }
  return depth;
}

// The texel before a place, and the shares of the four around it.
static inline ptrdiff_t texel(const fdrl_scene *s, float x, float y, float *dx, float *dy)
{
  const float most_texel = (float)s->size - 1.001f;
  const float u = least(most((x - s->corner[0]) / s->pitch, 0.0f), most_texel);
  const float v = least(most((y - s->corner[1]) / s->pitch, 0.0f), most_texel);
  const int i = (int)u, j = (int)v;
  *dx = u - (float)i, *dy = v - (float)j;
  return (ptrdiff_t)j * s->size + i;
}

// Height of the tissue above its surface.
static inline float height(const fdrl_scene *s, float x, float y)
{
  float dx, dy, along[2];
  const float *h = s->heights + texel(s, x, y, &dx, &dy);
  const float low = mix(h[0], h[1], dx), high = mix(h[s->size], h[s->size + 1], dx);
  return mix(low, high, dy) - (s->dents ? dented(s, x, y, along) : 0.0f);
}

// Where a ray from the eye enters the layer that tissue lies in, or infinite.
static inline float enters(const fdrl_scene *s, vec ray)
{
  const float eye = (float)s->eye[2] - s->surface, near = (float)s->near;
  if (eye + near * ray.z <= s->top) { return near; }
  return ray.z < 0.0f ? most(near, (s->top - eye) / ray.z) : INFINITY;
}

// Where a ray meets the tissue before a limit, from a guess above it or from where it enters. A
// step is as long as a slope of `steep` allows, or up to three times as long where a line through
// the last two gaps says so; once the ray is below, the place is enclosed.
static float meets_tissue(const fdrl_scene *s, vec ray, float limit, float guess)
{
  const float eye = (float)s->eye[2] - s->surface, begin = enters(s, ray);
  const float x = (float)s->eye[0], y = (float)s->eye[1];
  const float rate = 1.0f / (fabsf(ray.z) + s->steep * sqrtf(ray.x * ray.x + ray.y * ray.y));
  float t = guess > begin && guess < limit ? guess : begin;
  float high = begin, above = 0.0f, low = INFINITY, below = 0.0f;
  for (int i = 0; i < STEPS && t < limit; i++) {
    const float gap = eye + t * ray.z - height(s, x + t * ray.x, y + t * ray.y);
    if (fabsf(gap) < NEAR_ENOUGH) { break; }
    if (gap < 0.0f && above == 0.0f) {  // the guess, or the eye itself, is below
      if (t <= begin) { break; }
      t = begin;
      continue;
    }
    if (gap < 0.0f) {
      low = t, below = gap;
    } else {
      float step = gap * rate;
      if (low == INFINITY && above > gap) {
        const float line = gap * (t - high) / (above - gap);
        step = most(step, least(line, 3.0f * step));
      }
      high = t, above = gap;
      t += step;
    }
    if (low < INFINITY) {
      const float share = above / (above - below);
      t = high + (low - high) * least(most(share, 0.1f), 0.9f);
    } else if (ray.z > 0.0f && eye + t * ray.z > s->top) {
      return INFINITY;
    }
  }
  return t < limit && eye + t * ray.z > s->bottom ? t : INFINITY;
}

// Nearest shape that one ray meets before a limit.
static int meets_shapes(
  const fdrl_scene *s, const fdrl_shape *shapes, ptrdiff_t count, vec ray, float *limit)
{
  const double way[3] = {ray.x, ray.y, ray.z};
  int found = NOTHING;
  for (ptrdiff_t i = 0; i < count; i++) {
    const double t = fdrl_meets(shapes + i, s->eye, way, s->near);
    if (t < *limit) {
      *limit = (float)t;
      found = (int)i;
    }
  }
  return found;
}

// How much of the lamp's light reaches places, by the angle between them and each shape's axis
// from the lamp: soft at the edge, softer far behind the shape.
SIMD static void shadows(
  const fdrl_scene *s, const fdrl_shape *shapes, ptrdiff_t count, int size, const float *x,
  const float *y, const float *z, float *light)
{
  for (int i = 0; i < size; i++) { light[i] = 1.0f; }
  if (s->shadow <= 0.0f) { return; }
  for (ptrdiff_t k = 0; k < count; k++) {
    const fdrl_shape *shape = shapes + k;
    if (!shape->shades) { continue; }
    const vec lamp = of(s->lamp);
    const vec a = {
      (float)shape->start[0] - lamp.x, (float)shape->start[1] - lamp.y,
      (float)shape->start[2] - lamp.z};
    const vec b = {
      (float)shape->end[0] - lamp.x, (float)shape->end[1] - lamp.y,
      (float)shape->end[2] - lamp.z};
    const vec n = unit((vec){
      a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x});
    const float aa = dot(a, a), ab = dot(a, b), bb = dot(b, b), det = aa * bb - ab * ab;
    if (det < 1e-14f) { continue; }
    // v = alpha a + beta b + s n
    const vec to_a = scaled(less(scaled(a, bb), scaled(b, ab)), 1.0f / det);
    const vec to_b = scaled(less(scaled(b, aa), scaled(a, ab)), 1.0f / det);
    const vec way = less(b, a);
    const float first = (float)shape->first, grows = (float)shape->last - first;
    const float length = sqrtf(dot(way, way)), strength = s->shadow;
    for (int i = 0; i < size; i++) {
      const float vx = x[i] - lamp.x, vy = y[i] - lamp.y, vz = z[i] - lamp.z;
      const float alpha = to_a.x * vx + to_a.y * vy + to_a.z * vz;
      const float beta = to_b.x * vx + to_b.y * vy + to_b.z * vz;
      const float sum = alpha + beta, share = 1.0f / most(sum, 1e-3f), place = beta * share;
      const float off = (n.x * vx + n.y * vy + n.z * vz) * share;
      const float over = most(most(-place, place - 1.0f), 0.0f) * length;
      const float inside = least(most(place, 0.0f), 1.0f);
      const float radius = first + grows * inside;
      const float far = sqrtf(off * off + over * over);
      const float blur = radius * (0.25f + 1.2f * most(sum - 1.0f, 0.0f));
      float dark = (radius + 0.5f * blur - far) / blur;
      dark = least(most(dark, 0.0f), 1.0f);
      dark = dark * dark * (3.0f - 2.0f * dark);
      dark = sum > 1.0f ? dark * least((sum - 1.0f) * 40.0f, 1.0f) : 0.0f;
      light[i] *= 1.0f - strength * dark;
    }
  }
}

static inline four grain_at(const float *tile, int size, float u, float v)
{
  const float below_u = (float)(int)u - (u < 0.0f), below_v = (float)(int)v - (v < 0.0f);
  const float dx = u - below_u, dy = v - below_v;
  const int last = size - 1;  // of a power of two
  const int i = (int)below_u & last, j = (int)below_v & last;
  const int i2 = (i + 1) & last, j2 = (j + 1) & last;
  const four *t = (const four *)tile;
  const four low = t[j * size + i] + dx * (t[j * size + i2] - t[j * size + i]);
  const four high = t[j2 * size + i] + dx * (t[j2 * size + i2] - t[j2 * size + i]);
  return low + dy * (high - low);
}

static inline float to_power(float x, int doublings)
{
  for (int i = 0; i < doublings; i++) { x *= x; }
  return x;
}

// Light of the lamp on a place with a way to it: weaker far away.
static inline float light_of(const fdrl_scene *s, vec to_lamp)
{
  return s->fall > 0.0f ? s->power / (0.25f + 0.75f * dot(to_lamp, to_lamp) / (s->fall * s->fall))
                        : s->power;
}

static vec shade_tissue(const fdrl_scene *s, vec ray, float t, float light)
{
  const vec eye = {(float)s->eye[0], (float)s->eye[1], (float)s->eye[2]};
  const vec at = {eye.x + t * ray.x, eye.y + t * ray.y, eye.z + t * ray.z};
  float dx, dy;
  const ptrdiff_t place = texel(s, at.x, at.y, &dx, &dy);
  const looks *l = (const looks *)s->looks + place;
  const looks low = l[0] + dx * (l[1] - l[0]);
  const looks high = l[s->size] + dx * (l[s->size + 1] - l[s->size]);
  const looks look = low + dy * (high - low);
  const four fine =
    grain_at(s->fine, s->grain, at.x / s->fine_pitch, at.y / s->fine_pitch) * look[6];
  float along[2] = {look[4], look[5]};
  if (s->dents) { dented(s, at.x, at.y, along); }
  const float rough = s->relief;
  const vec normal = unit((vec){-along[0] - rough * fine[1], -along[1] - rough * fine[2], 1.0f});
  const vec to_lamp = less(of(s->lamp), at), towards = unit(to_lamp);
  const vec view = unit(scaled(ray, -1.0f));
  const vec half = unit((vec){towards.x + view.x, towards.y + view.y, towards.z + view.z});
  const float power = light_of(s, to_lamp);
  const float facing = dot(normal, towards), wrap = s->wrap;
  const float direct = power * light * clamp((facing + wrap) / (1.0f + wrap));
  const float glance = clamp(dot(normal, half)), edge = 1.0f - clamp(dot(normal, view));
  const float lobes = 2.2f * to_power(glance, 7) + 0.25f * to_power(glance, 4);
  const float shine =
    look[3] * power * light * clamp(4.0f * facing) * (lobes + 0.04f * edge * edge);
  const float bright = (s->ambient * power + direct) * (1.0f + 0.35f * fine[0]);
  const float tinted = s->tinted;
  return (vec){
    mix(look[0], s->tint[0], tinted) * bright + shine,
    mix(look[1], s->tint[1], tinted) * bright + shine,
    mix(look[2], s->tint[2], tinted) * bright + shine};
}

static vec shade_shape(const fdrl_scene *s, const fdrl_shape *shape, vec ray, float t)
{
  const double point[3] = {
    s->eye[0] + (double)t * ray.x, s->eye[1] + (double)t * ray.y, s->eye[2] + (double)t * ray.z};
  double outwards[3];
  const float along = (float)fdrl_outwards(shape, point, outwards);
  const vec n = {(float)outwards[0], (float)outwards[1], (float)outwards[2]};
  const vec at = {(float)point[0], (float)point[1], (float)point[2]};
  const vec view = unit(scaled(ray, -1.0f)), to_lamp = less(of(s->lamp), at);
  const float facing_us = clamp(dot(n, view));
  if (shape->marks) {
    const float bright = 0.45f + 0.55f * facing_us;
    return scaled(of(shape->colour), bright);
  }
  const vec towards = unit(to_lamp);
  const vec half = unit((vec){towards.x + view.x, towards.y + view.y, towards.z + view.z});
  const float power = light_of(s, to_lamp), metal = shape->metal;
  const float direct = clamp(dot(n, towards)), glance = clamp(dot(n, half));
  const float up = 2.0f * dot(n, view) * n.z - view.z;  // where a mirror would see
  const float below = power * 0.8f * smooth(0.55f - 0.75f * up), above = 0.10f * power;
  const float lobes = 1.6f * to_power(glance, 6) + 0.35f * to_power(glance, 3);
  const float shine = shape->gloss * power * lobes;
  const four fine = grain_at(s->fine, s->grain, along * 700.0f, (n.x + 0.6f * n.z) * 9.0f);
  const float stained = shape->stain * smooth(3.0f * fine[0] + shape->stain - 0.2f);
  const vec colour = of(shape->colour), mean = of(s->mean);
  const float bright =
    (s->ambient + (1.0f - 0.5f * metal) * direct) * power * (1.0f + 0.12f * metal * fine[0]);
  const float mirror = metal * (0.35f + 0.65f * to_power(1.0f - facing_us, 1));
  vec found = {
    colour.x * (bright + mirror * (mean.x * below + above)) + shine,
    colour.y * (bright + mirror * (mean.y * below + above)) + shine,
    colour.z * (bright + mirror * (mean.z * below + above)) + shine};
  found.x = mix(found.x, 0.20f * bright, stained);
  found.y = mix(found.y, 0.012f * bright, stained);
  found.z = mix(found.z, 0.010f * bright, stained);
  return found;
}

// Colour of what a ray met at a depth, with the smoke before it.
static vec shade(
  const fdrl_scene *s, const fdrl_shape *shapes, int met, vec ray, float t, float light,
  double column, double row)
{
  vec found = met == NOTHING ? of(s->gap)
              : met == TISSUE ? shade_tissue(s, ray, t, light)
                              : shade_shape(s, shapes + met, ray, t);
  if (s->haze > 0.0f && !(met >= 0 && shapes[met].marks)) {
    const float wide = (float)s->cloud / (float)s->width;
    const float u = (float)column * wide * 0.5f, v = (float)row * wide * 0.5f;
    const four one = grain_at(s->smoke, s->cloud, u + s->haze_at[0], v + s->haze_at[1]);
    const four two =
      grain_at(s->smoke, s->cloud, 1.9f * u - s->haze_at[1], 1.9f * v + s->haze_at[0]);
    const float deep = s->fall > 0.0f ? least(t / s->fall, 1.6f) : 1.0f;
    const float share = clamp(s->haze * deep * (0.75f + 0.9f * one[0] + 0.45f * two[0]));
    found.x = mix(found.x, s->haze_colour[0] * s->power, share);
    found.y = mix(found.y, s->haze_colour[1] * s->power, share);
    found.z = mix(found.z, s->haze_colour[2] * s->power, share);
  }
  return found;
}

static void find_shapes(const frame *f, const fdrl_shape *shapes, float *depth, int16_t *met)
{
  const fdrl_scene *s = f->scene;
  for (ptrdiff_t k = 0; k < f->count; k++) {
    int around[4];
    if (!fdrl_frame_of(s, shapes + k, around)) { continue; }
    for (int row = around[1]; row < around[3]; row++) {
      for (int column = around[0]; column < around[2]; column++) {
        const ptrdiff_t i = (ptrdiff_t)row * s->width + column;
        const vec ray = ray_of(s, column, row);
        const double way[3] = {ray.x, ray.y, ray.z};
        const double t = fdrl_meets(shapes + k, s->eye, way, s->near);
        if (t < depth[i]) {
          depth[i] = (float)t;
          met[i] = (int16_t)k;
        }
      }
    }
  }
}

static void draw_row(const frame *f, int row, float *x, float *y, float *z)
{
  const fdrl_scene *s = f->scene;
  const ptrdiff_t from = (ptrdiff_t)row * s->width;
  float *behind = z + s->width, *ground = behind + s->width;
  int16_t *met = f->now + from;
  for (int i = 0; i < s->width; i++) {
    const vec ray = ray_of(s, i, row);
    const float shape_at = f->depth[from + i];
    const float t = meets_tissue(s, ray, least(shape_at, (float)s->far), GUESSED * ground[i]);
    ground[i] = t < INFINITY ? t : 0.0f;
    behind[i] = -1.0f;
    if (t < shape_at) {
      if (shape_at - t < SHINES) { behind[i] = (float)met[i]; }
      f->depth[from + i] = t;
      met[i] = TISSUE;
    }
    const float at = least(f->depth[from + i], (float)s->far);
    x[i] = (float)s->eye[0] + at * ray.x;
    y[i] = (float)s->eye[1] + at * ray.y;
    z[i] = (float)s->eye[2] + at * ray.z;
  }
  shadows(s, f->shapes, f->count, s->width, x, y, z, f->shade + from);
  for (int i = 0; i < s->width; i++) {
    const vec ray = ray_of(s, i, row);
    const float t = f->depth[from + i];
    vec found = shade(s, f->shapes, met[i], ray, t, f->shade[from + i], i, row);
    if (s->clear > 0.0f && behind[i] >= 0.0f) {
      const double way[3] = {ray.x, ray.y, ray.z};
      const fdrl_shape *shape = f->shapes + (int)behind[i];
      const vec other = shade_shape(s, shape, ray, (float)fdrl_meets(shape, s->eye, way, s->near));
      found.x = mix(found.x, other.x, s->clear);
      found.y = mix(found.y, other.y, s->clear);
      found.z = mix(found.z, other.z, s->clear);
    }
    float *colour = f->colours + 3 * (from + i);
    colour[0] = found.x, colour[1] = found.y, colour[2] = found.z;
    if (f->depth[from + i] > (float)s->far) { f->depth[from + i] = INFINITY; }
  }
}

// Whether another shape, or the tissue beside one, lies next to a pixel.
static inline int at_an_edge(const int16_t *met, int column, int row, int width, int height)
{
  const int16_t here = *met;
  return (column > 0 && met[-1] != here) || (column + 1 < width && met[1] != here) ||
         (row > 0 && met[-width] != here) || (row + 1 < height && met[width] != here);
}

// At the edges of shapes more rays are cast, beside the middle of the pixel and a moment before:
// edges become smooth, and those that move blurred.
static void soften_edges(const frame *f)
{
  static const double beside[EXTRA][2] = {{-0.3, 0.25}, {0.28, -0.28}, {0.22, 0.32}};
  const fdrl_scene *s = f->scene;
  for (int row = 0; row < s->height; row++) {
    for (int column = 0; column < s->width; column++) {
      const ptrdiff_t i = (ptrdiff_t)row * s->width + column;
      const int edge = at_an_edge(f->now + i, column, row, s->width, s->height) ||
                       (f->then != f->now &&
                        at_an_edge(f->then + i, column, row, s->width, s->height));
      if (!edge) { continue; }
      float *colour = f->colours + 3 * i;
      for (int k = 0; k < EXTRA; k++) {
        const fdrl_shape *shapes = k && f->before ? f->before : f->shapes;
        const double u = column + beside[k][0], v = row + beside[k][1];
        const vec ray = ray_of(s, u, v);
        float t = (float)s->far;
        int met = meets_shapes(s, shapes, f->count, ray, &t);
        const float ground = meets_tissue(s, ray, t, GUESSED * f->depth[i]);
        if (ground < t) { t = ground, met = TISSUE; }
        const vec found = shade(s, shapes, met, ray, t, f->shade[i], u, v);
        colour[0] += found.x, colour[1] += found.y, colour[2] += found.z;
      }
      for (int k = 0; k < 3; k++) { colour[k] *= 1.0f / (1.0f + EXTRA); }
    }
  }
}

// Blur with weights (soft / 4, 1 - soft / 2, soft / 4) along rows, then columns.
SIMD static void blur(const fdrl_scene *s, float *colours, float *scratch)
{
  const float side = 0.25f * s->soft, middle = 1.0f - 2.0f * side;
  const ptrdiff_t stride = 3 * (ptrdiff_t)s->width;
  for (int row = 0; row < s->height; row++) {
    const float *from = colours + row * stride;
    float *to = scratch + row * stride;
    for (ptrdiff_t i = 3; i < stride - 3; i++) {
      to[i] = middle * from[i] + side * (from[i - 3] + from[i + 3]);
    }
    for (int i = 0; i < 3; i++) {
      to[i] = from[i], to[stride - 3 + i] = from[stride - 3 + i];
    }
  }
  for (int row = 0; row < s->height; row++) {
    const float *at = scratch + row * stride;
    const float *above = row ? at - stride : at, *below = row + 1 < s->height ? at + stride : at;
    float *to = colours + row * stride;
    for (ptrdiff_t i = 0; i < stride; i++) {
      to[i] = middle * at[i] + side * (above[i] + below[i]);
    }
  }
}

static inline float colour_at(const fdrl_scene *s, const float *colours, float u, float v, int k)
{
  u = least(most(u, 0.0f), (float)s->width - 1.001f);
  v = least(most(v, 0.0f), (float)s->height - 1.001f);
  const int i = (int)u, j = (int)v;
  const float dx = u - (float)i, dy = v - (float)j;
  const float *at = colours + 3 * ((ptrdiff_t)j * s->width + i) + k, *next = at + 3 * s->width;
  return mix(mix(at[0], at[3], dx), mix(next[0], next[3], dx), dy);
}

static inline uint32_t scrambled(uint32_t x)
{
  x ^= x >> 16, x *= 0x7feb352du;
  x ^= x >> 15, x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

// About N(0, 1): the sum of four uniform bytes.
static inline float noise_of(uint32_t x)
{
  const int sum = (int)(x & 255) + (int)(x >> 8 & 255) + (int)(x >> 16 & 255) + (int)(x >> 24);
  return (float)(sum - 510) * (1.0f / 147.8f);
}

// What lens and sensor make of the colours: fringes, vignette, exposure, tone, noise.
static void develop(const fdrl_scene *s, const float *colours, uint8_t *picture)
{
  const float across = (float)s->across, down = (float)s->down;
  const float corner = 1.0f / (across * across + down * down);
  for (int row = 0; row < s->height; row++) {
    for (int column = 0; column < s->width; column++) {
      const ptrdiff_t i = (ptrdiff_t)row * s->width + column;
      const float u = (float)column - across, v = (float)row - down;
      const float dim = 1.0f + s->vignette * (u * u + v * v) * corner;
      float c[3] = {colours[3 * i], colours[3 * i + 1], colours[3 * i + 2]};
      if (s->fringe > 0.0f) {
        const float out = 1.0f + s->fringe, in = 1.0f - s->fringe;
        c[0] = colour_at(s, colours, across + u * out, down + v * out, 0);
        c[2] = colour_at(s, colours, across + u * in, down + v * in, 2);
      }
      for (int k = 0; k < 3; k++) {
        const float x = most(c[k] * s->gain[k] / (dim * dim), 0.0f);
        c[k] = sqrtf(least(x * (1.0f + 0.14f * x) / (1.0f + 0.45f * x), 1.0f));
      }
      const float grey = 0.30f * c[0] + 0.55f * c[1] + 0.15f * c[2];
      for (int k = 0; k < 3; k++) {
        float x = grey + s->saturation * (c[k] - grey);
        if (s->noise > 0.0f) {
          const uint32_t word = scrambled(s->seed ^ scrambled((uint32_t)(3 * i + k)));
          x += s->noise * (1.2f - 0.7f * grey) * noise_of(word);
        }
        picture[3 * i + k] = (uint8_t)(255.0f * clamp(x) + 0.5f);
      }
    }
  }
}

int fdrl_draw(
  const fdrl_scene *scene, const fdrl_shape *shapes, const fdrl_shape *before, ptrdiff_t count,
  uint8_t *picture, float *depth, uint8_t *labels)
{
  const ptrdiff_t size = (ptrdiff_t)scene->width * scene->height;
  frame f = {scene, shapes, before, count, NULL, NULL, depth, NULL, NULL};
  float *floats = malloc(sizeof(float) * (size_t)(8 * size + 5 * scene->width));
  int16_t *met = malloc(sizeof(int16_t) * (size_t)(2 * size));
  if (!floats || !met) {
    free(floats), free(met);
    return FDRL_NO_MEMORY;
  }
  float *scratch = floats + 3 * size, *row_of_points = floats + 8 * size;
  f.colours = floats, f.shade = floats + 6 * size;
  f.now = met, f.then = before ? met + size : met;
  float *other = floats + 7 * size;
  for (ptrdiff_t i = 0; i < size; i++) {
    depth[i] = other[i] = INFINITY;
    met[i] = met[size + i] = NOTHING;
  }
  find_shapes(&f, shapes, depth, f.now);
  if (before) { find_shapes(&f, before, other, f.then); }
  for (int i = 0; i < scene->width; i++) { row_of_points[4 * scene->width + i] = 0.0f; }
  for (int row = 0; row < scene->height; row++) {
    draw_row(
      &f, row, row_of_points, row_of_points + scene->width, row_of_points + 2 * scene->width);
  }
  for (ptrdiff_t i = 0; i < size; i++) {
    labels[i] = f.now[i] >= 0 && depth[i] <= scene->far ? (uint8_t)shapes[f.now[i]].label : 0;
  }
  soften_edges(&f);
  if (scene->soft > 0.0f) { blur(scene, f.colours, scratch); }
  develop(scene, f.colours, picture);
  free(floats), free(met);
  return FDRL_DONE;
}
