# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What `fdrl link join` shows of the logs of its parties."""

from fdrl_ros.cli.federation.link import LogLines


def test_new_whole_lines_are_shown_once_without_their_time(tmp_path):
    path, other = tmp_path / 'one.log', tmp_path / 'none.log'
    path.write_text('[INFO] [1.0] [hospital_1]: of an earlier process\n')
    lines = LogLines([path, other])
    assert [*lines()] == []
    with path.open('a') as log:
        log.write('[INFO] [2.5] [hospital_1]: trained round 1\n[WARN] [3.0] [hospital_1]: the li')
    assert [*lines()] == ['hospital_1: trained round 1']
    with path.open('a') as log:
        log.write('nk is cut\nTraceback (most recent call last):\n')
    other.write_text('[FATAL] [4.0] [aggregator]: StoreError: no: room\n')
    assert [*lines()] == [
        'WARN: hospital_1: the link is cut',
        'FATAL: aggregator: StoreError: no: room',
    ]
    assert [*lines()] == []
