# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The proof of the shield holds, and finds fault with shields that are wrong."""

from dataclasses import replace
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.experiments.shield.attack import attack, attack_motors, ATTACKERS, TICKS
from fdrl_ros.experiments.shield.loop import attack_loop
from fdrl_ros.selector import ShieldSettings
from fdrl_ros.selector.control.observation import Reason
from fdrl_ros.selector.control.selector import Selector
from fdrl_ros.shield import prediction
from fdrl_ros.shield.action_bounds import LateralReach
from fdrl_ros.shield.contact_estimator import ContactEstimator, ContactReading
from fdrl_ros.shield.excursion import excursion, sink
from fdrl_ros.shield.prediction import compiled_prediction, Prediction
from fdrl_ros.shield.proof import check_estimator, check_tables, Margins
from fdrl_ros.shield.retreat import RISE
from fdrl_ros.surgery.gym.actions import COARSE_STEP, FINE_STEP, TICK
from fdrl_ros.surgery.tasks.procedures import procedure_named
import numpy as np
import pytest

SETTINGS = ShieldSettings()
WIDE, USUAL = SETTINGS.wide(), SETTINGS.usual()


@pytest.mark.parametrize('bounds', [WIDE, USUAL], ids=['wide', 'usual'])
def test_nothing_that_can_happen_leads_beyond_the_tables(bounds):
    finding = check_tables(bounds, fine=1)
    assert finding.holds, finding.failure
    assert finding.cells > 100_000


@pytest.mark.parametrize('wide', [True, False], ids=['wide', 'usual'])
@pytest.mark.parametrize('procedure', ['retraction', 'follow'])
def test_what_the_shield_takes_to_be_possible_holds_what_is_true(procedure, wide):
    finding = check_estimator(SETTINGS, procedure, wide, fine=1)
    assert finding.holds, finding.failure
    assert finding.cells > 100_000


def test_a_shield_that_knows_of_no_latency_is_found_out():
    assert not check_tables(replace(WIDE, latency=0.0), world=WIDE, fine=1).holds


def test_a_shield_that_stays_where_nothing_is_allowed_is_found_out():
    finding = check_tables(WIDE, back=0.0, fine=1)
    assert not finding.holds
    assert finding.failure['short'] > 1e-3


def test_the_tables_draw_a_tip_back_along_the_most_tilted_shaft():
    time = np.array([0.6 - TICK, 0.6])
    sunk, _ = sink(USUAL, time, np.zeros(1), (0.02, 0.02), 0.0, 0.0, 0.0)
    assert -np.diff(sunk[0]) == pytest.approx(RISE * COARSE_STEP)


@pytest.mark.parametrize('bounds', [WIDE, USUAL], ids=['wide', 'usual'])
def test_the_tables_wait_for_a_state_that_is_late(bounds):
    late = 1.1 * TICK + bounds.latency
    sunk, _ = sink(bounds, late + np.array([0.0, 0.01]), np.zeros(1), (0.02, 0.02), 0.0, 0.0, 0.0)
    assert sunk[0, 0] == 0.0 > sunk[0, 1]


@pytest.mark.parametrize(
    ('name', 'value'),
    [('speed', 0.02), ('damping', 1.0)],
)
def test_a_shield_that_takes_the_surface_for_milder_is_found_out(name, value):
    assert not check_tables(replace(WIDE, **{name: value}), world=WIDE, fine=1).holds


def test_a_shield_that_takes_the_arm_for_quicker_is_found_out():
    assert not check_estimator(
        replace(SETTINGS, slowest=0.06), 'palpation', True, world=WIDE, fine=0
    ).holds


@pytest.mark.parametrize(
    ('name', 'share'),
    [('acceleration', 0.9), ('speed', 0.9), ('damping', 0.5), ('force_error', 0.5)],
)
def test_a_shield_that_allows_for_less_than_can_be_is_found_out(name, share):
    wrong = replace(SETTINGS, **{name: share * getattr(SETTINGS, name)})
    assert not check_estimator(wrong, 'retraction', True, world=WIDE, fine=0).holds


@pytest.mark.parametrize('change', [0.5, 0.9])
def test_an_inference_that_takes_the_surface_for_steadier_is_found_out(monkeypatch, change):
    made = Prediction.__init__

    def lesser(self, *arguments):
        made(self, *arguments)
        self._turn *= change

    monkeypatch.setattr(Prediction, '__init__', lesser)
    assert not check_estimator(SETTINGS, 'retraction', True, fine=0).holds


def test_an_inference_that_forgets_that_damping_differs_is_found_out(monkeypatch):
    monkeypatch.setattr(prediction, 'gained', lambda now, slow, then, fast, worst: now - then)
    assert not check_estimator(SETTINGS, 'retraction', True, fine=0).holds


def test_damping_between_its_ends_can_be_the_worst():
    least, most = 0.05, 0.075  # m/s
    ends = [now_less_then(damping, least, most) for damping in (0.0, 5.0)]
    worst = max(now_less_then(damping, least, most) for damping in np.linspace(0.0, 5.0, 501))
    assert worst > max(ends) + 5e-4
    assert prediction.greatest_growth(1.0, least, 0.75, most, 5.0) == pytest.approx(
        worst, abs=1e-5
    )


def now_less_then(damping, slow, fast):
    """Return by how much kappa d of 1 is above one of 0.75 under some damping."""
    return (1.0 + damping * slow) ** (-2 / 3) - 0.75 * (1.0 + damping * fast) ** (-2 / 3)


def levels_of(lag, said, ticks=12):
    """
    Return the levels that an arm in coarse moves downwards shows, state by state.

    :param lag: of the arm, s.
    :param said: lags that are said instead of the true ones, by the number of the state, m.
    """
    behind, height, estimator = (
        0.0,
        0.04,
        ContactEstimator((compiled_prediction(WIDE, 0.01),), 'retraction'),
    )
    levels = []
    for tick in range(ticks):
        estimator.update(
            ContactReading(0.0, said.get(tick, behind), height, 0.0), TICK if tick else 0.0, True
        )
        estimator.record_move(COARSE_STEP)
        levels.append(estimator.level)
        left = math.exp(-TICK / lag)
        behind = behind * left + COARSE_STEP / TICK * lag * (1.0 - left)
        height -= COARSE_STEP
    return levels


def test_an_arm_is_timed_over_several_ticks():
    """Its way in the first coarse moves tells less than that in five."""
    lag, slowest = 0.05, excursion(WIDE).levels
    levels = levels_of(lag, {}, 7)
    assert levels == sorted(levels) and levels[2] < levels[-1]
    assert lag <= slowest[levels[-1]] < 1.5 * lag


@pytest.mark.parametrize('wrong', [0.006, 0.003, 0.0])
@pytest.mark.parametrize('tick', range(12))
def test_one_wrong_lag_makes_no_slow_arm_quick(wrong, tick):
    assert levels_of(0.12, {tick: wrong}) == [0] * 12


@pytest.mark.parametrize('tick', [4, 8])
def test_an_arm_that_is_quick_again_is_taken_for_it_again(tick):
    levels = levels_of(0.03, {tick: 0.006}, 20)
    assert levels[tick - 1] > 0 == levels[tick] and levels[-1] == max(levels_of(0.03, {}, 20))


@pytest.mark.parametrize(('went', 'left'), [(0.0, 2), (FINE_STEP, 2), (COARSE_STEP, 0)])
@pytest.mark.parametrize('procedure', ['retraction', 'follow'])
def test_what_is_still_to_come_is_not_forgotten_within_a_tick(procedure, went, left):
    estimator = ContactEstimator((compiled_prediction(WIDE, 0.01),), procedure)
    estimator.update(ContactReading(1.0, 0.0, -0.002, 0.0), 0.0, True)
    estimator.record_move(COARSE_STEP)
    soon = estimator.branch()
    after = ContactReading(1.0, 0.0, -0.002 - went, 0.0)
    # A waypoint that rides on the surface tells nothing of the set-point.
    expected = left if procedure == 'retraction' else 2
    assert soon.update(after, 0.0, True, soon=True)[0][1].pending == expected
    again = soon.update(after, 0.0, True, soon=True)[0][1].pending
    assert again == expected
    assert soon.update(after, 0.0, True)[0][1].pending == 0


def test_what_is_still_to_come_sideways_is_not_forgotten_within_a_tick():
    side = LateralReach(0.0, 0.006, True)
    side.update(0.0, 0.0, False, 0.5)
    side.record_move(COARSE_STEP)
    side.update(0.0, 0.0, False, 1.0, soon=True)
    assert side.due == COARSE_STEP
    side.update(COARSE_STEP, 0.0, False, 1.0, soon=True)
    assert side.due == 0.0 and side.aside >= COARSE_STEP


def test_what_is_left_of_a_move_is_dropped_when_the_next_but_one_begins():
    """States that come a little early leave nothing behind for the rest of the case."""
    estimator, height, pending = (
        ContactEstimator((compiled_prediction(WIDE, 0.01),), 'retraction'),
        0.03,
        [],
    )
    for tick in range(12):
        interval = 0.0 if not tick else TICK if tick > 8 else 0.96 * TICK
        pending.append(
            estimator.update(ContactReading(0.0, 0.0, height, 0.0), interval, True)[0][1].pending
        )
        down = COARSE_STEP if tick < 8 else 0.0
        estimator.record_move(down)
        height -= 0.96 * down
    assert pending[8] > 0 == pending[-1]


def test_a_shield_that_takes_every_interval_for_a_tick_is_found_out(monkeypatch):
    look = ContactEstimator.look

    def even(self, now, interval, *others):
        return look(self, now, TICK if interval else 0.0, *others)

    monkeypatch.setattr(ContactEstimator, 'look', even)
    assert not check_estimator(SETTINGS, 'retraction', False, fine=1).holds


@pytest.mark.parametrize('wide', [True, False], ids=['wide', 'usual'])
def test_a_shield_that_trusts_inexact_positions_is_found_out(wide):
    off = replace(WIDE if wide else USUAL, position_error=1e-4)
    exact, told = (replace(SETTINGS, position_error=each) for each in (0.0, 1e-4))
    assert not check_estimator(exact, 'retraction', wide, world=off, fine=0).holds
    finding = check_estimator(told, 'retraction', wide, fine=0)
    assert finding.holds, finding.failure


def test_an_arm_that_is_taken_for_exact_is_timed_wrong(monkeypatch):
    exact = replace(WIDE, arm_error=-0.0003)
    monkeypatch.setattr(ShieldSettings, 'wide', lambda self: exact)
    assert not check_estimator(SETTINGS, 'retraction', True, world=WIDE, fine=0).holds


def test_a_shield_with_half_the_range_of_stiffness_is_found_out():
    half = replace(SETTINGS, stiffest=0.5 * SETTINGS.stiffest)
    assert not check_estimator(half, 'retraction', True, world=WIDE, fine=0).holds


def test_a_shield_that_trusts_a_noisy_sensor_is_found_out():
    noisy = replace(WIDE, force_error=0.2)
    assert not check_estimator(SETTINGS, 'palpation', True, world=noisy, fine=0).holds


@pytest.mark.parametrize('kind', ATTACKERS)
def test_no_adversary_gets_above_the_hard_stop(kind):
    tally = attack('retraction', kind, 2000, SETTINGS, 3.4)
    assert tally.steps >= 2000 and tally.above_stop == 0


@pytest.mark.parametrize('steps', [TICKS, 3 * TICKS])
def test_few_steps_of_an_attack_are_few_whole_operations(steps):
    shielded, bare = (attack('palpation', 'down', steps, each, 1.1) for each in (SETTINGS, None))
    assert steps <= shielded.steps < steps + TICKS
    assert shielded.contact > 0 and bare.greatest > shielded.greatest > 0.0


def test_an_attack_of_less_than_an_operation_is_refused():
    with pytest.raises(SettingError, match='one operation'):
        attack('palpation', 'down', TICKS - 1, SETTINGS, 1.1)


def test_tables_that_are_not_cut_at_all_are_refused():
    with pytest.raises(SettingError, match='fine'):
        check_tables(WIDE, fine=0)


@pytest.mark.parametrize('procedure', ['reach', 'retraction'])
def test_no_adversary_gets_above_the_damage_limit_or_out_of_the_workspace(procedure):
    tally = attack(procedure, 'down', 6000, SETTINGS, procedure_named(procedure).force_limit)
    assert 1.0 < tally.most_damage < SETTINGS.damage_limit
    assert tally.above_damage == 0 and tally.outside == 0


def test_without_the_shield_an_adversary_does():
    assert attack('retraction', 'down', 2000, None, 3.4).above_stop > 0


@pytest.mark.parametrize('kind', ['down', 'erratic'])
def test_no_adversary_gets_above_a_limit_through_the_control_loop(kind):
    """With noise, jitter, latency and lost states."""
    limit = 1.1
    strict = replace(SETTINGS, keep_limit=True)
    shielded, kept, bare = (
        attack_loop('palpation', kind, 300, each, limit) for each in (SETTINGS, strict, None)
    )
    assert bare.above_stop > 0 and bare.above_damage > 0
    assert shielded.above_limit > 0
    assert shielded.above_stop == shielded.above_damage == shielded.outside == 0
    assert kept.above_limit == 0 and kept.greatest > 0.3


def test_the_control_loop_falls_silent_at_times(monkeypatch):
    held, keep_tip = set(), Selector.keep_tip

    def keep(self, reason, *others, **named):
        held.add(reason)
        return keep_tip(self, reason, *others, **named)

    monkeypatch.setattr(Selector, 'keep_tip', keep)
    attack_loop('palpation', 'down', 300, SETTINGS, 1.1)
    assert held >= {Reason.STALE, Reason.NOT_FINITE}


def test_one_robot_too_is_asked_for_what_is_predicted_to_be_worst():
    for ways in (attack_loop, attack_motors):
        down, greedy = (ways('palpation', kind, 60, None, 1.1) for kind in ('down', 'greedy'))
        assert replace(greedy, attacker='down') != down


def test_no_adversary_gets_above_the_hard_stop_with_motors():
    tally = attack_motors('retraction', 'down', 90, SETTINGS, 3.4)
    assert tally.steps >= 90 and tally.contact > 0 and tally.above_stop == 0


@pytest.mark.parametrize('order', [(0, 1, 2), (1, 0, 2), (1, 2, 0)])
def test_a_margin_that_is_no_number_is_a_failure_whatever_comes_after_it(order):
    margins, some = Margins(), (np.array([0.3, np.nan]), np.array([-0.1, 0.2]), np.array([0.4]))
    for each in order:
        margins.add(some[each], lag=np.arange(2.0)[: len(some[each])], move=0.5 * each)
    finding = margins.finding('claim')
    assert not finding.holds and np.isnan(finding.margin) and finding.cells == 5
    assert (finding.failure['lag'], finding.failure['move']) == (1.0, 0.0)


def test_the_failure_told_is_the_worst():
    margins = Margins()
    for each in (-0.1, -0.3, -0.2):
        margins.add(np.array([1.0, each]), 'short of room', depth=each)
    finding = margins.finding('claim')
    assert finding.failure == {'short of room': 0.3, 'depth': -0.3} and finding.margin == -0.3
    assert margins.finding('claim', 0.4).holds
