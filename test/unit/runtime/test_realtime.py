# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A prompt process: garbage waits, and priority is taken whole or not at all."""

import errno
import gc
import os
from pathlib import Path
import re
import subprocess
import sys

from fdrl_ros.runtime import realtime
from fdrl_ros.runtime.realtime import with_priority, without_garbage, without_sleep
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


class Kernel:
    """
    How Linux schedules threads of a process that has no CAP_SYS_NICE, but a limit of priority.

    Nobody may then clear SCHED_RESET_ON_FORK, nor rise above that limit.
    """

    def __init__(self, monkeypatch, threads, limit=99):
        self.threads, self.limit, self.locked = dict(threads), limit, False
        for name in ('sched_getscheduler', 'sched_getparam', 'sched_setscheduler'):
            monkeypatch.setattr(os, name, getattr(self, name))
        monkeypatch.setattr(realtime, 'thread_ids', lambda: list(self.threads))
        monkeypatch.setattr(realtime, 'is_own_thread', self.threads.__contains__)
        monkeypatch.setattr(realtime, 'call_libc', self.call)

    def find(self, thread):
        if thread not in self.threads:
            raise ProcessLookupError(errno.ESRCH, 'No such process')
        return self.threads[thread]

    def sched_getscheduler(self, thread):
        return self.find(thread)[0]

    def sched_getparam(self, thread):
        return os.sched_param(self.find(thread)[1])

    def sched_setscheduler(self, thread, policy, parameter):
        held, priority = self.find(thread)
        chosen = parameter.sched_priority
        if (policy & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO) != (chosen > 0):
            raise OSError(errno.EINVAL, 'Invalid argument')
        if held & ~policy & os.SCHED_RESET_ON_FORK or chosen > max(priority, self.limit):
            raise PermissionError(errno.EPERM, 'Operation not permitted')
        self.threads[thread] = policy, chosen

    def call(self, name, *arguments):
        self.locked = name == 'mlockall'


OTHER, FIFO, KEPT = os.SCHED_OTHER, os.SCHED_FIFO, os.SCHED_RESET_ON_FORK


def test_priority_is_given_back_where_the_kernel_lets_no_flag_be_cleared(monkeypatch):
    kernel, complaints = Kernel(monkeypatch, {7: (OTHER, 0), 8: (FIFO, 30)}), []
    for _ in range(2):
        undo = with_priority(50, complaints.append)
        assert set(kernel.threads.values()) == {(FIFO | KEPT, 50)} and kernel.locked
        undo()
        assert kernel.threads == {7: (OTHER | KEPT, 0), 8: (FIFO | KEPT, 30)}
        assert not kernel.locked
    assert not complaints


def test_what_cannot_be_given_back_is_told_and_the_rest_is_given_back(monkeypatch):
    # The first thread was given 30 by somebody who may: from 10 it cannot go back there.
    kernel, complaints = Kernel(monkeypatch, {7: (FIFO, 30), 8: (OTHER, 0)}, limit=20), []
    undo = with_priority(10, complaints.append)
    undo()
    assert kernel.threads == {7: (FIFO | KEPT, 10), 8: (OTHER | KEPT, 0)} and not kernel.locked
    (complaint,) = complaints
    assert 'thread 7' in complaint and 'not permitted' in complaint


def test_threads_that_have_ended_are_left_alone(monkeypatch):
    kernel, complaints = Kernel(monkeypatch, dict.fromkeys((6, 7, 8), (OTHER, 0))), []
    undo = with_priority(10, complaints.append)
    monkeypatch.setattr(realtime, 'is_own_thread', lambda thread: thread != 7)
    del kernel.threads[6]  # while it is looked at
    kernel.threads[7] = FIFO, 5  # another process's by now
    undo()
    assert kernel.threads == {7: (FIFO, 5), 8: (OTHER | KEPT, 0)} and not complaints


def test_priority_that_is_refused_for_one_thread_is_taken_from_none(monkeypatch):
    kernel, complaints = Kernel(monkeypatch, {6: (OTHER, 0), 7: (OTHER, 0)}), []
    take = os.sched_setscheduler

    def refuse(thread, policy, parameter):
        if (thread, parameter.sched_priority) == (7, 50):
            raise PermissionError(errno.EPERM, 'Operation not permitted')
        take(thread, policy, parameter)

    monkeypatch.setattr(os, 'sched_setscheduler', refuse)
    with pytest.raises(PermissionError):
        with_priority(50, complaints.append)
    assert kernel.threads == {6: (OTHER | KEPT, 0), 7: (OTHER, 0)}
    assert not kernel.locked and not complaints


def test_memory_that_cannot_be_locked_leaves_no_thread_with_priority(monkeypatch):
    kernel, complaints, called = Kernel(monkeypatch, {7: (OTHER, 0)}), [], []

    def refuse(name, *arguments):
        called.append(name)
        raise OSError(errno.ENOMEM, f'{name}: Cannot allocate memory')

    monkeypatch.setattr(realtime, 'call_libc', refuse)
    with pytest.raises(OSError, match='mlockall: Cannot allocate'):
        with_priority(50, complaints.append)
    assert kernel.threads[7] in {(OTHER, 0), (OTHER | KEPT, 0)}
    assert called == ['mlockall', 'munlockall'] and 'memory stays locked' in complaints[0]


def test_thread_that_ends_before_its_turn_keeps_no_other_from_priority(monkeypatch):
    kernel, complaints = Kernel(monkeypatch, {7: (OTHER, 0)}), []
    monkeypatch.setattr(realtime, 'thread_ids', lambda: [6, 7])
    undo = with_priority(50, complaints.append)
    assert kernel.threads == {7: (FIFO | KEPT, 50)}
    undo()
    assert kernel.threads == {7: (OTHER | KEPT, 0)} and not complaints


TAKEN = """
import os, sys
from fdrl_ros.runtime.realtime import with_priority

before, priority, user = map(int, sys.argv[1:])
try:
    if before:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(before))
    undo = with_priority(priority, lambda words: print(words))
except OSError:
    sys.exit(77)
print(os.sched_getscheduler(0), os.sched_getparam(0).sched_priority)
os.seteuid(user)
undo()
print(os.sched_getscheduler(0), os.sched_getparam(0).sched_priority)
print(*(line for line in open('/proc/self/status') if line.startswith('VmLck')))
"""
"""Has priority taken of a real kernel, and given back by a user who may have no capabilities."""


def may_schedule():
    """Return whether this process has CAP_SYS_NICE."""
    status = Path('/proc/self/status').read_text()
    return bool(int(re.search(r'CapEff:\s*(\w+)', status)[1], 16) & 1 << 23)


@pytest.mark.parametrize('before', [0, 30])
@pytest.mark.parametrize('leave', [False, True])
def test_linux_gives_priority_back_to_whoever_had_it(before, leave):
    if leave and os.geteuid():
        pytest.skip('only root can become somebody else')
    user = 65534 if leave else os.geteuid()
    words = [sys.executable, '-c', TAKEN, str(before), '40', str(user)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip('this system does not permit it')
    assert not done.returncode, done.stderr
    taken, given, locked = done.stdout.split('\n', 2)
    flag = 0 if may_schedule() and not leave else KEPT
    assert taken == f'{FIFO | KEPT} 40'
    assert given == (f'{FIFO | flag} 30' if before else f'{OTHER | flag} 0')
    assert locked.split() == ['VmLck:', '0', 'kB']


def test_what_is_held_open_tells_the_kernel_that_no_time_is_allowed(tmp_path):
    device = tmp_path / 'cpu_dma_latency'
    before = len(os.listdir('/proc/self/fd'))
    with pytest.raises(FileNotFoundError):
        without_sleep(str(device))
    device.touch()
    undo = without_sleep(str(device))
    assert device.read_bytes() == bytes(4)
    assert len(os.listdir('/proc/self/fd')) == before + 1
    undo()
    assert len(os.listdir('/proc/self/fd')) == before


def test_a_device_that_takes_nothing_is_closed_again():
    before = len(os.listdir('/proc/self/fd'))
    with pytest.raises(OSError):
        without_sleep('/dev/full')
    assert len(os.listdir('/proc/self/fd')) == before
