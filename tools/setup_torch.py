# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Add PyTorch, Opacus and MONAI to the environment that tools/setup_workspace.py made.

Tests, the learner `torch` and the segmenter need them, `make run` does without. Like that program
it leaves a stamp as its very last act, and does nothing where the stamp holds.
"""

import sys
import urllib.request

from commands import Failed, ROOT, run, step
from setup_workspace import CONSTRAINTS, digest, read, VENV

REQUIREMENTS = ROOT / 'requirements' / 'torch.txt'
PINS = ROOT / 'constraints-torch.txt'
STAMP = VENV / 'stamp_torch'
CPU_WHEELS = 'https://download.pytorch.org/whl/cpu'


def main():
    """Install all, unless they are there."""
    stamp = digest(read(VENV / 'stamp'), REQUIREMENTS.read_text(), PINS.read_text())
    if read(STAMP) == stamp:
        return
    step('Installing PyTorch, about 200 MB')
    python = VENV / 'bin' / 'python'
    pip = [python, '-m', 'pip', '--disable-pip-version-check', 'install']
    run([*pip, '--no-compile', '-c', CONSTRAINTS, '-c', PINS, '-r', REQUIREMENTS, *cpu_wheels()])
    run([python, '-c', 'import monai.metrics, opacus, torch'])
    STAMP.write_text(stamp)


def cpu_wheels():
    """Return pip's option for PyTorch's own index of small wheels, if that answers."""
    try:
        with urllib.request.urlopen(f'{CPU_WHEELS}/torch/', timeout=5.0):
            return ['--extra-index-url', CPU_WHEELS]
    except OSError:
        return []


if __name__ == '__main__':
    try:
        main()
        print('Set-up is complete.', flush=True)
    except Failed as failed:
        sys.exit(f'{failed}\nRun the same command again after mending it.')
