# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Sample long tests, and run gradients both compiled and in NumPy."""

from collections.abc import Iterator

from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from fdrl_ros.crypto.keys import key_file, keystore
from fdrl_ros.runtime import kernels
from hypothesis import settings
import pytest
from support.sample_size import FULL, sampled

# A sample is the same in every run, so that what passes here passes elsewhere; the full tests look
# for new examples.
settings.register_profile(
    'sampled', max_examples=sampled(100, 12), deadline=None, derandomize=not FULL
)
settings.load_profile('sampled')


@pytest.fixture(scope='module', params=['compiled', 'numpy'])
def arithmetic(request: pytest.FixtureRequest) -> Iterator[str]:
    """Choose how gradients are computed."""
    if request.param == 'compiled' and not kernels.built():
        pytest.skip('the compiled arithmetic was not built here (native/build.py)')
    with pytest.MonkeyPatch.context() as patch:
        if request.param == 'numpy':
            patch.setattr(kernels, 'lib', None)
        yield request.param


@pytest.fixture
def quick_scrypt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let scrypt cost nothing, and no passphrase be told from outside."""
    monkeypatch.setattr(key_file, 'Scrypt', lambda **sizes: Scrypt(**{**sizes, 'n': 2}))
    monkeypatch.delenv(keystore.PASSPHRASE_VARIABLE, raising=False)
