# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Digest of what the compiled arithmetic is built from; native/build.py runs this file too."""

import hashlib
from pathlib import Path


def sources_digest(folder: Path) -> str:
    """
    Return the SHA-256 of sources, headers and build.py, which has the compiler's flags.

    :param folder: native/ of a checkout.
    """
    digest = hashlib.sha256()
    for path in sorted((*folder.glob('[a-z]*.[ch]'), folder / 'build.py')):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
