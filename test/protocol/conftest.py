# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the protocol's tests begin with: a federation of three hospitals."""

import os

import pytest
from support.federation_bench import Bench, keys_read_once


@pytest.fixture(autouse=True, scope='session')
def quick():
    """Let all parties share what they read out of a public key, and wait for no disk."""
    with keys_read_once() as patch:
        for name in ('fsync', 'fdatasync'):
            patch.setattr(os, name, lambda descriptor: None)
        yield


@pytest.fixture
def bench():
    return Bench(None)
