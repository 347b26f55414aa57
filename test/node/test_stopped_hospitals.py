# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Hospitals over DDS that must not go on: one restored from an older copy, and spent budgets."""

from contextlib import closing
from dataclasses import replace
import math
import shutil

from fdrl_ros.deployment.bringup import federation_graph
from fdrl_ros.deployment.events import HospitalProgress, NodeHealth, PrivacySpent
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.prepare import prepare
from fdrl_ros.errors import PrivacyError
from fdrl_ros.federation.protocol.orders import StandingOrders
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.learner.privacy_cost import ChargedMechanism, RecordCounts
from fdrl_ros.privacy.accountant.accountant import epsilon_pld
from node.conftest import PLAN, play
import pytest

NAME = 'hospital_1'
WARN, ERROR = 1, 2


@pytest.fixture
def settings(settings, tmp_path):
    """Ask the aggregator for one more round than the plan has."""
    site = tmp_path / 'site.yaml'
    site.write_text('/**/aggregator:\n  ros__parameters:\n    rounds:\n      rounds: 3\n')
    return replace(settings, parameters=str(site))


def spent(live):
    return {each.hospital: each.epsilon for each in live.heard if isinstance(each, PrivacySpent)}


def level(live, node):
    felt = [each for each in live.heard if isinstance(each, NodeHealth) and each.node == node]
    return felt[-1].level if felt else None


def test_a_restored_hospital_states_its_whole_budget_and_says_why(live):
    layout = live.layout
    play(layout, PLAN.changed({'rounds': {'rounds': 1}}))
    backup = shutil.copytree(layout.party(NAME), layout.directory / 'backup')
    play(layout)
    shutil.rmtree(layout.party(NAME))
    backup.rename(layout.party(NAME))
    live.start()
    live.wait(lambda: level(live, f'/{NAME}/trainer') == ERROR)
    words = live.health(f'/{NAME}/trainer')['summary']
    assert 'has 20 entries and had 40' in words and 'put back the newest ledger' in words
    live.wait(lambda: f'left out {NAME}' in live.health('/federation/aggregator'))
    live.wait(lambda: set(spent(live)) == set(PLAN.hospitals))
    # What the older copy lacks is unknown: it counts as the whole budget.
    others = {name: each for name, each in spent(live).items() if name != NAME}
    assert spent(live)[NAME] == PLAN.privacy.budget > max(others.values())
    stated = {
        e.epsilon for e in live.heard if isinstance(e, HospitalProgress) and e.hospital == NAME
    }
    assert all(math.isnan(each) or each == PLAN.privacy.budget for each in stated)
    assert not live.deaths


def test_an_aggregator_that_paused_by_itself_warns_and_says_why(live):
    with closing(Store(live.layout.state('aggregator'))) as store:
        store.replace((), StandingOrders.pausing(f'no answer came in time from {NAME}'))
    live.start()
    live.wait(lambda: level(live, '/federation/aggregator') == WARN)
    words = live.health('/federation/aggregator')['summary']
    why = f'paused until an operator resumes, since no answer came in time from {NAME}'
    assert words == f'round 1: PAUSED, {why}'


class TestSpentBudgets:
    """A federation whose budgets pay for one round, asked for three."""

    @pytest.fixture
    def directory(self, tmp_path):
        one, two = (cost(rounds) for rounds in (1, 2))
        plan = PLAN.changed({'rounds': {'rounds': 1}, 'privacy': {'budget': (one + two) / 2}})
        with pytest.raises(PrivacyError, match='pays for 1.*: set rounds.rounds to at most 1'):
            prepare(tmp_path / 'federation', plan.changed({'rounds': {'rounds': 3}}))
        assert not (tmp_path / 'federation').exists()
        return prepare(tmp_path / 'federation', plan).directory

    def test_they_end_the_federation_with_the_reason(self, live):
        live.runner.start(federation_graph(live.settings, PLAN.hospitals))
        live.wait(lambda: live.watch.finished, 90.0)
        live.wait(lambda: level(live, '/federation/aggregator') == ERROR)
        words = live.health('/federation/aggregator')['summary']
        assert (
            'the privacy budget does not pay for round 2' in words and 'above the budget' in words
        )
        assert live.policy(1) is not None and live.policy(2) is None
        live.wait(lambda: any(level(live, f'/{name}/trainer') == ERROR for name in PLAN.hospitals))
        assert not live.deaths
        log = (Layout(live.layout.directory).log / 'federation.aggregator.log').read_text()
        assert 'FINISHED, the privacy budget does not pay for round 2' in log


def cost(rounds):
    """Return the epsilon of so many rounds of the plan."""
    patients = PLAN.collection.patients
    counts = RecordCounts(patients, patients)
    mechanism = ChargedMechanism.from_settings(counts, PLAN.learner, PLAN.privacy)
    steps = PLAN.learner.epochs * math.ceil(1.0 / mechanism.rate)
    return epsilon_pld([mechanism.charge(rounds * steps)], PLAN.privacy.delta)
