# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What must be settled before numpy is imported: one thread a process."""

import os

THREADS = ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS')


def take_one_thread() -> None:
    """Let each process compute with one thread: the matrices are small, more only cost time."""
    for name in THREADS:
        os.environ.setdefault(name, '1')
