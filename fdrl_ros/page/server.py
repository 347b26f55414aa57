# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The web server of the page: HTTP for entering and acting, WebSockets for what is shown.

A client gets the newest snapshot once it has drawn the one before: a slow one delays nobody, and
nothing queues. Every request is checked for the name by which the server was called and for the
site that it comes from, so that no other site can look or act with a person's cookie.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
import hmac
from importlib.resources import files
import json
import math
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import anyio
from anyio.to_thread import run_sync
from fdrl_ros.errors import FdrlError, RecordsError
from fdrl_ros.page.acts import Acts, CALMING
from fdrl_ros.page.pictures import Pictures
from fdrl_ros.page.sessions import EntryRefused, Session, Sessions
from fdrl_ros.page.state import as_json, PageState
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection, Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

NOTE: Final = 'A browser is no emergency stop.'

SHORTEST: Final = 0.025
"""Between two snapshots, second."""

LONGEST: Final = 0.25
"""The same while nothing happens, so that a client sees that the server lives."""

REST: Final = 1.0
"""Between two looks at federation and health, unless there is news of the federation, second."""

AT_ONCE: Final = 40
"""Acts that are carried out at once; whoever looks at records takes none of their threads."""

MOST_BYTES: Final = 10_000
"""Of the body of a request."""

LOOPBACK: Final = ('127.0.0.1', 'localhost', '::1')

HEADERS: Final = {
    'Content-Security-Policy': (
        "default-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
    'Cross-Origin-Opener-Policy': 'same-origin',
    'Cross-Origin-Resource-Policy': 'same-origin',
    'Referrer-Policy': 'no-referrer',  # the token of a link is in its address
    'X-Content-Type-Options': 'nosniff',
    'X-Frame-Options': 'DENY',
}
"""Of every answer."""

_REFUSED = 4403  # close code of a WebSocket that may not be opened


class Records(Protocol):
    """What was recorded."""

    def listed(self) -> list[dict[str, Any]]:
        """Return what there is."""
        ...

    def read(self, name: str) -> dict[str, Any]:
        """
        Return one record.

        :raises FdrlError: if it is not there, or cannot be read.
        """
        ...


@dataclass(frozen=True)
class Place:
    """
    Where the server is reached.

    :param secure: whether by TLS.
    :param names: by which browsers call it, besides loopback ones.
    :param cookie: name of the cookie; pages on several ports of a host have several.
    """

    secure: bool = False
    names: tuple[str, ...] = ()
    cookie: str = 'fdrl_page'

    def knows(self, connection: HTTPConnection) -> bool:
        """Return whether a request names this server; another site's name may point here too."""
        with suppress(ValueError):
            name = urlsplit(f'//{connection.headers.get("host", "")}').hostname
            if name is None:
                return False
            # A wildcard is of one label.
            return not {name, f'*.{name.partition(".")[2]}'}.isdisjoint((*LOOPBACK, *self.names))
        return False

    def same_site(self, connection: HTTPConnection, *, needed: bool) -> bool:
        """
        Return whether a request comes from the page itself.

        :param needed: whether it has to say where it comes from.
        """
        origin = connection.headers.get('origin')
        if origin is None:
            return not needed
        scheme = 'https' if self.secure else 'http'
        return origin == f'{scheme}://{connection.headers.get("host", "")}'


class Feed:
    """
    The newest snapshot, made once for all clients who wait for it.

    Federation and health, which may be long, are made once a second or when there is news of the
    federation, and are in a snapshot only for clients that have not got these yet.

    :param state: whose `changed` is used from now on.
    """

    def __init__(self, state: PageState) -> None:
        self._state = state
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._made: tuple[int, str] = -1, ''
        self._made_at = self._rest_at = -math.inf
        self._rest, self._rest_number, self._told = '', 0, 0
        state.changed = self._wake

    def begin(self) -> None:
        """Belong to the event loop that runs."""
        self._loop = asyncio.get_running_loop()

    async def after(self, number: int, rest: int) -> tuple[int, int, str]:
        """
        Wait for news, then return the newest snapshot.

        :param number: of the one that the client has; the same may come again after a while, as
            a sign of life.
        :param rest: number of the federation and health that it has.
        :returns: both numbers, and JSON.
        """
        loop = asyncio.get_running_loop()
        if self._made[0] == number:
            if self._state.urgent <= number:
                await self._news(loop)
            await asyncio.sleep(self._made_at + SHORTEST - loop.time())
        if loop.time() - self._made_at >= SHORTEST:
            rooms = self._state.rooms()
            self._made, self._made_at = (rooms['n'], as_json(rooms)), loop.time()
            self._make_rest(loop.time())
        number, text = self._made
        if rest != self._rest_number:
            text = f'{text[:-1]},{self._rest[1:]}'
        return number, self._rest_number, text

    def _make_rest(self, now: float) -> None:
        """Look at federation and health, if it is time to."""
        told = self._state.told
        if now - self._rest_at < REST and told == self._told:
            return
        self._rest_at, self._told = now, told
        made = as_json(self._state.rest())
        if made != self._rest:
            self._rest, self._rest_number = made, self._rest_number + 1

    async def _news(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for something worth sending at once, for a while."""
        news = loop.create_future()
        self._waiting.add(news)
        try:
            await asyncio.wait_for(news, LONGEST)
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(news)

    def _wake(self) -> None:
        """Let all clients have the newest; called on any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        for each in self._waiting:
            if not each.done():
                each.set_result(None)


@dataclass
class Server:
    """
    What the web application is made of.

    :param urdf: returns the description of a robot.
    :param records: None if there are none to show.
    """

    state: PageState
    sessions: Sessions
    acts: Acts
    pictures: Pictures
    place: Place
    urdf: Callable[[str], str]
    records: Records | None = None
    static: Path = field(default_factory=lambda: Path(str(files('fdrl_ros.page') / 'static')))

    def app(self) -> ASGIApp:
        """Return the application."""
        self._feed = Feed(self.state)
        self._for_acts = anyio.CapacityLimiter(AT_ONCE)
        self._for_records = anyio.CapacityLimiter(1)

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            self._feed.begin()
            yield

        routes = [
            Route('/', self._page),
            Route('/enter', self._enter),
            Route('/leave', self._leave, methods=['POST']),
            Route('/api/session', self._session),
            Route('/api/urdf/{robot}', self._urdf),
            Route('/api/act', self._act, methods=['POST']),
            Route('/api/records', self._records),
            Route('/api/records/{name:path}', self._record),
            WebSocketRoute('/ws', self._show),
            WebSocketRoute('/ws/picture/{robot}', self._show_pictures),
            # A workspace of links (`colcon build --symlink-install`) serves what they lead to.
            Mount(
                '/static',
                StaticFiles(directory=self.static, check_dir=False, follow_symlink=True),
            ),
        ]
        return _Guard(Starlette(routes=routes, lifespan=lifespan), self.place)

    def _find(self, connection: HTTPConnection) -> Session | None:
        return self.sessions.find(connection.cookies.get(self.place.cookie))

    async def _page(self, request: Request) -> Response:
        if self._find(request) is None:
            return refusal(
                'You are not signed in. If you just followed a link, load this page again; else '
                'ask who runs fdrl watch for a new link.'
            )
        return FileResponse(self.static / 'index.html', headers={'Cache-Control': 'no-store'})

    async def _enter(self, request: Request) -> Response:
        if request.method == 'HEAD':  # a preview of the link, which would use it up
            return Response(status_code=405, headers={'Allow': 'GET'})
        try:
            cookie, _ = self.sessions.enter(request.query_params.get('token', ''))
        except EntryRefused as error:
            return refusal(f'{str(error)[0].upper()}{str(error)[1:]}.')
        answer = RedirectResponse('/', 303, {'Cache-Control': 'no-store'})
        answer.set_cookie(
            self.place.cookie,
            cookie,
            path='/',
            httponly=True,
            samesite='strict',
            secure=self.place.secure,
        )
        return answer

    async def _leave(self, request: Request) -> Response:
        session = self._find(request)
        if session is None:
            return _not_signed_in()
        if not _unforged(request, session):
            return _forged()
        self.sessions.leave(request.cookies[self.place.cookie])
        answer = Response(status_code=204)
        answer.delete_cookie(self.place.cookie, path='/', secure=self.place.secure)
        return answer

    async def _session(self, request: Request) -> Response:
        session = self._find(request)
        if session is None:
            return _not_signed_in()
        return _json(
            {
                'name': session.person.name,
                'role': session.person.role,
                'csrf': session.csrf,
                'acts': self.acts.allowed(session.person.role),
                'calming': list(CALMING),
                'note': ' '.join(filter(None, (NOTE, self.acts.lacking(session.person.role)))),
            }
        )

    async def _urdf(self, request: Request) -> Response:
        if self._find(request) is None:
            return _not_signed_in()
        robot = request.path_params['robot']
        if robot not in self.state.robots:
            return _json({'ok': False, 'message': 'There is no such robot here.'}, 404)
        text = await run_in_threadpool(self.urdf, robot)
        return Response(text, media_type='application/xml', headers={'Cache-Control': 'no-store'})

    async def _act(self, request: Request) -> Response:
        session = self._find(request)
        if session is None:
            return _not_signed_in()
        if not _unforged(request, session):
            return _forged()
        try:
            async with asyncio.timeout(5.0):
                data = b''
                async for part in request.stream():
                    data += part
                    if len(data) > MOST_BYTES:
                        raise ValueError('it is too long')
            body = _parsed(data)
        except (ValueError, TimeoutError) as error:
            return _json({'ok': False, 'message': f'The request is malformed: {error}.'}, 422)
        answer = await run_sync(
            self.acts.perform, session, body, self.state.robots, limiter=self._for_acts
        )
        ok = answer.status == 200
        return _json({'ok': ok, 'message': answer.message}, int(answer.status))

    async def _records(self, request: Request) -> Response:
        if self._find(request) is None:
            return _not_signed_in()
        if self.records is None:
            return _json([])
        return _json(await run_sync(self.records.listed, limiter=self._for_records))

    async def _record(self, request: Request) -> Response:
        if self._find(request) is None:
            return _not_signed_in()
        if self.records is None:
            return _json({'ok': False, 'message': 'There are no records here.'}, 404)
        name = request.path_params['name']
        try:
            text = await run_sync(_read, self.records, name, limiter=self._for_records)
        except (FdrlError, ValueError) as error:
            return _json({'ok': False, 'message': str(error)}, 409)
        headers = {'Cache-Control': 'no-store'}
        return Response(text, media_type='application/json', headers=headers)

    async def _show(self, websocket: WebSocket) -> None:
        """Send snapshots, each after the one before was drawn."""

        async def send(drawn: asyncio.Event) -> None:
            number, rest = -1, 0
            while self._find(websocket):
                number, rest, text = await self._feed.after(number, rest)
                drawn.clear()
                await websocket.send_text(text)
                await drawn.wait()

        await self._serve(websocket, send)

    async def _show_pictures(self, websocket: WebSocket) -> None:
        """Send the newest picture, again once it was drawn; an 8-byte stamp comes first."""
        robot = websocket.path_params['robot']
        kind = websocket.query_params.get('kind', 'image')
        if robot not in self.state.robots or kind not in Pictures.KINDS:
            await websocket.close(_REFUSED)
            return

        async def send(drawn: asyncio.Event) -> None:
            number = 0
            with self.pictures.looking(robot, kind) as newest:
                while self._find(websocket):
                    got = await newest.after(number)
                    if got is None:
                        continue
                    number, picture = got
                    try:
                        encoded = await run_in_threadpool(picture.encoded)
                    except RecordsError:
                        continue  # no picture that can be shown
                    drawn.clear()
                    await websocket.send_bytes(encoded)
                    await drawn.wait()

        await self._serve(websocket, send)

    async def _serve(
        self, websocket: WebSocket, send: Callable[[asyncio.Event], Awaitable[None]]
    ) -> None:
        """
        Open a WebSocket of a person who is signed in, and send until one of both ends.

        :param send: sends, and waits for the event, which is set when the client has drawn.
        """
        if self._find(websocket) is None:
            await websocket.close(_REFUSED)
            return
        await websocket.accept()
        drawn = asyncio.Event()

        async def sending() -> None:
            with suppress(WebSocketDisconnect, RuntimeError):  # the client has left
                await send(drawn)
                await websocket.close(_REFUSED)

        task = asyncio.create_task(sending())
        try:
            while True:
                if _acknowledges(await websocket.receive_text()):
                    drawn.set()
        except (WebSocketDisconnect, RuntimeError, KeyError):
            pass  # it left, or sent what is no text
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


class _Guard:
    """Checks Host and Origin of every request, and adds the headers to every answer."""

    def __init__(self, app: ASGIApp, place: Place) -> None:
        self._app, self._place = app, place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] == 'lifespan':
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        acting = scope['type'] == 'websocket' or scope['method'] not in ('GET', 'HEAD')
        known = self._place.knows(connection)
        if not known or not self._place.same_site(connection, needed=acting):
            words = (
                'This page may be used from its own site alone.'
                if known
                else 'The server is not called by this name: use an address that it printed.'
            )
            if scope['type'] == 'websocket':
                await WebSocket(scope, receive, send).close(_REFUSED)
            else:
                await _with_headers(refusal(words), scope, receive, send)
            return
        await _with_headers(self._app, scope, receive, send)


async def _with_headers(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    async def sent(message: Message) -> None:
        if message['type'] == 'http.response.start':
            message['headers'] = [*message.get('headers', ()), *_raw(HEADERS)]
        await send(message)

    await app(scope, receive, sent)


def _acknowledges(text: str) -> bool:
    """Return whether a client says that it has drawn; whatever else it says is passed over."""
    if len(text) > MOST_BYTES:
        return False
    with suppress(ValueError):
        body = _parsed(text.encode())
        return isinstance(body, dict) and 'got' in body
    return False


def refusal(words: str) -> HTMLResponse:
    """Return a page with one line that says what to do; nobody's words are in it."""
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>fdrl watch</title>'
        f'<p>{words}</p></html>'
    )
    return HTMLResponse(page, 403, {'Cache-Control': 'no-store'})


def _not_signed_in() -> JSONResponse:
    return _json({'ok': False, 'message': 'You are not signed in: ask for a new link.'}, 403)


def _json(content: Any, status: int = 200) -> JSONResponse:
    return JSONResponse(content, status, {'Cache-Control': 'no-store'})


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError('it is no JSON') from error


def _read(records: Records, name: str) -> str:
    return as_json(records.read(name))


def _unforged(request: Request, session: Session) -> bool:
    """Return whether a request carries the session's token against forgery."""
    return _equal(request.headers.get('x-csrf-token', ''), session.csrf)


def _forged() -> JSONResponse:
    return _json({'ok': False, 'message': 'The token against forgery is missing.'}, 403)


def _equal(told: str, expected: str) -> bool:
    return hmac.compare_digest(told.encode('utf-8', 'replace'), expected.encode())


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]
