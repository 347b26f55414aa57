# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Let a benchmark of a source checkout find the package beside it, where none is installed."""

import importlib.util
from pathlib import Path
import sys

if importlib.util.find_spec('fdrl_ros') is None:
    sys.path.append(str(Path(__file__).parents[1]))
