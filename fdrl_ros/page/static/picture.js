// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
/** The endoscope's picture, plain or with what the segmenter sees. */

import { beforeDrawing, Link } from './link.js';
import { list, make, percent, show, write } from './dom.js';
import { sentence, UNSEEN } from './words.js';

const PARTS = ['background', 'shaft', 'wrist', 'jaw'];

const FOUND = 3000; // ms of an operation after which the server has found who publishes pictures

/** Say why there is no picture; the simulated endoscope begins with the first operation. */
function noPicture({ operating }, begun) {
  if (operating && begun < FOUND) return 'No picture yet.';
  if (!operating) return 'No picture: no operation runs, and nobody publishes endoscope/image_raw of this robot yet.';
  return 'No picture: nobody publishes endoscope/image_raw of this robot. The simulated one does with endoscope:=true, as in fdrl launch robot endoscope:=true';
}

export class Picture {
  constructor() {
    this.canvas = make('canvas', { 'role': 'img', 'aria-label': 'Picture of the endoscope', 'hidden': true });
    this.note = make('p.scene-note');
    this.seen = make('p.side');
    this.overlay = make('button.small', {
      'type': 'button', 'aria-pressed': 'false', 'hidden': true, 'click': () => this.toggle(),
    }, 'Overlay');
    this.element = make('div.picture', {}, this.canvas, this.note);
    this.kind = 'image';
    this.path = null;
    this.link = null;
    this.drawn = 0;
    this.idle = -Infinity; // when no operation ran last, ms of this page
  }

  toggle() {
    this.kind = this.kind === 'image' ? 'overlay' : 'image';
    this.overlay.setAttribute('aria-pressed', String(this.kind === 'overlay'));
  }

  /** Connect to the picture of a robot, or to none. */
  follow(name, robot, now = performance.now()) {
    if (robot && !robot.operating) this.idle = now;
    show(this.overlay, robot?.overlay);
    const kind = this.kind === 'overlay' && robot?.overlay ? 'overlay' : 'image';
    const path = robot?.picture ? `/ws/picture/${encodeURIComponent(name)}?kind=${kind}` : null;
    this.describe(robot);
    if (robot) write(this.note, path ? 'The first picture has not come yet.' : noPicture(robot, now - this.idle));
    if (path === this.path) return;
    this.path = path;
    this.link?.close();
    this.link = path ? new Link(path, (data) => this.draw(path, data)) : null;
    if (!path) show(this.canvas, false);
    show(this.note, this.canvas.hidden);
  }

  describe(robot) {
    const visibility = robot?.visibility;
    if (!visibility) write(this.seen, '');
    else if (!visibility.seen) write(this.seen, `Nothing is seen. ${sentence(UNSEEN, visibility.reason)}`);
    else {
      const parts = list(visibility.share).slice(1, 4);
      write(this.seen, `Seen: ${parts.map((each, index) => `${PARTS[index + 1]} ${percent(each)}`).join(', ')}`);
    }
    this.seen.classList.toggle('over', Boolean(visibility) && !visibility.seen);
  }

  /** Draw 8 bytes of time stamp and a JPEG; return the stamp. */
  async draw(path, data) {
    const stamp = new DataView(data).getFloat64(0, true);
    let bitmap;
    try {
      bitmap = await createImageBitmap(new Blob([data.slice(8)], { type: 'image/jpeg' }));
    } catch (error) {
      error.got = stamp; // a broken picture: the next one may come
      throw error;
    }
    await beforeDrawing();
    if (path === this.path) {
      if (this.canvas.width !== bitmap.width) this.canvas.width = bitmap.width;
      if (this.canvas.height !== bitmap.height) this.canvas.height = bitmap.height;
      this.canvas.getContext('2d').drawImage(bitmap, 0, 0);
      show(this.canvas, true);
      show(this.note, false);
      this.drawn = stamp;
      this.element.dataset.stamp = stamp;
    }
    bitmap.close();
    return stamp;
  }
}
