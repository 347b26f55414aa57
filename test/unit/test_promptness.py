# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A prompt process: garbage waits, and priority is taken whole or not at all."""

import gc
import os

from fdrl_ros.nodes.promptness import with_priority, without_garbage
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
