# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What all parties of a federation encrypt by, with the limit that follows from its other terms.

Plan, roster and public start are the same for all, so all derive the same number. The key
authority announces it, and each hospital compares it with its own.
"""

from collections.abc import Collection
from dataclasses import replace
import logging
from pathlib import Path

from fdrl_ros.crypto.he.schemes import EncryptionSettings, projections_of, STATED_LIMIT
from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.errors import SettingError
from fdrl_ros.federation.protocol.update_codec import UpdateCodec
from fdrl_ros.learner.privacy_cost import ChargedMechanism, RecordCounts
from fdrl_ros.learner.update_bound import update_bound, UpdateBound
from fdrl_ros.policy.layout import TensorLayout
import numpy as np

log = logging.getLogger(__name__)

_LOOSE = 100.0  # times what an honest update reaches; a stated limit beyond that is warned of


def agreed_encryption(plan: Plan, n_max: int, start: Path) -> EncryptionSettings:
    """
    Return the encryption settings of a plan, with limit, norm and projections as numbers.

    It loads the world if the plan learns offsets of inputs and leaves the limit to be derived.

    :param n_max: how many records the largest hospital declares.
    :param start: file of the public starting policy.
    :raises SettingError: if the learner's changes are beyond all numbers.
    :raises PrivacyError: if the largest hospital could not train by the plan.
    :raises PolicyError: if the file cannot be read.
    """
    chosen, layout = plan.encryption, plan.network.layout
    trained = layout.trained(plan.learner.frozen_tensors)
    projections = projections_of(chosen, int(_travels(trained, plan, layout).sum()))
    chosen = replace(chosen, projections=projections)
    if chosen.limit:
        return chosen
    bound = bound_of_round(plan, n_max, start)
    if bound is None:
        return replace(chosen, limit=STATED_LIMIT)
    norm = chosen.norm or (bound.norm_limit if projections else 0.0)
    return replace(chosen, limit=bound.limit, norm=norm)


def check_sums(plan: Plan, roster: Roster) -> None:
    """
    Refuse a roster by which other hospitals are summed together than by the plan.

    :raises SettingError: if so: more or less of an update is seen than its hospital agreed to.
    """
    if roster.buckets != plan.federation.buckets:
        expected = f'{roster.buckets}, which the roster says: each bucket has a sum of its own'
        raise SettingError('federation.buckets', plan.federation.buckets, expected)


def check_encryption(plan: Plan, sizes: Collection[int], start: Path) -> None:
    """
    Refuse encryption by which rounds could not be done, or would cost privacy and teach nothing.

    It warns where an honest update may be clipped or scaled down, and of limits far beyond one.

    :param sizes: n_i that each hospital declares.
    :raises SettingError: if rounding to whole steps leaves nothing of an honest update.
    :raises CryptoError: if no parameters of the scheme have room for the updates.
    """
    n_max, stated = max(sizes), plan.encryption
    agreed = agreed_encryption(plan, n_max, start)
    quantisation = UpdateCodec.agree(
        plan.network.layout.shared(plan.federation.personal_layers).size,
        len(sizes),
        agreed.bits,
        agreed.limit,
        agreed.scheme,
        norm=agreed.norm,
        projections=agreed.projections,
    ).quantisation
    step = quantisation.step
    if 0.0 < stated.norm < step:
        words = f'0, or at least {step:.3g}: a number of an update is rounded to steps of that'
        raise SettingError('encryption.norm', stated.norm, words)
    if not (stated.limit or stated.norm):
        return
    try:
        bound = bound_of_round(plan, n_max, start)
    except SettingError:
        return  # the learner's changes are beyond all numbers, and a limit is stated
    if bound is None or not bound.per_weight:
        return
    if bound.per_weight < step:
        most = bound.per_weight * quantisation.levels / 2
        words = (
            f'at most {most:.3g}: an honest hospital changes a weight by at most '
            f'{bound.per_weight:.3g}, and {agreed.bits} bits round that to steps of {step:.3g}'
        )
        raise SettingError('encryption.limit', stated.limit, words)
    for name, value, most in (
        ('limit', stated.limit, bound.limit),
        ('norm', stated.norm, bound.norm_limit),
    ):
        if 0.0 < value < most:
            words = 'encryption.%s %g cuts honest updates, which may reach %g by plan and roster'
            log.warning(words, name, value, most)
        elif value > _LOOSE * most:
            words = (
                'encryption.%s %g lets a liar move a sum that far; honest updates reach at most '
                '%g by plan and roster'
            )
            log.warning(words, name, value, most)


def _travels(trained: np.ndarray, plan: Plan, layout: TensorLayout) -> np.ndarray:
    """Return of each trained weight whether hospitals send it."""
    return np.isin(trained, layout.shared(plan.federation.personal_layers))


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
    travels = _travels(trained, plan, saved.layout)
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
