# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The scripts of `benchmark/`, which are no package, as modules."""

from collections.abc import Callable
import importlib
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Return a function that imports a script of the folder."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / 'benchmark'))
    return importlib.import_module
