# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Environment variables for as long as something is being started."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
import os


@contextmanager
def with_variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables and put them back as they were."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
