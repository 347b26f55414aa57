# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""An object in a process of its own: it answers, its end is told, and closed it stays closed."""

import multiprocessing
import os
import threading

from fdrl_ros.errors import FdrlError, LastingError
from fdrl_ros.runtime.subprocess_runner import SeparateObject
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
