# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A server that says to the page what a test wants, and keeps what the page says."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
import json
import struct
import threading
import time
from typing import Any

from fdrl_ros.resources import resource
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect
from support.watched_room import CALMING, CSRF, FEDERATION, NOTE, ROOM
import uvicorn

STATIC = resource('fdrl_ros/page/static')
POLICY = (
    "default-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)


class PageServer:
    """
    What the page asks for, as attributes that a test sets while it runs.

    :param urdf: description of every robot.
    """

    def __init__(self, urdf: str) -> None:
        self.urdf = urdf
        self.snapshot: dict[str, Any] = {'robots': {}, 'federation': None}
        self.acts: list[str] = [*ROOM, *FEDERATION]
        self.calming: list[str] = [*CALMING]
        self.left: list[str] = []
        self.refuses_to_leave = False
        self.answer: tuple[int, str] = 200, 'Done as asked.'
        self.pictures: list[bytes] = []
        self.leaves_out: set[str] = set()
        self.records: dict[str, dict[str, Any]] = {}
        self.silent = False
        self.away = False
        self.signed_in = True
        self.asked: list[tuple[dict[str, Any], dict[str, str]]] = []
        self.got: list[int] = []
        self.sent = 0
        self.got_pictures = 0
        self._sockets: set[WebSocket] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f'http://127.0.0.1:{self.port}'

    def drop(self) -> None:
        """Close every WebSocket, as a lost connection does; `away` lets nobody in again."""
        assert self._loop
        for each in list(self._sockets):
            asyncio.run_coroutine_threadsafe(each.close(1011), self._loop).result(10.0)

    async def _page(self, request: Request) -> Response:
        return FileResponse(STATIC / 'index.html', headers={'Content-Security-Policy': POLICY})

    async def _session(self, request: Request) -> Response:
        if not self.signed_in:
            return JSONResponse({'ok': False}, 403)
        role = 'operator' if 'pause' in self.acts else 'surgeon' if self.acts else 'viewer'
        session = {'name': 'Ada', 'role': role, 'csrf': CSRF, 'acts': self.acts, 'note': NOTE}
        return JSONResponse(session | {'calming': self.calming})

    async def _leave(self, request: Request) -> Response:
        self.left.append(request.headers['x-csrf-token'])
        if self.refuses_to_leave:
            return Response(status_code=500)
        self.signed_in = False
        return Response(status_code=204)

    async def _urdf(self, request: Request) -> Response:
        return Response(self.urdf, media_type='application/xml')

    async def _act(self, request: Request) -> Response:
        self.asked.append((await request.json(), dict(request.headers)))
        status, message = self.answer
        return JSONResponse({'ok': status == 200, 'message': message}, status)

    async def _records(self, request: Request) -> Response:
        listed = [
            {'id': key, 'kind': each['kind'], 'title': each['title'], 'when': each.get('when')}
            | {'seconds': each.get('duration'), 'broken': each.get('broken', False)}
            for key, each in self.records.items()
        ]
        return JSONResponse(listed)

    async def _record(self, request: Request) -> Response:
        found = self.records.get(request.path_params['name'])
        if found is None:
            return JSONResponse({'ok': False, 'message': 'it cannot be read'}, 409)
        return JSONResponse(found)

    async def _show(self, websocket: WebSocket) -> None:
        async def send() -> None:
            for _ in count():
                while self.silent:
                    await asyncio.sleep(0.02)
                self.sent += 1
                text = {'n': self.sent, 'time': time.time(), 'health': [], 'events': []}
                text |= self.snapshot
                sent = {key: each for key, each in text.items() if key not in self.leaves_out}
                await websocket.send_text(json.dumps(sent))
                self.got.append(json.loads(await websocket.receive_text())['got'])
                await asyncio.sleep(0.04)

        await self._serve(websocket, send)

    async def _picture(self, websocket: WebSocket) -> None:
        async def send() -> None:
            for number in count():
                if self.pictures:
                    jpeg = self.pictures[number % len(self.pictures)]
                    await websocket.send_bytes(struct.pack('<d', float(number)) + jpeg)
                    assert json.loads(await websocket.receive_text())['got'] == number
                    self.got_pictures += 1
                await asyncio.sleep(0.1)

        await self._serve(websocket, send)

    async def _serve(self, websocket: WebSocket, send: Any) -> None:
        if self.away:
            await websocket.close()
            return
        await websocket.accept()
        self._sockets.add(websocket)
        try:
            with suppress(WebSocketDisconnect, RuntimeError, asyncio.CancelledError):
                await send()
        finally:
            self._sockets.discard(websocket)

    def app(self) -> Starlette:
        routes = [
            Route('/', self._page),
            Route('/api/session', self._session),
            Route('/leave', self._leave, methods=['POST']),
            Route('/api/urdf/{robot}', self._urdf),
            Route('/api/act', self._act, methods=['POST']),
            Route('/api/records', self._records),
            Route('/api/records/{name:path}', self._record),
            WebSocketRoute('/ws', self._show),
            WebSocketRoute('/ws/picture/{robot}', self._picture),
            Mount('/static', StaticFiles(directory=STATIC, follow_symlink=True)),
        ]
        return Starlette(routes=routes)


@contextmanager
def serving(page: PageServer) -> Iterator[PageServer]:
    """Serve the page on a free port of this machine."""
    config = uvicorn.Config(page.app(), port=0, log_level='error', lifespan='off')
    server = uvicorn.Server(config)
    begun = threading.Event()
    startup = server.startup

    async def start(sockets: Any = None) -> None:
        await startup(sockets)
        page._loop = asyncio.get_running_loop()
        page.port = server.servers[0].sockets[0].getsockname()[1]
        begun.set()

    server.startup = start  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert begun.wait(30.0)
        yield page
    finally:
        server.should_exit = server.force_exit = True
        thread.join(30.0)
