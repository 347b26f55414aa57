# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Parties out of a prepared directory: what is refused before anything is trained or sent."""

from dataclasses import replace

from fdrl_ros.assembly import ledger_epsilon, open_hospital, open_records, open_training
from fdrl_ros.errors import PrivacyError, RecordsError
from fdrl_ros.federation.store import Store
from fdrl_ros.plan import Plan
from fdrl_ros.prepare import prepare
import pytest

PLAN = Plan().changed(
    {
        'learner': {'hidden': 8, 'epochs': 1},
        'privacy': {'batch': 4, 'noise_multiplier': 2.0, 'delta': 1e-4},
        'collection': {'patients': 8},
        'pretraining': {'patients': 4, 'steps': 20},
        'world': {'mode': 'kinematic'},
    }
)
NAME = 'hospital_1'


@pytest.fixture
def layout(tmp_path):
    return prepare(tmp_path / 'federation', PLAN)


def begin(layout, plan=PLAN):
    return open_training(layout.party(NAME), NAME, plan, open_records(layout, NAME, plan))


def test_ledger_that_is_gone_is_not_begun_again_under_the_old_noise_key(layout):
    begin(layout).close()
    begin(layout).close()
    ledger, key = (layout.party(NAME) / each for each in ('ledger.sqlite', 'noise.key'))
    ledger.unlink()
    for opening in (lambda: begin(layout), lambda: ledger_epsilon(layout, NAME, PLAN)):
        with pytest.raises(PrivacyError, match='put the ledger back'):
            opening()
        assert not ledger.exists()
    key.unlink()
    begin(layout).close()
    assert key.exists() and ledger.exists()


def test_key_cut_off_from_its_ledger_before_it_was_made_is_made_later(layout):
    begin(layout).close()
    (layout.party(NAME) / 'noise.key').unlink()
    begin(layout).close()


@pytest.mark.parametrize('kept', [7, 8])
def test_hospital_must_have_the_patients_that_it_declares(layout, kept):
    records = open_records(layout, NAME, PLAN)
    end = int(records.starts[kept])
    arrays = ('states', 'actions', 'rewards', 'next_states', 'terminals', 'ends')
    fewer = replace(
        records,
        **{each: getattr(records, each)[:end] for each in arrays},
        starts=records.starts[: kept + 1],
        patients=records.patients[:kept],
    )
    training = open_training(layout.party(NAME), NAME, PLAN, fewer)
    store = Store(layout.state(NAME))
    try:
        if kept == 8:
            assert open_hospital(layout, NAME, PLAN, training, store)
            return
        with pytest.raises(RecordsError, match='roster declares') as refused:
            open_hospital(layout, NAME, PLAN, training, store)
        assert str(kept) not in str(refused.value), 'how many there are is private'
    finally:
        training.close()
        store.close()


@pytest.mark.parametrize(
    'changes, reason',
    [
        ({'delta': 0.2}, 'delta'),
        ({'batch': 9}, 'batch'),
        ({'noise_multiplier': 0.0}, 'noise'),
        ({'budget': 0.01}, 'one round'),
    ],
)
def test_a_plan_that_no_hospital_could_train_by_is_refused_before_anything_is_made(
    tmp_path, changes, reason
):
    plan = PLAN.changed({'collection': {'patients': 8}, 'privacy': changes})
    with pytest.raises(PrivacyError, match=reason):
        prepare(tmp_path / 'federation', plan)
    assert not (tmp_path / 'federation').exists()
