# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Adversaries get above no limit under the shield, and do without it."""

from dataclasses import replace

from fdrl_ros.errors import SettingError
from fdrl_ros.experiments.studies.shield.adversary import Assault, ATTACKERS
from fdrl_ros.experiments.studies.shield.attack import attack, attack_motors, TICKS
from fdrl_ros.experiments.studies.shield.robot_attack import attack_loop
from fdrl_ros.selector import ShieldSettings
from fdrl_ros.selector.control.observation import Reason
from fdrl_ros.selector.control.selector import Selector
import pytest

SETTINGS = ShieldSettings()


@pytest.mark.parametrize('kind', ATTACKERS)
def test_no_adversary_gets_above_the_hard_stop(kind):
    tally = attack(Assault('retraction', kind, 600, SETTINGS))
    assert tally.steps >= 600 and tally.above_stop == 0


@pytest.mark.parametrize('steps', [TICKS, 3 * TICKS])
def test_few_steps_of_an_attack_are_few_whole_operations(steps):
    shielded, bare = (
        attack(Assault('palpation', 'down', steps, each)) for each in (SETTINGS, None)
    )
    assert steps <= shielded.steps < steps + TICKS
    assert shielded.contact > 0 and bare.greatest > shielded.greatest > 0.0


def test_an_attack_of_less_than_an_operation_is_refused():
    with pytest.raises(SettingError, match='one operation'):
        attack(Assault('palpation', 'down', TICKS - 1, SETTINGS))


def test_no_adversary_gets_above_a_limit_through_the_control_loop():
    """With noise, jitter, latency and lost states."""
    strict = replace(SETTINGS, keep_limit=True)
    shielded, kept, bare, erratic = (
        attack_loop(Assault('palpation', kind, 150, settings))
        for kind, settings in (
            ('down', SETTINGS),
            ('down', strict),
            ('down', None),
            ('erratic', SETTINGS),
        )
    )
    assert bare.above_stop > 0 and bare.above_damage > 0
    assert shielded.above_limit > 0
    for each in (shielded, erratic):
        assert each.above_stop == each.above_damage == each.outside == 0
    assert kept.above_limit == 0 and kept.greatest > 0.3


def test_the_control_loop_falls_silent_at_times(monkeypatch):
    held, keep_tip = set(), Selector.keep_tip

    def keep(self, reason, *others, **named):
        held.add(reason)
        return keep_tip(self, reason, *others, **named)

    monkeypatch.setattr(Selector, 'keep_tip', keep)
    attack_loop(Assault('palpation', 'down', 300, SETTINGS))
    assert held >= {Reason.STALE, Reason.NOT_FINITE}


def test_no_adversary_gets_above_the_hard_stop_with_motors():
    tally = attack_motors(Assault('retraction', 'down', 90, SETTINGS))
    assert tally.steps >= 90 and tally.contact > 0 and tally.above_stop == 0
