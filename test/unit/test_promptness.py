# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A prompt process: garbage waits, and priority is taken whole or not at all."""

import gc
import os
from pathlib import Path
import struct

from fdrl_ros.nodes.promptness import with_priority, without_garbage, without_sleep
import pytest


def test_garbage_waits_until_it_is_asked_for():
    undo = without_garbage()
    try:
        assert not gc.isenabled() and gc.get_freeze_count() > 0
        loop: list[object] = []
        loop.append(loop)
        del loop
        assert gc.collect() >= 1
    finally:
        undo()
    assert gc.isenabled() and gc.get_freeze_count() == 0


def test_priority_is_taken_and_given_back_or_refused():
    before = os.sched_getscheduler(0)
    try:
        undo = with_priority(1)
    except OSError:
        assert os.sched_getscheduler(0) == before
        return
    assert os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO
    undo()
    assert os.sched_getscheduler(0) == before


def test_what_the_system_refuses_changes_nothing(monkeypatch):
    def refuse(*_):
        raise PermissionError('not permitted')

    before = os.sched_getscheduler(0)
    monkeypatch.setattr(os, 'sched_setscheduler', refuse)
    with pytest.raises(OSError, match='not permitted'):
        with_priority(1)
    monkeypatch.undo()
    assert os.sched_getscheduler(0) == before


def allowed(device):
    """Return how long a processor may take to wake, us."""
    return struct.unpack('i', device.read_bytes()[:4])[0]


def test_processors_are_kept_awake_and_let_sleep_again_where_the_system_permits_it():
    device = Path('/dev/cpu_dma_latency')
    try:
        undo = without_sleep()
    except OSError:
        pytest.skip('this system does not permit it')
    assert allowed(device) == 0
    undo()


def test_what_is_held_open_tells_the_kernel_that_no_time_is_allowed(tmp_path):
    device = tmp_path / 'cpu_dma_latency'
    before = len(os.listdir('/proc/self/fd'))
    with pytest.raises(FileNotFoundError):
        without_sleep(str(device))
    device.touch()
    undo = without_sleep(str(device))
    assert allowed(device) == 0
    assert len(os.listdir('/proc/self/fd')) == before + 1
    undo()
    assert len(os.listdir('/proc/self/fd')) == before


def test_a_device_that_takes_nothing_is_closed_again():
    before = len(os.listdir('/proc/self/fd'))
    with pytest.raises(OSError):
        without_sleep('/dev/full')
    assert len(os.listdir('/proc/self/fd')) == before
