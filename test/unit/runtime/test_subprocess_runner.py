# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""An object in a process of its own: it answers, its end is told, and closed it stays closed."""

import multiprocessing
import os
import threading

from fdrl_ros.errors import FdrlError, LastingError, TrainingStopped
from fdrl_ros.runtime import subprocess_runner
from fdrl_ros.runtime.progress import never
from fdrl_ros.runtime.subprocess_runner import KeptProcess, SeparateObject
import pytest


class Adder:
    """Adds to a sum of its own; some numbers end it."""

    def __init__(self, begun):
        self.sum = begun

    def __call__(self, number):
        if number == 13:
            os._exit(3)
        if number == 14:
            raise LastingError('14 cannot be added')
        if number == 15:
            threading.Event().wait()
        self.sum += number
        return self.sum


KEPT = []


def keep(number):
    """Return which process this is and what it kept; some numbers are none for it."""
    if number == 13:
        os._exit(3)
    if number == 14:
        raise LastingError('14 cannot be kept')
    if number == 15:
        threading.Event().wait()
    KEPT.append(number)
    return os.getpid(), KEPT


@pytest.fixture
def adder():
    with SeparateObject(f'{__name__}:Adder', 40) as made:
        yield made


def test_one_process_serves_every_call_and_survives_a_lasting_error(adder):
    assert adder(1) == 41
    with pytest.raises(LastingError, match='14'):
        adder(14)
    assert adder(1) == 42


def test_the_next_call_after_a_death_starts_another_process(adder):
    with pytest.raises(FdrlError, match='exit code 3'):
        adder(13)
    assert adder(1) == 41


def test_closed_in_the_middle_of_a_call_it_starts_no_other(adder):
    assert adder(1) == 41
    told = []

    def waits():
        try:
            adder(15)
        except FdrlError as error:
            told.append(str(error))

    call = threading.Thread(target=waits)
    call.start()
    adder.close()
    call.join()
    assert len(told) == 1
    with pytest.raises(FdrlError, match='closed'):
        adder(1)
    assert not multiprocessing.active_children()


def test_a_kept_process_computes_one_thing_after_another():
    with KeptProcess() as elsewhere:
        first, _ = elsewhere(keep, (1,), never)
        with pytest.raises(LastingError, match='14'):
            elsewhere(keep, (14,), never)
        assert elsewhere(keep, (2,), never) == (first, [1, 2])
        assert first != os.getpid() and KEPT == []
    assert not multiprocessing.active_children()


def test_a_kept_process_that_ended_or_was_stopped_is_replaced():
    with KeptProcess() as elsewhere:
        with pytest.raises(FdrlError, match='keep ended with exit code 3'):
            elsewhere(keep, (13,), never)
        assert elsewhere(keep, (1,), never)[1] == [1]
        with pytest.raises(TrainingStopped):
            elsewhere(keep, (15,), lambda: True)
        assert not multiprocessing.active_children()
        assert elsewhere(keep, (1,), never)[1] == [1]


def test_a_kept_process_is_not_asked_when_it_may_be_about_to_end(monkeypatch):
    with KeptProcess() as elsewhere:
        first, _ = elsewhere(keep, (1,), never)
        monkeypatch.setattr(subprocess_runner, 'IDLE', 0.0)
        second, kept = elsewhere(keep, (2,), never)
        assert second != first and kept == [2]
