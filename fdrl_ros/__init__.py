# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Federated deep reinforcement learning for surgical robots (FDRL, arXiv 2505.12153)."""

import pkgutil

# The built workspace holds the generated `fdrl_ros.msg` beside these modules, a source tree does
# not: whichever of them Python finds first, the other's modules stay importable.
__path__ = pkgutil.extend_path(__path__, __name__)
