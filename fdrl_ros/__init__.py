# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Federated deep reinforcement learning for surgical robots (FDRL, arXiv 2505.12153)."""

import pkgutil
from typing import TYPE_CHECKING

# The built workspace holds the generated `fdrl_ros.msg` beside these modules, a source tree does
# not: whichever of them Python finds first, the other's modules stay importable.
__path__ = pkgutil.extend_path(__path__, __name__)

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    """Return the version when it is asked for: finding it takes imports."""
    if name == '__version__':
        from fdrl_ros.resources import package_version

        return package_version()
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
