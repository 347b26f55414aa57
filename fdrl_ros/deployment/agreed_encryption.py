# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What all parties of a federation encrypt by, with the limit that follows from its other terms.

Plan, roster and public start are the same for all, so all derive the same number. The key
authority announces it, and each hospital compares it with its own.
"""

from dataclasses import replace
from pathlib import Path

from fdrl_ros.crypto.he.schemes import EncryptionSettings, projections_of, STATED_LIMIT
from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.learner.privacy_cost import ChargedMechanism, RecordCounts
from fdrl_ros.learner.update_bound import update_bound, UpdateBound
import numpy as np


def agreed_encryption(plan: Plan, roster: Roster, start: Path) -> EncryptionSettings:
    """
    Return the encryption settings of a plan, with limit, norm and projections as numbers.

    It loads the world if the plan learns offsets of inputs and leaves the limit to be derived.

    :param roster: for how many records its largest hospital declares.
    :param start: file of the public starting policy.
    :raises SettingError: if the learner's changes are beyond all numbers.
    :raises PrivacyError: if the largest hospital could not train by the plan.
    :raises PolicyError: if the file cannot be read.
    """
    chosen, layout = plan.encryption, plan.network.layout
    trained = np.isin(
        layout.trained(plan.learner.frozen_tensors), layout.shared(plan.federation.personal_layers)
    )
    projections = projections_of(chosen, int(trained.sum()))
    chosen = replace(chosen, projections=projections)
    if chosen.limit:
        return chosen
    bound = bound_of_round(plan, roster.n_max, start)
    if bound is None:
        return replace(chosen, limit=STATED_LIMIT)
    return replace(chosen, limit=bound.limit, norm=chosen.norm or bound.norm_limit)


def loads_world(plan: Plan) -> bool:
    """Return whether :func:`agreed_encryption` loads the world."""
    return not plan.encryption.limit and bool(plan.learner.offsets)


def bound_of_round(plan: Plan, patients: int, start: Path) -> UpdateBound | None:
    """
    Bound what an honest hospital changes in a round; None if the number of steps is not public.

    That is so where a transition is the privacy unit: a hospital's number of transitions is no
    part of plan or roster.

    :param patients: n_max, by which updates are weighed: a smaller hospital takes fewer steps, and
        its weight is smaller.
    :raises SettingError: if the bound is beyond all numbers.
    :raises PrivacyError: if so many patients cannot be trained on by the plan.
    """
    learner, privacy = plan.learner, plan.privacy
    if privacy.unit == 'transition':
        return None
    saved = load_policy(start)
    trained = saved.layout.trained(learner.frozen_tensors)
    travels = np.isin(trained, saved.layout.shared(plan.federation.personal_layers))
    span = None
    if learner.offsets:
        from fdrl_ros.learner.offsets import InputOffsets  # loads Gymnasium

        offsets = InputOffsets(plan.network, learner, plan.spec.names)
        span = offsets.span(saved.weights)[travels]
    mechanism = ChargedMechanism.from_settings(RecordCounts(patients, patients), learner, privacy)
    return update_bound(
        learner,
        privacy,
        weights=int(travels.sum()),
        steps=learner.epochs * mechanism.steps_of_epoch,
        records=round(mechanism.batch / mechanism.rate),
        span=span,
    )
