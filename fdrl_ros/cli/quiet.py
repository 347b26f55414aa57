# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What must be settled before anything heavy is imported."""

import ctypes
import os
import sys

THREADS = ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS')


def begin_quietly() -> None:
    """
    Let each process compute with one thread, and keep PyBullet's greeting off the output.

    The matrices are small, so that more threads only cost time. Outputs are for people and
    pipes; PyBullet prints its build date through C when it is imported.
    """
    for name in THREADS:
        os.environ.setdefault(name, '1')
    if 'pybullet' in sys.modules:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    silence = os.open(os.devnull, os.O_WRONLY)
    kept = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    for descriptor in kept:
        os.dup2(silence, descriptor)
    try:
        import pybullet  # noqa: F401

        ctypes.CDLL(None).fflush(None)
    finally:
        for descriptor, before in kept.items():
            os.dup2(before, descriptor)
            os.close(before)
        os.close(silence)
