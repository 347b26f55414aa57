# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Environment variables: one thread of arithmetic a process, and variables for a while."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
import os
from typing import Final

ONE_THREAD: Final = {'OMP_NUM_THREADS': '1', 'OPENBLAS_NUM_THREADS': '1', 'MKL_NUM_THREADS': '1'}
"""For small matrices one thread a process is fastest, and makes sums repeatable."""


def take_one_thread() -> None:
    """Compute with one thread unless the user says otherwise; call it before numpy is loaded."""
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)


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
