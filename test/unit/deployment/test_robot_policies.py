# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""For which robot policies are valued: what those that passed their test say of it."""

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot.robot_policies import value_for_robot
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.learner.offsets import offsets_of
from fdrl_ros.selector.candidates.registry import PolicyRegistry
from fdrl_ros.selector.candidates.supervision import Supervision
import numpy as np
import pytest
from support.signed_policies import (
    IDENTITIES,
    model_of,
    report_on,
    ROSTER,
    sign_global,
    sign_own,
    weights,
)

PLAN = Plan().changed({'learner': {'hidden': 4}})
NOTHING = Supervision()
START = PLAN.network.policy(weights(0, PLAN.network))


def off(offset):
    """Return weights that say how far off a hospital's robots are, in scales."""
    offsets = offsets_of(PLAN.network, PLAN.learner, PLAN.spec.names)
    moved, trained = START.weights.copy(), PLAN.network.layout.trained(PLAN.learner.frozen_tensors)
    moved[trained] += offsets.span(moved) @ np.full(offsets.size, offset)
    return moved


@pytest.fixture
def registry():
    return PolicyRegistry(ROSTER, PLAN.network, hospital='hospital_1')


def receive(registry, sender, number, offset, **found):
    """Receive a policy, test it, and value what is to be valued then for the robot."""
    sign = sign_global if sender == 'key_authority' else sign_own
    message = sign(Channel(IDENTITIES[sender], ROSTER, Store()), number, off(offset))
    version = registry.receive(message, 0.0)
    valued_for(registry)
    registry.add_report(version, report_on(version.policy, **found))
    return version


def valued_for(registry, supervision=NOTHING):
    """Return the policies for whose robot all are to be valued."""
    value_for_robot(PLAN, START, registry, supervision)
    registry.use_newer_values(supervision)
    return registry.newer_values.known


def test_policies_are_valued_for_the_robot_that_the_home_policy_says_once_it_is_tested(registry):
    assert valued_for(registry) == () and registry.values.fitted_with, 'it is not off'
    everyone = receive(registry, 'key_authority', 1, 0.0)
    assert valued_for(registry) == (everyone.policy,)
    home = receive(registry, 'hospital_1', 1, 0.5)
    assert registry.newer_values.known == (everyone.policy,), 'untested it says nothing'
    assert valued_for(registry) == (home.policy,)
    bad = receive(registry, 'hospital_1', 2, 2.0, finite=False)
    assert bad.refusal and valued_for(registry) == (home.policy,)


def test_small_steps_stay_with_the_policy_that_values_are_fitted_for(registry):
    known = [receive(registry, 'hospital_1', 1, 0.04).policy]
    for number, offset in enumerate((0.06, 0.13, 0.15, 0.2), 2):
        valued_for(registry)
        known.append(receive(registry, 'hospital_1', number, offset).policy)
    # 0.06 and 0.13 are near 0.04; 0.15 is another robot, and 0.2 is near that.
    assert valued_for(registry) == (known[3],)


def test_where_no_policy_says_it_the_robot_is_taken_for_what_it_was(registry):
    everyone = receive(registry, 'key_authority', 1, 0.0)
    home = receive(registry, 'hospital_1', 1, 0.5)
    assert valued_for(registry) == (home.policy,)
    settings = registry.values.fitted_with
    registry.values.models[home.digest] = model_of(home.policy)
    for vetoed, known in ((['home'], everyone), (['global', 'home'], home), ([], home)):
        supervision = Supervision(vetoed=frozenset(vetoed))
        assert valued_for(registry, supervision) == (known.policy,)
        assert registry.values.fitted_with == settings
