# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The Gymnasium env: its rules, its determinism, and no leak between instances."""

from dataclasses import replace
from functools import partial
import importlib
from pathlib import Path
import re
import subprocess
import sys
import warnings

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.surgery.arm.kinematics import UnreachableError
from fdrl_ros.surgery.gym.episode import run_episode
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES
from fdrl_ros.surgery.gym.surgery_env import env_id, SurgeryEnv
from fdrl_ros.surgery.gym.vector_env import VectorSurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort, public_cohort
from fdrl_ros.surgery.settings import SPARSE, sparse, WorldSettings
from fdrl_ros.surgery.tasks.expert import expert
import gymnasium
from gymnasium.utils.env_checker import check_env
import numpy as np
import pytest
from support.random_walk import digest, walk

KINEMATIC = WorldSettings(mode='kinematic')
DOWN = 4


@pytest.mark.parametrize('mode', ['dynamic', 'kinematic'])
@pytest.mark.parametrize('procedure', PROCEDURE_NAMES)
def test_gymnasium_finds_nothing_to_warn_of_in_any_procedure(procedure, mode):
    settings = WorldSettings(mode=mode)
    given = {'settings': settings, 'heterogeneity': 1.0, 'render_mode': 'rgb_array'}
    env = gymnasium.make(env_id(procedure), **given)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        check_env(env.unwrapped, skip_render_check=(procedure, mode) != ('reach', 'kinematic'))
    assert env.unwrapped.patient.procedure.name == procedure
    env.close()


@pytest.mark.parametrize('procedure', PROCEDURE_NAMES)
def test_a_sparse_env_rewards_the_end_alone(procedure):
    """The same operations as in the usual env, with the rewards of success and failure."""
    world = WorldSettings(mode='kinematic', success_reward=3.0, failure_penalty=2.0)
    usual, env = (
        gymnasium.make(env_id(procedure, sparse=each), settings=world) for each in (False, True)
    )
    assert env.spec.id == f'fdrl_ros/{procedure.title().replace("_", "")}Sparse-v0'
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        check_env(env.unwrapped, skip_render_check=True)
    found = set()  # success of who can do it, force or breach of who rams
    for seed, skilled in ((1, True), (2, False)):
        state, _ = env.reset(seed=seed)
        np.testing.assert_array_equal(state, usual.reset(seed=seed)[0])
        over, rewards = False, []
        while not over:
            patient = env.unwrapped.patient
            action = expert(state, patient, world)[0] if skilled else DOWN
            state, reward, terminated, truncated, info = env.step(action)
            np.testing.assert_array_equal(state, usual.step(action)[0])
            rewards.append(reward)
            over = terminated or truncated
        assert not any(rewards[:-1])
        found.add(rewards[-1])
    assert found == {3.0, -2.0}
    usual.close(), env.close()


def test_sparse_envs_side_by_side_reward_the_end_alone():
    envs = gymnasium.make_vec('fdrl_ros/SurgerySparse-v0', 8, 'vector_entry_point')
    envs.reset(seed=0)
    ends = 0
    for _ in range(80):
        _, rewards, terminated, _, _ = envs.step(np.full(8, DOWN))
        np.testing.assert_array_equal(rewards, np.where(terminated, -5.0, 0.0))
        ends += terminated.sum()
    assert ends >= 8
    envs.close()


def test_sparse_settings_are_those_of_the_world_without_rewards_on_the_way():
    told = {name for name, value in vars(SPARSE).items() if value != vars(WorldSettings())[name]}
    assert told == {'progress_reward', 'hold_reward', 'force_penalty', 'time_penalty'}
    assert not any(vars(SPARSE)[name] for name in told)
    assert sparse(WorldSettings(pace=7.0)).pace == 7.0
    with pytest.raises(SettingError, match='expected WorldSettings'):
        gymnasium.make('fdrl_ros/ReachSparse-v0', settings={'mode': 'kinematic'})


@pytest.mark.parametrize('mode', ['dynamic', 'kinematic'])
def test_a_seed_gives_the_same_bits_whatever_came_before(mode):
    env, other = (SurgeryEnv(settings=WorldSettings(mode=mode)) for _ in range(2))
    first = [*walk(env, 3)]
    assert [*walk(other, 5)] != first
    assert [*walk(env, 3)] == [*walk(other, 3)] == first
    env.close(), other.close()


@pytest.mark.parametrize('mode', ['dynamic', 'kinematic'])
def test_two_processes_say_the_same_bits_in_every_procedure(mode):
    support = Path(__file__).parents[2]
    program = f'import sys; sys.path.insert(0, {str(support)!r})\n'
    program += f'from support.random_walk import digest; print(digest({mode!r}))'
    said = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, timeout=60, check=True
    )
    assert said.stdout.strip() == digest(mode)


def test_envs_side_by_side_in_all_procedures_do_not_touch_each_other():
    settings = WorldSettings(mode='dynamic')
    envs, expected = [], []
    for seed, name in enumerate((*PROCEDURE_NAMES, 'all')):
        given = {'settings': settings, 'procedures': name, 'heterogeneity': 1.0}
        alone = SurgeryEnv(**given)
        expected.append([*walk(alone, seed, 12)])
        alone.close()
        envs.append(SurgeryEnv(**given))
    walks = [walk(env, seed, 12) for seed, env in enumerate(envs)]
    in_turn = zip(*walks, strict=True)
    assert [list(said) for said in zip(*in_turn, strict=True)] == expected
    for env in envs:
        env.close()


def test_misuse_is_refused():
    env = SurgeryEnv(settings=KINEMATIC)
    with pytest.raises(StateError, match='reset'):
        env.step(0)
    env.reset(seed=0)
    before = env.operation.values()
    with pytest.raises(StateError, match='expected a whole number from 0 to 14'):
        env.step(15)
    assert env.operation.values() == before
    with pytest.raises(SettingError, match='options'):
        env.reset(options={'colour': 1})
    with pytest.raises(SettingError, match='options'):
        env.reset(options='patient')
    with pytest.raises(SettingError, match='patient'):
        env.reset(options={'patient': 'nobody'})
    with pytest.raises(SettingError, match='render_mode'):
        SurgeryEnv(settings=KINEMATIC, render_mode='human')
    patient = public_cohort(0).patient(0)
    run_episode(env, lambda state: expert(state, patient)[0], patient)
    with pytest.raises(StateError, match='over'):
        env.step(12)


@pytest.mark.parametrize('mode', ['dynamic', 'kinematic'])
def test_a_reset_that_is_refused_leaves_the_old_operation_whole(mode):
    settings = WorldSettings(mode=mode, force_noise=0.1)
    env, other = (SurgeryEnv(settings=settings) for _ in range(2))
    at_table = public_cohort(0).patient(0)
    far = replace(at_table, start=(0.5, 0.0, -0.1))
    broken = replace(at_table)
    object.__setattr__(broken, 'events', None)  # as no patient can be
    for each in (env, other):
        each.reset(seed=0)
        for _ in range(3):
            each.step(4)
    for wrong in (
        far,
        *(replace(at_table, **{e: (0.5, 0.5, -0.13)}) for e in ('goal', 'destination')),
    ):
        with pytest.raises(UnreachableError):
            env.reset(options={'patient': wrong})
    with pytest.raises(TypeError):
        env.reset(options={'patient': broken})
    for _ in range(15):
        *one, _ = env.step(4)
        *two, _ = other.step(4)
        np.testing.assert_array_equal(one[0], two[0])
        assert one[1:] == two[1:]
        if one[2]:
            break
    env.close(), other.close()


def test_info_says_what_the_table_says_and_the_greatest_force_is_the_operations():
    text = (Path(__file__).parents[3] / 'docs/library.md').read_text()
    told = re.findall(r'^\| `(\w+)` \|', text.split('What `info` says')[1].split('\n## ')[0], re.M)
    patient = public_cohort(0).patient(3)
    env, many = SurgeryEnv(settings=KINEMATIC), VectorSurgeryEnv(1)
    _state, info = env.reset(options={'patient': patient})
    many.reset(seed=0)
    assert list(info) == told and info['greatest_force'] == 0.0
    said = {each for each in many.step([12])[-1] if not each.startswith('_')}
    assert said == set(told) - {'patient'}
    peaks = []
    state, over = env.operation.state(), False
    while not over:
        state, _reward, terminated, truncated, info = env.step(expert(state, patient)[0])
        peaks.append(info['peak_force'])
        assert list(info) == told and info['greatest_force'] == max(peaks)
        over = terminated or truncated
    assert info['success'] and info['greatest_force'] > info['peak_force'] > 0.0
    assert env.reset(options={'patient': patient})[1]['greatest_force'] == 0.0
    env.close(), many.close()


def test_two_imports_register_every_env_that_the_docs_name():
    text = (Path(__file__).parents[3] / 'docs/library.md').read_text()
    named = set(re.findall(r'fdrl_ros/[A-Za-z]+-v0', text.split('\n## ')[1]))
    code = """
import warnings; warnings.simplefilter('error')
import fdrl_ros.surgery.gym.surgery_env, fdrl_ros.worlds, gymnasium, sys
assert not any(each.startswith('fdrl_ros.worlds.') for each in sys.modules)
print(*(each for each in gymnasium.registry if each.startswith('fdrl_ros/')))
gymnasium.make('fdrl_ros/PaperWorld-v0').reset(seed=0)
gymnasium.make('fdrl_ros/NeedlePass-v0').close()
"""
    said = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert set(said.stdout.split()) == named
    importlib.import_module('fdrl_ros.worlds')
    for each in named:
        spec = gymnasium.registry[each]
        for place in filter(None, (spec.entry_point, spec.vector_entry_point)):
            module, name = place.split(':')
            assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize('make', [SurgeryEnv, partial(VectorSurgeryEnv, 1)])
def test_an_env_of_one_procedure_takes_nobody_for_another(make):
    cohort = Cohort(0, 3, 0.8, 1, procedures=('retraction',))
    for given in ({'procedures': 'peg_transfer'}, {'procedures': 'all'}):
        with pytest.raises(SettingError, match='those of the cohort, or none: it does retraction'):
            make(cohort=cohort, settings=KINEMATIC, **given)
    with pytest.raises(SettingError, match='the cohort has its own'):
        make(cohort=cohort, settings=KINEMATIC, heterogeneity=0.8)
    make(cohort=cohort, settings=KINEMATIC, procedures='retraction').reset(seed=0)
    env = gymnasium.make(env_id('peg_transfer'), settings=KINEMATIC)
    with pytest.raises(SettingError, match='expected one for peg_transfer'):
        env.reset(options={'patient': cohort.patient(0)})
    env.close()
