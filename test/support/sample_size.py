# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How much of a long test runs: a sample in `make test`, all of it in `make nightly`.

The environment variable FDRL_TESTS=full asks for all.
"""

import os

FULL = os.environ.get('FDRL_TESTS') == 'full'


def sampled(full: int, sample: int) -> int:
    """Return a number of cases: of the full test, or of its sample."""
    return full if FULL else sample
