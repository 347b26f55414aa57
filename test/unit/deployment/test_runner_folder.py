# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Nodes run the installed package, whatever lies in the folder where they are started."""

import subprocess

from fdrl_ros.deployment.bringup import BringupSettings, federation_graph
from fdrl_ros.deployment.runner import command


def test_files_of_the_working_folder_are_not_imported(tmp_path):
    for name in ('calendar.py', 'fdrl_ros.py'):
        (tmp_path / name).write_text('raise SystemExit("imported from the working folder")\n')
    graph = federation_graph(BringupSettings(directory=str(tmp_path)), ['hospital_1'])
    words = command(graph[0])
    words = [*words[: words.index('fdrl_ros.nodes') + 1], 'no such node']
    found = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert found.stderr.startswith('usage: ')
