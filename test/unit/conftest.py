# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Run what is computed in two ways, compiled and in NumPy, in both."""

from collections.abc import Iterator

from fdrl_ros.runtime import kernels
import pytest


@pytest.fixture(scope='module', params=['compiled', 'numpy'])
def arithmetic(request: pytest.FixtureRequest) -> Iterator[str]:
    """Choose how gradients are computed."""
    if request.param == 'compiled' and not kernels.built():
        pytest.skip('the compiled arithmetic was not built here (native/build.py)')
    with pytest.MonkeyPatch.context() as patch:
        if request.param == 'numpy':
            patch.setattr(kernels, 'lib', None)
        yield request.param
