# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Compiled arithmetic, where it was built (native/build.py).

Here are the calls for sampling and noise. The private learner has its own in
:mod:`fdrl_ros.learner.network_kernel`, and nothing in place of them. The shield of one robot and
the value models have theirs in their rooms, and NumPy in place of them where nothing was built.
"""

from pathlib import Path

from fdrl_ros.errors import PrivacyError
from fdrl_ros.runtime.kernel_sources import sources_digest
import numpy as np
from numpy.typing import NDArray

__all__ = ['ffi', 'lib']  # for modules with calls of their own

_FORM = 10
_NATIVE = Path(__file__).resolve().parents[2] / 'native'

try:
    from fdrl_ros._kernels import ffi as ffi
    from fdrl_ros._kernels import lib as lib

    if getattr(lib, 'FDRL_FORM', 0) != _FORM:
        raise ImportError('is of another version')
    # In a checkout, or linked to one, the sources are there to compare with. An installed package
    # has none: its module was built together with this file.
    if (_NATIVE / 'kernels.h').exists():
        if ffi.string(lib.FDRL_SOURCES).decode() != sources_digest(_NATIVE):
            raise ImportError(f'was built from other sources than {_NATIVE}')
    _of, _fault = ffi.from_buffer, ''
except ImportError as error:
    ffi = lib = _of = None
    _fault = 'is not built' if isinstance(error, ModuleNotFoundError) else str(error)


def built() -> bool:
    """Tell whether the compiled arithmetic is there, and was built from the sources beside it."""
    return lib is not None


def missing() -> str:
    """Tell why the compiled arithmetic cannot be used, and what builds it, in one line."""
    fault = _fault or 'is not built'
    how = '`make`, `colcon build` or `python native/build.py`'
    return f'the compiled arithmetic {fault} ({how} builds it)'


def check_built() -> None:
    """
    Refuse to go on without the compiled arithmetic.

    :raises PrivacyError: if it is not built, or from other sources.
    """
    if not built():
        raise PrivacyError(f'private training is refused: {missing()}')


def gaussian(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """
    Turn pairs of uniform words into N(0, 1) draws (Box & Muller 1958).

    :param words: those of the radii, then those of the angles, shape (2 * pairs,).
    :returns: shape (2 * pairs,): radius times cosine of each pair, then times sine.
    :raises PrivacyError: if nothing is built.
    """
    check_built()
    pairs = len(words) // 2
    draws = np.empty(2 * pairs)
    lib.fdrl_gaussian(_of('uint64_t[]', words), pairs, _of('double[]', draws))
    return draws


def noisy_mean(
    clipped_sum: NDArray[np.floating],
    noise: NDArray[np.floating],
    grid: float,
    steps: float,
    share: float,
) -> NDArray[np.float64]:
    """
    Round sum and noise to a grid, add them, and scale.

    :param grid: step of the grid, a power of two.
    :param steps: of the grid in one unit of noise.
    :param share: what the number of steps is multiplied by.
    :raises PrivacyError: if a number is not finite, or nothing is built.
    """
    check_built()
    mean = np.empty(clipped_sum.shape)
    done = lib.fdrl_noisy_mean(
        mean.size,
        _of('double[]', np.ascontiguousarray(clipped_sum, np.float64)),
        _of('double[]', np.ascontiguousarray(noise, np.float64)),
        grid,
        steps,
        share,
        _of('double[]', mean),
    )
    if done != lib.FDRL_DONE:
        raise PrivacyError('the sum or the noise is not finite')
    return mean


def joined(
    words: NDArray[np.uint64], log_stay: float, n_units: int, last: int
) -> tuple[NDArray[np.int64], int]:
    """
    Go on from a unit by geometric distances, one a word.

    :param log_stay: log(1 - q).
    :param last: unit that joined last, -1 for none.
    :returns: units below `n_units` that join, rising, and the last one reached.
    """
    found = np.empty(len(words), np.int64)
    reached = ffi.new('int64_t *', last)
    count = lib.fdrl_joined(
        _of('uint64_t[]', words), len(words), log_stay, n_units, reached, _of('int64_t[]', found)
    )
    return found[:count], reached[0]
