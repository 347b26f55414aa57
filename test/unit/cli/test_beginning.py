# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C before a command has begun."""

import os
import subprocess
import sys


def test_ctrl_c_while_a_command_is_imported_is_one_line(tmp_path):
    (tmp_path / 'click.py').write_text('import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n')
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, '-m', 'fdrl_ros', 'policies', 'list']
    done = subprocess.run(
        command, env={**os.environ, 'PYTHONPATH': path}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (130, 'fdrl: stopped\n')


def test_ctrl_c_while_a_linked_party_is_imported_is_one_line(tmp_path):
    (tmp_path / 'yaml.py').write_text('import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n')
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, '-m', 'fdrl_ros.deployment.link', '.', 'hospital_1', 'tls/router']
    done = subprocess.run(
        command, env={**os.environ, 'PYTHONPATH': path}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (130, 'fdrl: stopped\n')
