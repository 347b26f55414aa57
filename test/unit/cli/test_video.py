# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl video check`: what it counts, what it lists, exit codes."""

from click.testing import CliRunner
from fdrl_ros.cli import main
import pytest
from support.video_trees import TREES


def check(*words):
    return CliRunner().invoke(main, ['video', 'check', *(str(each) for each in words)])


@pytest.mark.parametrize('name', TREES)
def test_a_whole_collection_is_counted(name, tmp_path):
    TREES[name](tmp_path)
    done = check(tmp_path, '--format', name)
    assert done.exit_code == 0, done.output
    assert f'{name}, ' in done.output and 'wrist: ' in done.output
    assert done.output == check(tmp_path).output  # the format is recognised


def test_counts_are_told_and_every_fault_has_a_line(tmp_path):
    TREES['endovis2018'](tmp_path)
    for path in sorted(tmp_path.rglob('labels/frame001.png')):
        path.write_text('no picture')
    (tmp_path / 'miccai_challenge_2018_release_1/seq_1/left_frames/frame000.png').unlink()
    done = check(tmp_path)
    assert done.exit_code == 1
    assert 'endovis2018, 2 clips (1 training, 1 testing)' in done.output
    assert '2 frames read, 2 labelled' in done.output and '2 faults:' in done.output
    lines = [each for each in done.output.splitlines() if each.startswith('fdrl: ')]
    assert len(lines) == 2 and 'left_frames/frame000.png: missing' in lines[0]
    assert 'no readable picture' in lines[1]


def test_another_folder_is_refused_in_a_line(tmp_path):
    done = check(tmp_path, '--format', 'sar_rarp50')
    assert done.exit_code == 1 and done.output.startswith(f'fdrl: {tmp_path}: there is nothing')
    assert done.output.count('\n') == 1
    assert check(tmp_path, '--format', 'endovis').exit_code == 2
