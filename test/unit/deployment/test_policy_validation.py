# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The key authority's test of a policy tells on how many public patients it succeeds."""

from fdrl_ros.deployment.parties.policy_validation import EVERYBODY, PublicValidation
from fdrl_ros.deployment.plan import Plan
import numpy as np
import pytest

PATIENTS = 4


def plan(**federation: object) -> Plan:
    return Plan().changed(
        {
            'federation': federation,
            'validation': {'patients': PATIENTS},
            'world': {'mode': 'kinematic'},
        }
    )


def test_shares_are_of_each_procedure_and_of_everybody():
    made = plan(procedures='reach, palpation')
    weights = np.zeros(made.network.layout.n_parameters, np.float32)
    test = PublicValidation(made, weights)
    found = test(weights)
    assert set(found.shares) == {EVERYBODY, 'reach', 'palpation'}
    counts = {
        name: sum(
            made.population(None).patient(index, 'test').procedure.name == name
            for index in range(PATIENTS)
        )
        for name in ('reach', 'palpation')
    }
    whole = sum(found.shares[name] * count for name, count in counts.items()) / PATIENTS
    assert found.shares[EVERYBODY] == pytest.approx(whole) == test.success(weights)
    assert found.passed and f'{found.shares[EVERYBODY]:.0%} of the public' in found.reason


def test_a_task_without_procedures_has_the_share_of_everybody_alone():
    made = Plan({'federation': {'task': 'cartpole'}}).changed({'validation': {'patients': 2}})
    weights = np.zeros(made.network.layout.n_parameters, np.float32)
    assert set(PublicValidation(made, weights).shares(weights)) == {EVERYBODY}
