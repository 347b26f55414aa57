# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How much memory one hospital's process takes at most: run by learner.py, in a process of its own.

    python benchmark/learner_memory.py own|opacus FOLDER
"""

from pathlib import Path
import subprocess
import sys

from learner_work import LARGE, private_steps
from sampling import peak
from turns import Skipped


def peak_of(who: str, folder: Path) -> float:
    """
    Return the peak of a fresh process that trains one hospital, MB.

    :param who: 'own' or 'opacus'.
    :param folder: for ledger and checkpoint.
    :raises Skipped: if it cannot be measured.
    """
    done = subprocess.run(
        [sys.executable, __file__, who, str(folder)], capture_output=True, text=True
    )
    if done.returncode:
        raise Skipped((done.stderr.splitlines() or [f'exit code {done.returncode}'])[-1])
    return float(done.stdout)


def main() -> None:
    """Train one hospital with the larger network, and print the peak."""
    _, who, folder = sys.argv
    try:
        if who == 'opacus':
            from learner_peers import torch_steps

            torch_steps(LARGE, dueling=True, private=True)()
        else:
            private_steps(LARGE, Path(folder))()
        print(peak())
    except Skipped as reason:
        sys.exit(str(reason))


if __name__ == '__main__':
    main()
