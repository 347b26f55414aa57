// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
/** Read a URDF: links of boxes, cylinders, spheres and capsules, and the joints between them. */

import * as THREE from './vendor/three.module.min.js';

function numbers(text, fallback) {
  const values = (text ?? '').trim().split(/\s+/).map(Number);
  return values.length === fallback.length && values.every(Number.isFinite) ? values : fallback;
}

function child(element, name) {
  return [...(element?.children ?? [])].find((each) => each.tagName === name) ?? null;
}

/** Place a node where an <origin> says: metres, and roll, pitch, yaw about fixed axes. */
function place(node, origin) {
  node.position.set(...numbers(origin?.getAttribute('xyz'), [0, 0, 0]));
  const [roll, pitch, yaw] = numbers(origin?.getAttribute('rpy'), [0, 0, 0]);
  node.rotation.set(roll, pitch, yaw, 'ZYX');
}

function shape(geometry) {
  const it = geometry?.firstElementChild;
  const size = (name) => Number(it.getAttribute(name)) || 0.001;
  if (it?.tagName === 'box') {
    return new THREE.BoxGeometry(...numbers(it.getAttribute('size'), [0.01, 0.01, 0.01]));
  }
  if (it?.tagName === 'sphere') return new THREE.SphereGeometry(size('radius'), 24, 16);
  if (it?.tagName === 'cylinder') {
    const made = new THREE.CylinderGeometry(size('radius'), size('radius'), size('length'), 24);
    return made.rotateX(Math.PI / 2); // along z, as in URDF
  }
  if (it?.tagName === 'capsule') {
    const made = new THREE.CapsuleGeometry(size('radius'), size('length'), 8, 24);
    return made.rotateX(Math.PI / 2);
  }
  return null; // a mesh: nothing of it is on this page
}

function colourOf(material, named) {
  const rgba = child(material, 'color')?.getAttribute('rgba');
  return rgba ? numbers(rgba, [0.6, 0.6, 0.6, 1]) : (named.get(material?.getAttribute('name')) ?? [0.6, 0.6, 0.6, 1]);
}

function visual(element, named) {
  const geometry = shape(child(element, 'geometry'));
  if (!geometry) return null;
  const [red, green, blue, alpha] = colourOf(child(element, 'material'), named);
  const material = new THREE.MeshStandardMaterial({
    color: new THREE.Color().setRGB(red, green, blue, THREE.SRGBColorSpace),
    roughness: 0.65,
    metalness: 0.05,
    transparent: alpha < 1,
    opacity: alpha,
  });
  const mesh = new THREE.Mesh(geometry, material);
  place(mesh, child(element, 'origin'));
  return mesh;
}

class Joint {
  constructor(element) {
    this.kind = element.getAttribute('type');
    this.axis = new THREE.Vector3(...numbers(child(element, 'axis')?.getAttribute('xyz'), [1, 0, 0]));
    this.axis.normalize();
    this.frame = new THREE.Group();
    place(this.frame, child(element, 'origin'));
    this.moved = new THREE.Group();
    this.frame.add(this.moved);
    const mimic = child(element, 'mimic');
    this.mimics = mimic?.getAttribute('joint') ?? null;
    this.multiplier = Number(mimic?.getAttribute('multiplier') ?? 1);
    this.offset = Number(mimic?.getAttribute('offset') ?? 0);
  }

  move(value) {
    if (this.kind === 'prismatic') this.moved.position.copy(this.axis).multiplyScalar(value);
    else if (this.kind !== 'fixed') this.moved.quaternion.setFromAxisAngle(this.axis, value);
  }
}

/** An arm whose joints can be moved. */
export class Robot {
  /**
   * @param xml text of a URDF.
   * @throws Error where the text is none.
   */
  constructor(xml) {
    const document = new DOMParser().parseFromString(xml, 'text/xml');
    const robot = document.documentElement;
    if (robot.tagName !== 'robot') throw new Error('the description of the robot is no URDF');
    const named = new Map();
    for (const each of robot.children) {
      if (each.tagName === 'material') named.set(each.getAttribute('name'), colourOf(each, new Map()));
    }
    this.root = new THREE.Group();
    this.links = new Map();
    this.joints = new Map();
    for (const each of robot.children) {
      if (each.tagName === 'link') this.links.set(each.getAttribute('name'), this.link(each, named));
    }
    const children = new Set();
    for (const each of robot.children) {
      if (each.tagName !== 'joint') continue;
      const joint = new Joint(each);
      const parent = this.links.get(child(each, 'parent')?.getAttribute('link'));
      const below = this.links.get(child(each, 'child')?.getAttribute('link'));
      if (!parent || !below || children.has(below)) continue;
      parent.add(joint.frame);
      joint.moved.add(below);
      children.add(below);
      this.joints.set(each.getAttribute('name'), joint);
    }
    for (const each of this.links.values()) if (!children.has(each)) this.root.add(each);
  }

  link(element, named) {
    const group = new THREE.Group();
    for (const each of element.children) {
      const mesh = each.tagName === 'visual' ? visual(each, named) : null;
      if (mesh) group.add(mesh);
    }
    return group;
  }

  /** Return a link by its name, with or without the prefix of this robot's frames. */
  find(name) {
    for (const [key, link] of this.links) if (key === name || key.endsWith(name)) return link;
    return this.root;
  }

  /** Move joints to these positions, rad and m, by name with or without the prefix. */
  move(positions) {
    for (const [name, joint] of this.joints) {
      const leader = joint.mimics ?? name;
      const value = positions[leader] ?? positions[this.short(leader, positions)];
      if (Number.isFinite(value)) {
        joint.move(joint.mimics ? joint.multiplier * value + joint.offset : value);
      }
    }
  }

  short(name, positions) {
    // 'pitch' also ends 'wrist_pitch': the longest name that fits is meant.
    let best;
    for (const each of Object.keys(positions)) {
      if (name.endsWith(each) && each.length > (best?.length ?? 0)) best = each;
    }
    return best;
  }
}
