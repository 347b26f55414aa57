# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Value models of a run, kept in files so that an interrupted study fits none twice."""

from collections.abc import Mapping
from pathlib import Path

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot.public_value import fitted_with, PublicValuation
from fdrl_ros.errors import os_errors_as, PolicyError, StoreError
from fdrl_ros.policy import Policy
from fdrl_ros.runtime.durable import replacing
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.selector import HOLD, ValueModel


def value_models(
    folder: Path,
    policies: Mapping[str, Policy | None],
    plan: Plan,
    start: Policy,
    who: str = 'models',
    caller: Caller = NOBODY,
) -> dict[str, ValueModel]:
    """
    Return the value model of every candidate; fit and keep those that are missing.

    :param folder: where they are kept, under what they are of and were fitted with.
    :param policies: by name; None stays where it is. They tell how far robots may be off.
    :param start: the public start, who operates before the hand-over.
    :param who: in progress, of which the caller is told how many of how many are there.
    :returns: by name, in the same order.
    :raises TrainingStopped: as soon as the caller says so.
    :raises StoreError: if one cannot be written.
    """
    found: dict[str, ValueModel] = {}
    known = [each for each in policies.values() if each is not None]
    settings = fitted_with(plan, start, known)
    for name, policy in policies.items():
        digest = HOLD if policy is None else policy.digest.hex()
        path = folder / f'{name}_{digest[:16]}_{settings[:16]}.npz'
        model = _read(path, digest)
        if model is None:
            valuation = PublicValuation(plan, start, caller.stopped, known=known)
            model = valuation.value_model(policy)
            _write(path, model)
        found[name] = model
        caller.counter('value', who)(len(found), len(policies))
    return found


def _read(path: Path, digest: str) -> ValueModel | None:
    """Return the model in a file; None if there is no whole one of that policy."""
    try:
        return ValueModel.from_bytes(path.read_bytes(), digest)
    except (OSError, PolicyError):
        return None


def _write(path: Path, model: ValueModel) -> None:
    with os_errors_as(StoreError, f'cannot write {path}'):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(model.to_bytes())
