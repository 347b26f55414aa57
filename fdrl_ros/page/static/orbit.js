// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
/** Turn, shift and zoom a camera about a point: mouse, touch, keys. */

import * as THREE from './vendor/three.module.min.js';

const STEEPEST = 1.5; // rad above or below the horizon
const NEAREST = 0.03; // m
const FARTHEST = 4;

export class Orbit {
  /**
   * @param camera of which z is up.
   * @param element that takes pointers and keys.
   * @param changed called after each move.
   */
  constructor(camera, element, changed) {
    this.camera = camera;
    this.changed = changed;
    this.pointers = new Map();
    this.target = new THREE.Vector3();
    this.look({ target: [0, 0, 0], distance: 1, azimuth: 0, elevation: 0.4 });
    element.addEventListener('pointerdown', (event) => {
      element.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, event);
    });
    const end = (event) => this.pointers.delete(event.pointerId);
    element.addEventListener('pointerup', end);
    element.addEventListener('pointercancel', end);
    element.addEventListener('pointermove', (event) => this.drag(event));
    element.addEventListener('wheel', (event) => {
      event.preventDefault();
      this.zoom(Math.exp(event.deltaY * 0.001));
    }, { passive: false });
    element.addEventListener('keydown', (event) => this.key(event));
  }

  /** Look from a direction: azimuth and elevation in rad, distance in m. */
  look({ target, distance, azimuth, elevation }) {
    this.target.set(...target);
    Object.assign(this, { distance, azimuth, elevation });
    this.apply();
  }

  drag(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const [x, y] = [event.clientX - before.clientX, event.clientY - before.clientY];
    if (this.pointers.size === 1) {
      if (event.shiftKey || event.buttons === 2) this.shift(x, y);
      else this.turn(-0.008 * x, 0.008 * y);
    } else {
      const [other] = [...this.pointers.values()].filter((each) => each.pointerId !== event.pointerId);
      const span = (each) => Math.hypot(each.clientX - other.clientX, each.clientY - other.clientY);
      this.zoom(span(before) / Math.max(span(event), 1));
      this.shift(x / 2, y / 2);
    }
    this.pointers.set(event.pointerId, event);
  }

  key(event) {
    const moves = {
      'ArrowLeft': () => this.turn(-0.1, 0),
      'ArrowRight': () => this.turn(0.1, 0),
      'ArrowUp': () => this.turn(0, 0.1),
      'ArrowDown': () => this.turn(0, -0.1),
      '+': () => this.zoom(0.85),
      '-': () => this.zoom(1.18),
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
  }

  turn(azimuth, elevation) {
    this.azimuth += azimuth;
    this.elevation = Math.max(-STEEPEST, Math.min(STEEPEST, this.elevation + elevation));
    this.apply();
  }

  zoom(factor) {
    this.distance = Math.max(NEAREST, Math.min(FARTHEST, this.distance * factor));
    this.apply();
  }

  shift(x, y) {
    const step = 0.0015 * this.distance;
    const right = new THREE.Vector3().setFromMatrixColumn(this.camera.matrix, 0);
    const up = new THREE.Vector3().setFromMatrixColumn(this.camera.matrix, 1);
    this.target.addScaledVector(right, -x * step).addScaledVector(up, y * step);
    this.apply();
  }

  apply() {
    const flat = this.distance * Math.cos(this.elevation);
    this.camera.position.set(
      this.target.x + flat * Math.cos(this.azimuth),
      this.target.y + flat * Math.sin(this.azimuth),
      this.target.z + this.distance * Math.sin(this.elevation),
    );
    this.camera.lookAt(this.target);
    this.camera.updateMatrix();
    this.changed();
  }
}
