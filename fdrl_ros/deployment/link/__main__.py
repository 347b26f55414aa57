# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Runs one party over its link: `python -m fdrl_ros.deployment.link DIRECTORY PARTY ROUTER`."""

from pathlib import Path
import sys

from fdrl_ros.runtime.early_interrupt import quietly_stopped

if __name__ == '__main__':
    directory, party, router = sys.argv[1:]
    with quietly_stopped():
        from fdrl_ros.deployment.layout import Layout
        from fdrl_ros.deployment.link.driver import run_party

        code = run_party(Layout(Path(directory)), party, router)
    sys.exit(code)
