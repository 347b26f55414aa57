# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Exact A_task and return of policies, as the study measures them; the world computes them."""

from fdrl_ros.worlds.paper.utility import Utility, utility

__all__ = ['Utility', 'utility']
