# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`benchmark/selector.py`: a selector with policies is measured, and every figure is written."""

import importlib
import json
from math import isfinite
import os
from pathlib import Path
import subprocess
import sys
import time

from fdrl_ros.deployment.bringup import free_domains
from fdrl_ros.nodes.common import qos
from geometry_msgs.msg import PoseStamped
import pytest

BENCHMARK = Path(__file__).parents[2] / 'benchmark' / 'selector.py'
NAMES = {
    'decision_p99_us',
    'topic_p99_us',
    'topic_p99_over_echo',
    'topic_busy_p99_us',
    'setpoint_p99_us',
    'missed_deadline_fraction',
    'missed_deadline_busy_fraction',
    'missed_deadline_worst_turn_fraction',
    'cpu_share',
    'decision_linearity_r2',
}


def test_figures_are_measured_and_written(tmp_path):
    file = tmp_path / 'selector.json'
    command = [sys.executable, str(BENCHMARK), '--json', str(file), '--policies', '2']
    short = ['--repeats', '1', '--seconds', '1', '--minutes', '0.01', '--robots', '2']
    subprocess.run([*command, *short], check=True, timeout=200)
    written = json.loads(file.read_text())
    assert set(written) >= NAMES
    for name, each in written.items():
        assert isfinite(each['value']), name
        if name.startswith(('topic', 'setpoint', 'missed', 'cpu')):
            assert each['peer'].startswith('bare rclpy echo node')
            assert isfinite(each['peer_value'])
    assert 0.0 < written['cpu_share']['value'] < 1.0
    assert written['setpoint_p50_us']['value'] < 1e6, 'the selector commands the arm'
    assert all(each['robots'] == 2 for each in written.values())


def test_an_answer_has_the_time_at_which_the_middleware_received_it(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARK.parent))
    bench = importlib.import_module('selector_room')
    room = bench.Room(free_domains(1)[0])
    heard = []

    def take(message, came):
        heard.append((came, time.time_ns()))

    try:
        room.node.create_subscription(PoseStamped, 'answer', bench.timed(take), qos.EVENT)
        sender = room.node.create_publisher(PoseStamped, 'answer', qos.EVENT)
        assert room.spin(lambda: sender.get_subscription_count() == 1, 10.0)
        sent = time.time_ns()
        sender.publish(PoseStamped())
        assert room.spin(lambda: heard, 10.0)
    finally:
        room.close()
    came, called = heard[0]
    assert sent <= came <= called


def test_a_turn_in_which_the_clock_was_set_is_taken_once_more(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARK.parent))
    bench = importlib.import_module('selector')
    topics = bench.Topics.__new__(bench.Topics)
    topics._room, topics._beats = None, {bench.FAST: iter(())}
    topics._beds, topics._processes = {bench.ROBOT: []}, {bench.ROBOT: [os.getpid()]}
    turns = []

    def operate(room, beds, beats, rate, seconds):
        turns.append(rate)
        if len(turns) in bad:
            raise bench.ClockSetError('set')
        return ['answers']

    monkeypatch.setattr(bench, 'operate', operate)
    bad = {1}
    answers, share = topics._operate(bench.ROBOT, bench.FAST, 1.0)
    assert answers == ['answers'] and len(turns) == 2 and share >= 0.0
    bad = set(range(10))
    with pytest.raises(SystemExit, match='all the time'):
        topics._operate(bench.ROBOT, bench.FAST, 1.0)
