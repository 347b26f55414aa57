# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A browser for all tests of this folder, and a server and a tab for each."""

from collections.abc import Iterator
import time
from typing import Any, TYPE_CHECKING

import pytest
from support import watched_room

if TYPE_CHECKING:
    from support.chromium import Browser, Tab
    from support.page_server import PageServer


@pytest.fixture(scope='session')
def browser(tmp_path_factory: pytest.TempPathFactory) -> 'Iterator[Browser]':
    for needed in ('PIL', 'starlette', 'uvicorn', 'websockets'):
        pytest.importorskip(needed, reason='needs requirements/page.txt')
    from support import chromium

    if not chromium.found():
        pytest.skip('no Chromium here (apt: chromium)')
    with chromium.running(tmp_path_factory.mktemp('chromium')) as found:
        yield found


@pytest.fixture(scope='session')
def frames() -> list[dict[str, Any]]:
    return list(watched_room.frames(120))


@pytest.fixture
def page(browser: 'Browser', frames: list[dict[str, Any]]) -> 'Iterator[PageServer]':
    """Serve two robots and a federation."""
    from support.page_server import PageServer, serving

    server = PageServer(watched_room.urdf())
    server.snapshot = {
        'robots': {'robot_1': frames[40], 'robot_2': frames[80]},
        'federation': watched_room.federation(time.time()),
    }
    with serving(server):
        yield server


@pytest.fixture
def tab(browser: 'Browser') -> 'Iterator[Tab]':
    """Open a tab of the size of a tablet; its page may complain of nothing."""
    with browser.tab() as found:
        found.resize(1024, 768)
        yield found
        assert found.errors == []


@pytest.fixture
def room(page: 'PageServer', tab: 'Tab') -> 'Tab':
    """Open the room."""
    tab.open(page.address)
    tab.wait("document.querySelector('.policies li')")
    return tab


@pytest.fixture
def federation(page: 'PageServer', tab: 'Tab') -> 'Tab':
    """Open the federation."""
    tab.open(f'{page.address}/#/federation')
    tab.wait("document.querySelector('.hospital')")
    return tab
