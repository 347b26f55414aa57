# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Figures of the slow tests, which `--save FILE` keeps as JSON."""

from collections.abc import Iterator
import json
from pathlib import Path
from typing import Any

import pytest
from support.federation_bench import keys_read_once


@pytest.fixture(autouse=True, scope='session')
def quick() -> Iterator[None]:
    """Let all parties share what they read out of a public key."""
    with keys_read_once():
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the figures be saved."""
    parser.addoption('--save', type=Path, metavar='FILE', help='write the figures here, as JSON')


class Figures(list[dict[str, Any]]):
    """What tests found; each figure is printed at once, for who waits for hours."""

    def __init__(self, capture: Any) -> None:
        super().__init__()
        self._capture = capture

    def append(self, figure: dict[str, Any]) -> None:
        """Keep and print a figure."""
        super().append(figure)
        with self._capture.global_and_fixture_disabled():
            print(f'\n{figure}', end='', flush=True)


@pytest.fixture(scope='module')
def figures(request: pytest.FixtureRequest) -> Iterator[Figures]:
    """Return where a test puts its figures; they are saved with the module's own SETTINGS."""
    found = Figures(request.config.pluginmanager.getplugin('capturemanager'))
    yield found
    target = request.config.getoption('--save', None)
    if target is not None:
        saved = {'settings': request.module.SETTINGS, 'figures': found}
        target.write_text(json.dumps(saved, indent=1) + '\n', 'utf-8')
