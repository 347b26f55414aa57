# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The study of mastery: the same patients, budget and records for every row."""

from base64 import b64encode
from dataclasses import replace
from pathlib import Path

from fdrl_ros.errors import StoreError
from fdrl_ros.experiments.intervals import interval_words
from fdrl_ros.experiments.json_file import json_text, write_json
from fdrl_ros.experiments.reports.mastery_tables import mastery_tables
from fdrl_ros.experiments.studies.mastery import selector, study
from fdrl_ros.experiments.studies.mastery.ceiling import learn_ceiling
from fdrl_ros.experiments.studies.mastery.evaluation import MEASURES, VARIATIONS
from fdrl_ros.experiments.studies.mastery.learning import calibrated, collect, pooled
from fdrl_ros.experiments.studies.mastery.settings import (
    base_plan,
    Cell,
    CELLS,
    CHOOSING_SEEDS,
    EPSILON,
    FEDERATED,
    plan_of,
    planned,
    QUICK,
    SEEDS,
    TARGET,
)
from fdrl_ros.experiments.studies.mastery.sparse import greedy, sparse_plan
from fdrl_ros.experiments.studies.mastery.study import (
    code_digest,
    measure_cell,
    run_mastery,
    write_down_code,
)
from fdrl_ros.experiments.studies.mastery.summary import summarise
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.learner.home import home_charges
from fdrl_ros.learner.privacy_cost import ChargedMechanism
from fdrl_ros.privacy.accountant.accountant import epsilon_pld
from fdrl_ros.runtime.progress import NOBODY
from fdrl_ros.selector import HOLD
from fdrl_ros.surgery.gym.episode import roll_out
import numpy as np
import pytest

SMALL = Cell(patients=20)


@pytest.fixture(scope='module')
def plan():
    """Return the plan of a small cell."""
    return plan_of(base_plan(), SMALL, 901)


@pytest.fixture(scope='module')
def records(plan):
    """Return the records of every hospital."""
    return collect(plan, lambda: False)


def test_cells_and_seeds_are_those_that_were_fixed():
    assert len(CELLS) == 24
    assert sum(cell.default for cell in CELLS) == 2
    assert len(SEEDS) == 10
    assert not set(SEEDS) & set(CHOOSING_SEEDS)


def test_pooled_records_are_everybodys(records):
    every = pooled(records)
    assert every.n_patients == sum(each.n_patients for each in records.values())
    last = list(records.values())[-1]
    first = every.starts[-1 - last.n_patients]
    np.testing.assert_array_equal(every.states[first:], last.states)
    assert np.diff(every.starts)[-last.n_patients :].tolist() == np.diff(last.starts).tolist()


@pytest.mark.parametrize('name', ['global', 'personal', 'federated', 'federated_or_alone'])
def test_every_row_spends_the_whole_epsilon_and_no_more(plan, records, name):
    recipe, own = FEDERATED[name], next(iter(records.values()))
    made = calibrated(planned(plan, recipe), own, recipe.local)
    mechanism = ChargedMechanism.from_settings(own, made.learner, made.privacy)
    rounds = made.rounds.rounds + recipe.local
    steps = rounds * made.learner.epochs * mechanism.steps_of_epoch
    home = home_charges(made.learner, made.privacy, made.home, own) if made.home.epochs else ()
    spent = epsilon_pld([mechanism.charge(steps), *home], made.privacy.delta)
    assert 0.99 * TARGET < spent <= TARGET < EPSILON == made.privacy.budget


ROWS = ('public_start', 'alone', 'global', 'personal', 'federated', 'pooled_at_home', 'pooled')


def made_up_part(lead, seed):
    """Return a made-up part where federated is better than everybody else by `lead`."""
    rng = np.random.default_rng(seed)

    def row(name):
        good = 80.0 + (lead if name == 'federated' else 0.0) + rng.integers(-1, 2)
        numbers = {**dict.fromkeys(MEASURES, 0.5), 'success': good / 100.0}
        return {**numbers, 'procedures': {'reach': [100, int(good)]}}

    names = (*ROWS, 'ceiling', 'expert', *(['implicit_q'] if seed == 1 else []))
    return {
        'home': {name: {f'hospital_{n}': row(name) for n in (1, 2)} for name in names},
        'away': {name: row(name) for name in ROWS},
        'epsilon': {'federated': 8.0, 'alone': 8.0 - seed / 1e4},
        'chosen': {'federated': {'hospital_1': 'personal', 'hospital_2': 'global'}},
        'with_motors': {'federated': 0.8},
        'robust': {'latency_1': {'federated': 0.7}},
        'selector': {place: made_up_choice(seed) for place in ('home', 'away')},
    }


def made_up_choice(seed):
    """Return what a made-up selector found: half the risk of the global policy, 1 more return."""
    row = {'return': 9.0 + seed, 'success': 0.8, 'risk': 0.2}
    better = {'return': 10.0 + seed, 'success': 0.9, 'risk': 0.1}
    rows = {'selector': better, 'global': row}
    return {'rows': rows, 'share_of_oracle': 0.9, 'chosen': {'own': 1.0}}


def summary_of(lead):
    """Return the summary of two made-up cells."""
    cells = Cell(), Cell(gap=2.0)
    measured = [((cell, seed), made_up_part(lead, seed)) for cell in cells for seed in (1, 2, 3)]
    ends = [(cells[0], {'found': {'greedy': {'needle_pass': 0.1}}})]
    return summarise(measured, ends, base_plan())


def test_the_summary_has_all_that_the_report_needs():
    found = summary_of(5.0)
    level = found['levels']['0.5']
    assert level.keys() >= {
        *('home', 'away', 'procedures', 'hospitals', 'paired', 'seeds', 'epsilon', 'chosen'),
        *('robust', 'sparse', 'ceiling', 'measures', 'with_motors', 'endpoints'),
    }
    for group in ('home', 'away', 'paired'):
        assert all({'mean', 'low', 'high'} <= each.keys() for each in level[group].values())
    assert level['epsilon']['alone'] == 8.0 - 1e-4  # of the seed that spent most
    assert level['chosen']['federated'] == {'personal': 3, 'global': 3}
    assert level['procedures']['reach']['alone']['mean'] == level['home']['alone']['mean']
    assert [(each['gap'], each['seeds']) for each in found['cells']] == [
        (1.0, [1, 2, 3]),
        (2.0, [1, 2, 3]),
    ]
    chosen = level['selector']['away']
    assert chosen['lead']['global']['return']['low'] == pytest.approx(1.0)
    assert chosen['risk_saved']['global']['mean'] == pytest.approx(0.5)
    assert level['home']['implicit_q']['low'] is None  # of one seed
    json_text(found)


def test_tables_tell_what_the_summary_holds():
    found = summary_of(5.0)
    level, tables = found['levels']['0.5'], mastery_tables(found)
    for table in tables.values():
        assert len({line.count('|') for line in table.splitlines()}) == 1, table
    (success,) = (each for name, each in tables.items() if name.startswith('Success by row'))
    alone = interval_words(level['home']['alone'], factor=100.0)
    assert f'| alone | {alone} | ' in success and '| expert | ' in success
    ends = next(each for name, each in tables.items() if 'own patients (points)' in name)
    assert ends.count('| met |') == 5 and 'not' not in ends
    away = next(each for name, each in tables.items() if 'rows away' in name)
    assert interval_words(level['paired_away']['alone'], factor=100.0) in away


@pytest.mark.parametrize('lead, met', [(5.0, [True] * 5), (0.0, [False] * 5)])
def test_endpoints_are_tested_in_their_order_until_one_is_not_met(lead, met):
    rows = summary_of(lead)['levels']['0.5']['endpoints']
    assert [each['minus'] for each in rows] == [
        'alone',
        'public_start',
        'global',
        'pooled_at_home',
        'pooled',
    ]
    assert [each['met'] for each in rows] == met
    assert [each['tested'] for each in rows] == [True, *met[:-1]]


def test_everybody_is_tried_on_the_same_patients(plan, records, monkeypatch):
    monkeypatch.setattr(study, 'collect', lambda plan, stopped: records)
    tried = []
    monkeypatch.setattr(
        study,
        'tried',
        lambda patients, acting, world: (
            tried.append(tuple(each.name for each in patients)) or np.zeros((len(patients), 5))
        ),
    )
    start = plan.network.draw(np.random.default_rng(0))
    short = plan.changed({'rounds': {'rounds': 1}, 'learner': {'epochs': 1}})
    work = Work(Path(), ('mastery', 'part'), NOBODY)
    found = measure_cell(short, {'cloning': start}, 4, work, ('federated',)).found
    assert found['home']['federated'].keys() == found['home']['public_start'].keys()
    assert set(found['chosen']['federated'].values()) <= {'global', 'personal'}
    assert len(set(tried)) == len(plan.hospitals) + 1  # each hospital's, and those of elsewhere
    assert {len(each) for each in tried} == {4}


@pytest.fixture(scope='module')
def policies(plan):
    """Return made-up policies."""
    rng, start = np.random.default_rng(0), plan.network.draw(np.random.default_rng(1))
    first, last = (start + 0.1 * rng.standard_normal(start.shape, np.float32) for _ in range(2))
    named = {'global': start, 'a': first, 'b': last, 'public_start': start}
    return {**{name: plan.network.policy(each) for name, each in named.items()}, HOLD: None}


def robot(plan, policies, owner):
    small = {'patients': 20, 'checked': 2, 'redraws': 16}
    few = {'federation': {'procedures': 'reach, palpation'}, 'value': small}
    return selector.Robot(plan.changed(few), policies, owner)


def test_the_selector_chooses_each_patient_by_itself(plan, policies):
    own = robot(plan, policies, 'a')
    patients = [own.plan.cohorts[0].patient(each, 'test') for each in range(4)]
    together = roll_out(patients, selector.SelectorActs(own), plan.world)
    alone = roll_out(patients[2:3], selector.SelectorActs(own), plan.world)
    np.testing.assert_array_equal(together.actions[together.cases == 2], alone.actions)


def test_the_selector_is_compared_on_the_same_patients(plan, policies):
    own = robot(plan, policies, 'a')
    bench = selector.SelectorBench(own.plan, policies, 3, 1)
    for cohort in own.plan.cohorts[:2]:
        bench.add([cohort.patient(each, 'test') for each in range(4)], own)
    found = selector.summed_with_oracle({'home': bench})['home']
    rows = {name: each['return'] for name, each in found['rows'].items()}
    assert rows['hindsight'] >= max(rows[name] for name in ('own', 'global', 'hold', 'others'))
    assert rows['global'] == rows['public_start']  # the same weights
    assert found['oracle']['oracle'] >= found['oracle']['without']
    assert sum(found['chosen'].values()) == pytest.approx(1.0)


def test_variations_change_nothing_but_what_they_say(plan):
    cohort = plan.cohorts[0]
    usual = VARIATIONS['as_usual'](cohort, 3)
    for name, numbers in (('latency_2', {'latency': 2}), ('noise_0.15_N', {'force_noise': 0.15})):
        assert VARIATIONS[name](cohort, 3) == [replace(each, **numbers) for each in usual]


def test_greedy_control_sees_no_reward_before_the_end(plan):
    own = sparse_plan(plan, QUICK)
    patients = [own.cohorts[0].patient(each, 'test', 'needle_pass') for each in range(2)]
    assert not greedy(patients, own.world, np.random.default_rng(0)).any()


def one(number, work):
    """Measure a part of which nothing is to be known."""
    return {'found': number}


def test_the_code_is_written_down_and_no_other_code_goes_on_with_a_study(tmp_path):
    made = Study('one', tmp_path / 'one', one)
    parts = [Part(f'part_{number}', {'number': number}, (number,)) for number in range(2)]
    assert write_down_code(made, parts) == write_down_code(made, parts) == code_digest()
    made.run(parts[:1])
    write_json(tmp_path / 'one' / 'code.json', {'code': 'other'})
    with pytest.raises(StoreError, match='other code'):
        write_down_code(made, parts)
    assert write_down_code(made, parts[:1]) == 'other'  # it is finished


def test_a_part_depends_on_the_selector_only_where_it_chooses(plan):
    bold = plan.changed({'selector': {'home_margin': 9.0}})
    assert study._relevant(plan) == study._relevant(bold)
    assert study._relevant(plan, chooses=True) != study._relevant(bold, chooses=True)
    noisy = plan.changed({'privacy': {'noise_multiplier': 9.0}})
    assert study._relevant(plan) != study._relevant(noisy)


def test_a_study_that_is_called_again_measures_nothing_twice(tmp_path, monkeypatch):
    measured = []

    def start(name, plan, sizes, work):
        measured.append((name, plan.federation.seed))
        return {'weights': b64encode(np.zeros(3, '<f4').tobytes()).decode()}

    def cell(plan, cell, starts, sizes, work):
        assert all(each.shape == (3,) for each in starts.values())
        measured.append((cell, plan.federation.seed))
        found = made_up_part(5.0, plan.federation.seed)
        return {name: part for name, part in found.items() if name != 'selector'}

    def choice(plan, starts, sizes, work):
        measured.append(('selector', plan.federation.seed))
        return {'selector': made_up_part(5.0, plan.federation.seed)['selector']}

    def ends(plan, sizes, work):
        measured.append(('sparse', plan.federation.seed))
        return {'found': {'greedy': {'needle_pass': 0.0}}}

    for name, made in (
        ('measure_start', start),
        ('measure', cell),
        ('measure_selector', choice),
        ('measure_sparse', ends),
    ):
        monkeypatch.setattr(study, name, made)
    sizes = replace(QUICK, seeds=((1, 2), (1,)), cells=(Cell(), Cell(gap=4.0)))
    own = base_plan().changed({'evaluation': {'workers': 1}})
    first = run_mastery(tmp_path, own, sizes)
    assert measured.count(('sparse', 1)) == 1 and ('sparse', 2) not in measured
    assert measured.count(('selector', 1)) == measured.count(('selector', 2)) == 1
    assert [each for each in measured if isinstance(each[0], Cell)] == [
        (Cell(), 1),
        (Cell(), 2),
        (Cell(gap=4.0), 1),
    ]
    measured.clear()
    assert json_text(run_mastery(tmp_path, own, sizes)) == json_text(first)
    assert not measured
    assert first['code'] == dict.fromkeys(('starts', 'cells', 'selector', 'sparse'), code_digest())


def test_the_ceiling_remembers_each_operation_by_itself(plan):
    pytest.importorskip('torch')
    made = learn_ceiling(plan, (2, 2), lambda: False)
    both, one = made.acting(0, 2), made.acting(0, 1)
    states = np.random.default_rng(0).normal(size=(3, 2, 31)).astype(np.float32)
    for tick, each in enumerate(states):
        together = both(each, np.array([0, 1]), tick)
        assert together[0] == one(each[:1], np.array([0]), tick)[0]
