// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
/** A WebSocket that comes back, and acknowledges a message once it is drawn. */

const FIRST_WAIT = 250; // ms
const LONGEST_WAIT = 5000;

/** Return the address of a WebSocket on this very server. */
export function socketAddress(path) {
  const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:';
  return `${scheme}//${location.host}${path}`;
}

/** Resolve when the browser draws next; a hidden page waits, and so does its server. */
export function beforeDrawing() {
  return new Promise((resolve) => {
    requestAnimationFrame(resolve);
  });
}

export class Link {
  /**
   * Connect, and connect again after ever longer waits, until closed.
   *
   * @param path of the WebSocket on this server.
   * @param draw takes the data of a message, draws it, and returns what to acknowledge
   *   (or a promise of it); null: nothing.
   * @param onState called with true when connected, with false when the connection is lost.
   */
  constructor(path, draw, onState = () => {}) {
    this.path = path;
    this.draw = draw;
    this.onState = onState;
    this.wait = FIRST_WAIT;
    this.timer = 0;
    this.closed = false;
    this.connect();
  }

  connect() {
    const socket = new WebSocket(socketAddress(this.path));
    this.socket = socket;
    socket.binaryType = 'arraybuffer';
    socket.addEventListener('open', () => this.onState(true));
    socket.addEventListener('message', (event) => this.receive(socket, event.data));
    socket.addEventListener('close', () => {
      if (this.closed || socket !== this.socket) return;
      this.onState(false);
      // A server that comes back is not met by all its pages at the same moment.
      this.timer = setTimeout(() => this.connect(), this.wait * (0.75 + 0.5 * Math.random()));
      this.wait = Math.min(2 * this.wait, LONGEST_WAIT);
    });
  }

  async receive(socket, data) {
    this.wait = FIRST_WAIT; // it works: the next loss is met quickly
    let got = null;
    try {
      got = await this.draw(data);
    } catch (error) {
      console.error(error); // one message that cannot be drawn does not end the stream
      got = error.got ?? null;
    }
    if (got !== null && socket.readyState === WebSocket.OPEN) {
      socket.send(JSON.stringify({ got }));
    }
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.socket.close();
  }
}
