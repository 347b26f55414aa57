// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
/** The arm over the patient in three dimensions, with tip, force, waypoint and the tip's trail. */

import { isNumber, list, make, record } from './dom.js';
import { Orbit } from './orbit.js';
import { colour, onTheme } from './theme.js';
import { Robot } from './urdf.js';
import * as THREE from './vendor/three.module.min.js';

const TRAIL = 240; // points
const METRES_A_NEWTON = 0.012;
const LONGEST_ARROW = 0.12;
const ARM = { target: [-0.02, 0.12, 0.27], distance: 1.32, azimuth: -0.75, elevation: 0.42 };
const TIP_DISTANCE = 0.22;

/** Name the colour of a force by its share of the limit. */
export function forceColour(share) {
  if (!isNumber(share)) return '--muted';
  return share >= 1 ? '--limit' : share >= 0.6 ? '--warn' : '--good';
}

function arrow(material) {
  const group = new THREE.Group();
  const shaft = new THREE.Mesh(new THREE.CylinderGeometry(0.0016, 0.0016, 1, 12), material);
  const head = new THREE.Mesh(new THREE.ConeGeometry(0.0045, 0.011, 16), material);
  shaft.geometry.translate(0, 0.5, 0);
  group.add(shaft, head);
  group.userData.point = (way) => {
    const length = Math.min(way.length() * METRES_A_NEWTON, LONGEST_ARROW);
    shaft.scale.y = Math.max(length - 0.008, 0.001);
    head.position.y = length;
    group.quaternion.setFromUnitVectors(new THREE.Vector3(0, 1, 0), way.clone().normalize());
  };
  return group;
}

function ball(radius, material) {
  return new THREE.Mesh(new THREE.SphereGeometry(radius, 20, 14), material);
}

function isPoint(value) {
  return list(value).length === 3 && value.every(isNumber);
}

export class Scene {
  /** Make the view; without WebGL it says so, and everything else goes on. */
  constructor() {
    this.canvas = make('canvas', {
      'tabindex': 0,
      'role': 'img',
      'aria-label': 'The arm in three dimensions. Arrow keys turn the view, plus and minus zoom.',
    });
    this.note = make('p.scene-note', { hidden: true });
    this.element = make('div.scene', {}, this.canvas, this.note);
    this.buttons = make('div.buttons', {},
      make('button.small', { type: 'button', click: () => this.reset() }, 'Whole arm'),
      make('button.small', { type: 'button', click: () => this.closeUp() }, 'Tip'));
    this.robot = null;
    this.dirty = true;
    this.seen = new THREE.Vector3();
    this.trail = [];
    try {
      this.renderer = new THREE.WebGLRenderer({ canvas: this.canvas, antialias: true });
    } catch {
      this.tell('No picture in three dimensions: this browser has no WebGL.');
      return;
    }
    this.renderer.setPixelRatio(Math.min(window.devicePixelRatio, 2));
    this.build();
    onTheme(() => this.paint());
    this.resizing = new ResizeObserver(() => this.resize());
    this.resizing.observe(this.element);
    this.lastCost = 0;
    this.lastTime = 0;
  }

  build() {
    this.world = new THREE.Scene();
    this.camera = new THREE.PerspectiveCamera(38, 1, 0.005, 12);
    this.camera.up.set(0, 0, 1);
    this.orbit = new Orbit(this.camera, this.canvas, () => {
      this.dirty = true;
    });
    this.orbit.look(ARM);
    this.world.add(new THREE.HemisphereLight(0xffffff, 0x8899aa, 1.9));
    const sun = new THREE.DirectionalLight(0xffffff, 1.9);
    sun.position.set(1, -1.5, 2);
    this.world.add(sun);
    this.colours = {
      tip: new THREE.MeshBasicMaterial(),
      waypoint: new THREE.MeshBasicMaterial({ transparent: true, opacity: 0.8 }),
      force: new THREE.MeshBasicMaterial(),
      trail: new THREE.LineBasicMaterial(),
    };
    // What is at the tip shines through the organ: it is what a person looks for.
    for (const each of Object.values(this.colours)) each.depthTest = false;
    this.tip = ball(0.003, this.colours.tip);
    this.waypoint = ball(0.005, this.colours.waypoint);
    this.arrow = arrow(this.colours.force);
    const points = new THREE.BufferGeometry();
    points.setAttribute('position', new THREE.BufferAttribute(new Float32Array(3 * TRAIL), 3));
    this.line = new THREE.Line(points, this.colours.trail);
    this.line.frustumCulled = false;
    this.marks = new THREE.Group();
    this.marks.add(this.line, this.waypoint, this.arrow, this.tip);
    for (const each of [this.line, this.waypoint, this.arrow, this.tip]) each.renderOrder = 10;
    this.arrow.traverse((each) => {
      each.renderOrder = 10;
    });
    this.paint();
  }

  paint() {
    if (!this.world) return;
    this.world.background = new THREE.Color(colour('--scene'));
    this.colours.tip.color.set(colour('--tip'));
    this.colours.waypoint.color.set(colour('--waypoint'));
    this.colours.trail.color.set(colour('--tip'));
    this.dirty = true;
  }

  tell(text) {
    this.note.textContent = text;
    this.note.hidden = !text;
  }

  /** Show a robot by its URDF; the marks move with its base_link. */
  load(xml) {
    if (!this.world) return;
    if (this.robot) {
      this.world.remove(this.robot.root);
      this.robot.root.traverse((each) => {
        if (each === this.marks || each.parent === this.marks) return;
        each.geometry?.dispose();
        each.material?.dispose();
      });
    }
    this.marks.removeFromParent();
    this.robot = new Robot(xml);
    this.world.add(this.robot.root);
    this.robot.find('base_link').add(this.marks);
    this.trail = [];
    this.dirty = true;
  }

  reset() {
    this.orbit?.look(ARM);
  }

  closeUp() {
    if (!this.robot) return;
    this.marks.updateWorldMatrix(true, false);
    const at = this.marks.localToWorld(this.seen.clone());
    this.orbit.look({ ...ARM, target: at.toArray(), distance: TIP_DISTANCE });
  }

  /** Move arm and marks to a state of the room. */
  update(robot) {
    if (!this.world || !this.robot) return;
    this.robot.move(record(robot.joints));
    if (robot.patient !== this.patient) this.clear();
    this.patient = robot.patient;
    this.tip.visible = isPoint(robot.tip);
    if (this.tip.visible) {
      this.tip.position.set(...robot.tip);
      this.seen.copy(this.tip.position);
      this.follow(robot.tip);
    }
    this.waypoint.visible = isPoint(robot.waypoint);
    if (this.waypoint.visible) this.waypoint.position.set(...robot.waypoint);
    this.press(robot);
    this.dirty = true;
  }

  press(robot) {
    const force = isPoint(robot.force_vector) ? robot.force_vector : [0, 0, isNumber(robot.force) ? robot.force : 0];
    const way = new THREE.Vector3(...force);
    this.arrow.visible = this.tip.visible && way.length() > 0.05;
    if (!this.arrow.visible) return;
    this.arrow.position.copy(this.tip.position);
    this.arrow.userData.point(way);
    this.colours.force.color.set(colour(forceColour(robot.force / robot.force_limit)));
  }

  follow(tip) {
    const last = this.trail.at(-1);
    const step = last ? Math.hypot(tip[0] - last[0], tip[1] - last[1], tip[2] - last[2]) : 1;
    if (step < 0.0003) return;
    if (step > 0.05) this.trail = []; // another operation begins elsewhere
    this.trail.push([...tip]);
    if (this.trail.length > TRAIL) this.trail.shift();
    const positions = this.line.geometry.getAttribute('position');
    this.trail.forEach((point, index) => positions.setXYZ(index, ...point));
    positions.needsUpdate = true;
    this.line.geometry.setDrawRange(0, this.trail.length);
  }

  /** Forget the trail, as when a replay jumps. */
  clear() {
    this.trail = [];
    this.line?.geometry.setDrawRange(0, 0);
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height) return;
    this.renderer.setSize(width, height, false);
    this.camera.aspect = width / height;
    this.camera.updateProjectionMatrix();
    this.dirty = true;
  }

  /** Draw if something moved; where drawing is slow, as without a GPU, less often. */
  draw(now) {
    if (!this.renderer || !this.element.clientWidth) return;
    if (this.drawn) this.lastCost = 0.7 * this.lastCost + 0.3 * (now - this.lastTime);
    this.drawn = false;
    if (!this.dirty || now - this.lastTime < 2 * Math.min(this.lastCost - 20, 400)) return;
    this.renderer.render(this.world, this.camera);
    this.dirty = false;
    this.drawn = true;
    this.lastTime = now;
  }
}
