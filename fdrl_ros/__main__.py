# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Start the command line as `python -m fdrl_ros`."""

from fdrl_ros.cli import main

if __name__ == '__main__':
    main(prog_name='fdrl')
