# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`benchmark/transport.py`: every way carries 20 MB, and every figure is written."""

import json
from math import isfinite
from pathlib import Path
import subprocess
import sys

BENCHMARK = Path(__file__).parents[2] / 'benchmark' / 'transport.py'
NAMES = {
    'transfer_20mb_ms',
    'transfer_over_socket',
    'small_p99_ms',
    'small_p99_message_ms',
}


def test_figures_are_measured_and_written(tmp_path):
    file = tmp_path / 'transport.json'
    command = [sys.executable, str(BENCHMARK), '--json', str(file)]
    subprocess.run([*command, '--repeats', '1', '--seconds', '0.1'], check=True, timeout=120)
    written = json.loads(file.read_text())
    assert set(written) == NAMES
    for each in written.values():
        assert isfinite(each['value']) and isfinite(each['peer_value']) and each['value'] > 0.0
