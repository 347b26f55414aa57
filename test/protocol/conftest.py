# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the protocol's tests begin with: a federation of three hospitals."""

import pytest
from support.federation_bench import Bench


@pytest.fixture
def bench():
    return Bench(None)
