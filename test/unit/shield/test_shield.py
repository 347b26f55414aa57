# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The shield: what it predicts is never below what comes, and what it replaces is defined."""

import dataclasses

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.experiments.studies.shield.adversary import Assault
from fdrl_ros.experiments.studies.shield.attack import attack
from fdrl_ros.selector import Shield, ShieldSettings, Veto
from fdrl_ros.shield.damage import DamageMeter
from fdrl_ros.shield.depth_tables import depth_tables
from fdrl_ros.shield.prediction import compiled_prediction
from fdrl_ros.shield.shield import BatchShield, COARSE_UP, FINE_UP, REPLACEMENTS
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS, CLOSE_JAW, OPEN_JAW, STAY, TICK
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import INDEX, STATE_SIZE
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import vector_expert_costs
from fdrl_ros.surgery.tasks.outcome import FAILURES, HARD_STOP
from fdrl_ros.surgery.tasks.procedures import procedure_named, PROCEDURES
from fdrl_ros.surgery.tissue.contact import contact_stiffness
import numpy as np
import pytest

NAMES = [each.name for each in PROCEDURES]
KINEMATIC = WorldSettings(mode='kinematic')
DOWN, ROWS, WORKSPACE = 4, 12, FAILURES.index('workspace')
READINGS = (0.0, 0.5, 9.9)
"""What the sensor says once, N; of the second, times the force that there is."""


def state_of(procedure='palpation', **values):
    """Return a state at rest, far above the organ unless said otherwise, shape (STATE_SIZE,)."""
    operation = Operation(KINEMATIC)
    operation.reset(public_cohort(3, procedures=(procedure,)).patient(0))
    state = np.array(operation.values())
    for name, value in values.items():
        state[INDEX[name]] = value
    return state


def review(shield, values, procedure, asked, now, holding=False, away=None, *, damage=0.0):
    """Return what a shield decides in its next state."""
    shield.update(values, procedure, now, damage)
    return shield.decide(asked, holding, away)


def batch_of(procedure):
    """Return operations on patients of all kinds."""
    cohort = public_cohort(5, 1.0, (procedure,))
    batch = VectorOperation([cohort.patient(each, 'test') for each in range(ROWS)])
    batch.reset()
    return batch


def operate(batch, shield, ticks, choose, spoil=lambda values, rows: None):
    """
    Operate under a shield that is given spoiled states.

    Yield the decisions of each tick and what followed.
    """
    rows = np.arange(len(batch.over))
    for tick in range(ticks):
        values = batch.values()
        spoil(values, rows)
        decisions = shield.review(values, choose(batch, tick))
        brought = batch.step(np.array([each.action for each in decisions]))[4]
        yield decisions, brought
        left = np.flatnonzero(~batch.over)
        if not len(left):
            return
        batch.select(left)
        shield.select(left)
        rows = rows[left]


def down(batch, tick):
    return np.full(len(batch.over), DOWN)


@pytest.mark.parametrize('procedure', NAMES)
def test_forces_never_pass_what_was_predicted_under_the_wide_bounds(procedure):
    rng = np.random.default_rng(1)

    def choose(batch, tick):
        """Go down in most cases, so that there is force, and anywhere in the rest."""
        anywhere = rng.integers(0, ACTION_COUNT, len(batch.over))
        down = rng.choice([4, 10], len(batch.over))
        expert = vector_expert_costs(batch).argmin(axis=1)
        kind = rng.random(len(batch.over))
        return np.where(kind < 0.4, down, np.where(kind < 0.7, anywhere, expert))

    touched = 0
    shield = BatchShield(ShieldSettings(), procedure, ROWS)
    for decisions, brought in operate(batch_of(procedure), shield, 40, choose):
        peaks = brought['peak_force']
        assert (peaks <= np.array([each.wide_force for each in decisions]) + 1e-9).all()
        touched += int((peaks > 0.05).sum())
    assert touched > 0


def test_what_replaces_an_action_is_the_same_way_finer_then_staying_then_up():
    assert REPLACEMENTS[DOWN] == (4, 10, STAY, FINE_UP, COARSE_UP)
    assert REPLACEMENTS[0] == (0, 6, STAY, FINE_UP, COARSE_UP)
    assert REPLACEMENTS[10] == (10, STAY, FINE_UP, COARSE_UP)
    assert REPLACEMENTS[OPEN_JAW] == (OPEN_JAW, STAY, FINE_UP, COARSE_UP)
    assert REPLACEMENTS[CLOSE_JAW] == (CLOSE_JAW, STAY, FINE_UP, COARSE_UP)
    for asked, ladder in enumerate(REPLACEMENTS):
        assert ladder[0] == asked and {STAY, FINE_UP, COARSE_UP} <= set(ladder)


@pytest.mark.parametrize(('force', 'veto'), [(0.0, ''), (1.0, 'force'), (9.9, 'hard_stop')])
def test_the_reason_of_a_veto_is_the_limit_that_would_be_passed(force, veto):
    state = state_of(goal_error_z=-0.005, force=force, contact=1.0)
    decision = review(Shield(), state, 'palpation', STAY, 0.0, holding=True)
    assert decision.veto == veto
    strict = review(Shield(ShieldSettings(keep_limit=True)), state, 'palpation', STAY, 0.0)
    assert strict == decision
    asked = review(Shield(), state, 'palpation', STAY, 0.0)
    assert asked.veto == (veto if veto != 'force' else '')
    assert decision.action == (STAY if not veto else decision.action)
    if veto:
        assert ACTIONS[decision.action].displacement[2] > 0.0


def test_a_tip_at_the_edge_of_the_workspace_goes_no_further_but_back():
    shield = Shield()
    state = state_of(goal_error_x=0.0399, goal_error_y=0.0)
    assert review(shield, state, 'palpation', 1, 0.0).veto is Veto.WORKSPACE
    assert review(shield, state, 'palpation', 0, 1.0).veto is Veto.NONE
    above = state_of(goal_error_z=0.044)
    assert review(shield, above, 'palpation', COARSE_UP, 2.0).action == STAY


def test_once_damage_is_above_its_limit_the_tip_goes_up_no_further_than_it_must():
    shield = Shield(ShieldSettings(damage_limit=0.05))
    pressed = state_of('retraction', goal_error_z=-0.004, force=2.6, contact=1.0)
    free = state_of('retraction', goal_error_z=0.02)
    vetoes, done, meter = [], [], DamageMeter()
    for tick in range(30):
        state = pressed if tick < 9 else free
        meter.add(state[INDEX['force']], 'retraction', TICK * tick)
        decision = review(shield, state, 'retraction', STAY, TICK * tick, damage=meter.total)
        vetoes.append(decision.veto)
        done.append(decision.action)
    assert vetoes[8] is Veto.DAMAGE and done[8] == COARSE_UP
    assert done[9:] == [STAY] * 21


def test_the_hard_stop_is_kept_late_and_with_a_noisy_sensor():
    late = Assault('palpation', 'down', 600, ShieldSettings(), latency=2, force_noise=0.05)
    assert {(each.latency, each.force_noise) for each in late.patients(0, 4)} == {(2, 0.05)}
    found = attack(late)
    assert found.contact > 100 and found.above_stop == 0
    assert attack(dataclasses.replace(late, shield=None)).above_stop > 0


def test_damage_drives_no_tip_out_of_the_workspace():
    left, up = 0, 0
    batch = VectorOperation(Assault('palpation', 'down', 60, None).patients(0, 24))
    batch.reset()
    shield = BatchShield(ShieldSettings(), 'palpation', 24)
    shield.damage.total = np.full(24, 2.5)

    def spoil(values, rows):
        values[:, INDEX['force_limit']] = procedure_named('palpation').force_limit

    for decisions, brought in operate(batch, shield, 150, down, spoil):
        left += int((brought['failure'] == WORKSPACE).sum())
        up += sum(each.action == COARSE_UP for each in decisions)
    assert up > 0 and left == 0


@pytest.mark.parametrize(
    ('height', 'action'), [(0.03, COARSE_UP), (0.0405, FINE_UP), (0.044, STAY)]
)
def test_where_nothing_is_allowed_the_tip_goes_up_but_not_out_of_the_workspace(height, action):
    state = state_of(goal_error_z=height, force=9.9, contact=1.0)
    decision = review(Shield(), state, 'palpation', DOWN, 0.0)
    assert decision.veto is Veto.HARD_STOP and decision.action == action


def test_force_that_is_felt_above_all_tissue_outweighs_the_plan():
    state = state_of(goal_error_z=0.03, force=2.0, contact=1.0)
    decision = review(Shield(), state, 'palpation', STAY, 0.0, holding=True)
    assert decision.veto is not Veto.NONE


@pytest.mark.parametrize('aside', [-0.19, 0.0, 0.19])
def test_a_robot_that_holds_at_the_edge_of_the_workspace_is_drawn_back_along_the_shaft(aside):
    at = {'goal_error_x': 0.0395, 'goal_error_y': 0.0, 'goal_error_z': -0.006, 'lag': 0.0}
    state, away = state_of(**at, force=8.0, contact=1.0), (aside, 0.0, 0.98)
    assert review(Shield(), state, 'palpation', STAY, 0.0, True, away).action == COARSE_UP
    assert review(Shield(), state, 'palpation', 1, 0.0).veto is Veto.WORKSPACE


@pytest.mark.parametrize('gap', [0.0, 0.01])
def test_a_move_that_has_not_begun_is_reckoned_with_whenever_the_next_state_comes(gap):
    shield, state = Shield(), state_of(goal_error_z=-0.002, force=0.3, contact=1.0)
    assert review(shield, state, 'palpation', DOWN, 0.0).action == DOWN
    still = Shield()
    review(still, state, 'palpation', STAY, 0.0)
    late, rested = (review(each, state, 'palpation', STAY, TICK) for each in (shield, still))
    assert late.wide_force > rested.wide_force + 0.1
    late, rested = (
        review(each.branch(), state, 'palpation', STAY, TICK + gap, True)
        for each in (shield, still)
    )
    assert late.wide_force > rested.wide_force + 0.1


def test_what_is_reckoned_with_is_the_way_along_the_shaft():
    """The waypoint of an incision moves: nothing but the booking tells of a way aside."""
    state = state_of('incision', goal_error_z=-0.006, force=2.0, contact=1.0)
    worst = []
    for away in ((0.0, 0.0, 1.0), (0.19, 0.0, 0.98)):
        shield = Shield()
        decision = review(shield, state, 'incision', STAY, 0.0, True, away)
        assert decision.action == COARSE_UP
        worst.append(review(shield, state, 'incision', STAY, TICK).wide_force)
    assert worst[1] > worst[0] + 1e-3


@pytest.mark.parametrize(('beside', 'veto'), [(0.015, Veto.HARD_STOP), (0.0, Veto.NONE)])
def test_no_ring_is_lowered_beside_its_peg(beside, veto):
    """Nothing pulls above the peg, and all that the ring is off does below its top."""
    at = {'goal_error_x': beside, 'goal_error_y': 0.0, 'goal_error_z': 0.0091, 'lag': 0.001}
    state = state_of('peg_transfer', **at, jaw=0.0, grasped=1.0)
    assert review(Shield(), state, 'peg_transfer', DOWN, 0.0).veto is veto


def test_a_shield_that_is_not_active_lets_everything_pass():
    shield = Shield(ShieldSettings(active=False))
    state = state_of(goal_error_z=-0.005, force=9.9, contact=1.0)
    assert review(shield, state, 'palpation', DOWN, 0.0).action == DOWN


def test_what_cannot_be_is_refused():
    with pytest.raises(StateError):
        Shield().decide(STAY)
    with pytest.raises(SettingError):
        review(Shield(), state_of(), 'unheard of', STAY, 0.0)
    with pytest.raises(SettingError):
        review(Shield(ShieldSettings(damping=8.0, speed=0.08)), state_of(), 'reach', STAY, 0.0)
    with pytest.raises(SettingError, match='accelerations'):
        Shield(ShieldSettings(damping=8.0, speed=0.05, acceleration=1.2))
    with pytest.raises(SettingError):
        dataclasses.replace(ShieldSettings().wide_bounds(), stiffest=1.0)


def test_the_first_state_of_a_procedure_makes_no_tables():
    shield = Shield()
    made = depth_tables.cache_info().misses
    for name in NAMES:
        shield.reset()
        shield.update(np.ones(STATE_SIZE), name, 1.0)
    assert depth_tables.cache_info().misses == made


def operate_with_wrong(reading, choose, ticks):
    """
    Operate with one wrong reading for each robot, in one of its first ticks in contact.

    Yield the shields, the patients left, and what the tick brought.
    """
    batch = batch_of('retraction')
    shield = BatchShield(ShieldSettings(), 'retraction', ROWS)
    wrong, felt = np.random.default_rng(0).integers(1, 8, ROWS), np.zeros(ROWS)

    def spoil(values, rows):
        touched = values[:, INDEX['contact']] > 0.0
        felt[rows] += touched
        now, force = (felt[rows] == wrong[rows]) & touched, INDEX['force']
        values[now, force] = reading * values[now, force] if reading == 0.5 else reading

    for _, brought in operate(batch, shield, ticks, choose, spoil):
        yield shield.shields, batch.patients, brought, batch.over


def down_and_up(batch, tick):
    """Press and let go, so that there is much to be learned of the tissue."""
    return np.full(len(batch.over), DOWN if tick % 6 < 4 else COARSE_UP)


@pytest.mark.parametrize('reading', READINGS)
@pytest.mark.parametrize('choose', [down, down_and_up])
def test_one_wrong_reading_leaves_out_no_tissue_that_is_true_and_no_force_passes_the_hard_stop(
    reading, choose
):
    radius, left_out = procedure_named('retraction').contact_radius, 0
    spans = compiled_prediction(ShieldSettings().wide_bounds(), radius).spans
    for shields, patients, brought, _ in operate_with_wrong(reading, choose, 60):
        assert brought['peak_force'].max() < HARD_STOP
        for shield, patient in zip(shields, patients, strict=True):
            kappa = contact_stiffness(patient.young_modulus, radius) ** (2 / 3)
            kinds = shield.bounds.estimator.kinds[0].kinds
            alive = [kind.slow <= kind.fast for kind in kinds]
            left_out += alive.count(False)
            assert any(
                possible and soft * (1 - 1e-12) <= kappa <= stiff * (1 + 1e-12)
                for possible, (soft, stiff) in zip(alive, spans, strict=True)
            )
    assert left_out > 0


@pytest.mark.parametrize('reading', READINGS)
def test_an_expert_succeeds_though_a_reading_was_wrong(reading):
    def expert(batch, tick):
        return vector_expert_costs(batch).argmin(axis=1)

    succeeded = sum(
        int(brought['success'][over].sum())
        for _, _, brought, over in operate_with_wrong(reading, expert, round(60.0 / TICK))
    )
    assert succeeded == ROWS
