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


@pytest.fixture(scope='module')
def figures(request: pytest.FixtureRequest) -> Iterator[list[dict[str, Any]]]:
    """Return where a test puts its figures; they are saved with the module's own SETTINGS."""
    found: list[dict[str, Any]] = []
    yield found
    target = request.config.getoption('--save', None)
    if target is not None:
        saved = {'settings': request.module.SETTINGS, 'figures': found}
        target.write_text(json.dumps(saved, indent=1) + '\n', 'utf-8')
