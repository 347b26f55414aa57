# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A real headless Chromium, driven over its DevTools protocol."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
import json
from pathlib import Path
import shutil
import subprocess
import threading
from typing import Any
from urllib.request import Request, urlopen

from websockets.sync.client import ClientConnection, connect

NAMES = 'chromium', 'chromium-browser', 'google-chrome'
FLAGS = (
    *('--headless', '--no-sandbox', '--no-first-run', '--disable-extensions'),
    *('--use-angle=swiftshader', '--enable-unsafe-swiftshader', '--remote-debugging-port=0'),
    *('--disable-background-networking', '--disable-component-update', '--disable-sync'),
    *('--disable-dev-shm-usage', '--no-default-browser-check', '--hide-scrollbars'),
)
SURE = 400  # ms: a second press within less is a double tap
PATIENCE = 60.0  # s: the machine may be busy
CONDITION = """
new Promise((resolve, reject) => {
  const end = Date.now() + %d;
  const look = () => {
    let found = null;
    try { found = (%s); } catch (error) { found = null; }
    if (found) resolve(found);
    else if (Date.now() > end) reject(new Error('never'));
    else setTimeout(look, 20);
  };
  look();
})
"""


def found() -> str | None:
    """Return the path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Tab:
    """A page that is open in the browser."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.errors: list[str] = []
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.call(f'{domain}.enable')

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; what the page complains of is kept."""
        self._number += 1
        command = {'id': self._number, 'method': method, 'params': parameters}
        self._socket.send(json.dumps(command))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE + 30.0))
            if message.get('id') == self._number:
                assert 'error' not in message, (method, message['error'])
                return message['result']
            self._keep(message)

    def _keep(self, message: dict[str, Any]) -> None:
        told = message.get('params', {})
        if message.get('method') == 'Runtime.exceptionThrown':
            details = told['exceptionDetails']
            self.errors.append(details.get('exception', {}).get('description', details['text']))
        elif message.get('method') == 'Log.entryAdded' and told['entry']['level'] == 'error':
            self.errors.append(f'{told["entry"]["text"]} {told["entry"].get("url", "")}')

    def run(self, script: str) -> Any:
        """Return what JavaScript evaluates to; a promise is awaited."""
        result = self.call(
            'Runtime.evaluate', expression=script, awaitPromise=True, returnByValue=True
        )
        assert 'exceptionDetails' not in result, (script, result['exceptionDetails'])
        return result['result'].get('value')

    def wait(self, condition: str) -> Any:
        """Wait until JavaScript evaluates to something true, and return that."""
        try:
            return self.run(CONDITION % (1000.0 * PATIENCE, condition))
        except AssertionError:
            text = self.run('document.body.innerText')
            raise AssertionError(f'never: {condition}; {self.errors}; {text[:2000]}') from None

    def open(self, address: str) -> None:
        """Load a page."""
        self.call('Page.navigate', url=address)

    def text(self, selector: str) -> str:
        """Return the text of an element."""
        return self.run(f'document.querySelector({json.dumps(selector)}).textContent')

    def click(self, selector: str) -> None:
        """Click an element with the mouse, where it can be clicked."""
        where = self.wait(
            f"""(() => {{
              const it = document.querySelector({json.dumps(selector)});
              if (!it || it.disabled || !it.getClientRects().length) return null;
              it.scrollIntoView({{block: 'center', behavior: 'instant'}});
              const box = it.getBoundingClientRect();
              return [box.x + box.width / 2, box.y + box.height / 2];
            }})()"""
        )
        for kind in ('mousePressed', 'mouseReleased'):
            place = {'x': where[0], 'y': where[1], 'button': 'left', 'clickCount': 1}
            self.call('Input.dispatchMouseEvent', type=kind, **place)

    def press(self, selector: str) -> str:
        """Press the button of an act, again where it asks, and return the answer."""
        button = f'document.querySelector({json.dumps(selector)})'
        act = self.wait(f'{button} && {button}.dataset.act')
        answer = "document.querySelector('.answer')"
        answered = f'{answer}.dataset.act === {json.dumps(act)} && {answer}.textContent'
        self.run(f"{answer}.dataset.act = ''")
        self.click(selector)
        # A question is forgotten where data is old for a moment, as on a busy machine.
        while not self.run(f'!{button} || {button}.ariaBusy || {answered}'):
            asked = self.run('performance.now()')
            self.wait(f'performance.now() > {asked} + {SURE}')
            self.click(selector)
        return self.wait(answered)

    def resize(self, width: int, height: int, *, touch: bool = False) -> None:
        """Be a screen of so many pixels."""
        size = {'width': width, 'height': height, 'deviceScaleFactor': 1, 'mobile': touch}
        self.call('Emulation.setDeviceMetricsOverride', **size)

    def prefer(self, scheme: str) -> None:
        """Prefer dark or light colours, as the system does."""
        feature = {'name': 'prefers-color-scheme', 'value': scheme}
        self.call('Emulation.setEmulatedMedia', features=[feature])

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Save what is seen as PNG."""
        result = self.call('Page.captureScreenshot', format='png', captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(result['data']))


class Browser:
    """A browser that runs; tabs share its cookies."""

    def __init__(self, host: str) -> None:
        self._host = host

    @contextmanager
    def tab(self) -> Iterator[Tab]:
        """Open a tab."""
        request = Request(f'http://{self._host}/json/new?about:blank', method='PUT')
        with urlopen(request, timeout=PATIENCE) as answer:
            target = json.load(answer)
        try:
            with connect(
                target['webSocketDebuggerUrl'], max_size=None, compression=None
            ) as socket:
                yield Tab(socket)
        finally:
            urlopen(f'http://{self._host}/json/close/{target["id"]}', timeout=PATIENCE).close()


@contextmanager
def running(folder: Path) -> Iterator[Browser]:
    """
    Start a Chromium, and end it.

    :param folder: for its profile.
    """
    command = [found() or '', *FLAGS, f'--user-data-dir={folder}', 'about:blank']
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        timer = threading.Timer(PATIENCE, process.kill)
        timer.start()
        lines = []
        try:
            for line in process.stderr:
                lines.append(line)
                if 'DevTools listening on ' in line:
                    timer.cancel()
                    break
            else:
                raise AssertionError(f'Chromium did not start: {"".join(lines[-20:])}')
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield Browser(line.split('ws://')[1].split('/')[0])
        finally:
            timer.cancel()
            process.kill()
