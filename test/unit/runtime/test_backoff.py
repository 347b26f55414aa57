# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Pauses double up to the longest, each name for itself, and begin anew after success."""

from fdrl_ros.runtime.backoff import Backoff


def test_pauses_double_up_to_the_longest():
    backoff = Backoff(2.0, 7.0)
    assert [backoff.fail('one', 10.0) for _ in range(4)] == [2.0, 4.0, 7.0, 7.0]
    assert backoff.fail('other', 10.0) == 2.0


def test_what_failed_waits_for_its_pause():
    backoff = Backoff(2.0, 7.0)
    backoff.fail('one', 10.0)
    backoff.fail('other', 11.0)
    assert backoff.waiting(11.5) == {'one', 'other'}
    assert backoff.waiting(12.0) == {'other'} and not backoff.waiting(13.0)


def test_what_failed_for_good_waits_until_it_is_forgotten():
    backoff = Backoff(2.0, 7.0)
    backoff.fail('one', 10.0)
    backoff.give_up('one')
    assert backoff.waiting(1e9) == {'one'}
    backoff.forget('one')
    assert not backoff.waiting(10.0) and backoff.fail('one', 10.0) == 2.0


def test_what_went_well_begins_anew():
    backoff = Backoff(2.0, 7.0)
    backoff.fail('one', 10.0)
    backoff.fail('one', 12.0)
    backoff.forget('one')
    backoff.forget('never heard of')
    assert not backoff.waiting(12.0) and backoff.fail('one', 20.0) == 2.0
