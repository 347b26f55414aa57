# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""PyBullet does not greet, and nothing else that is said meanwhile is lost."""

import os
import subprocess
import sys

from fdrl_ros.surgery.arm.pybullet_client import without_greeting
import pytest


def test_importing_the_arm_prints_nothing():
    words = [sys.executable, '-c', 'import fdrl_ros.surgery.arm.simulated_arm']
    done = subprocess.run(words, capture_output=True, check=True)
    assert done.stdout + done.stderr == b''


def test_other_words_than_the_greeting_are_passed_on(capfd):
    with without_greeting(2):
        os.write(2, b'libGL is missing\npybullet build time: today\nand more')
    assert capfd.readouterr().err == 'libGL is missing\nand more'


def test_an_error_is_neither_hidden_nor_its_words(capfd):
    with pytest.raises(ImportError), without_greeting(2):
        os.write(2, b'why\n')
        raise ImportError
    assert capfd.readouterr().err == 'why\n'
