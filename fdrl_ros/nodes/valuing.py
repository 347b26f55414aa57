# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Value models for the selector: from the robot's directory, or fitted in a process of its own."""

from collections.abc import Callable
import hashlib
import multiprocessing
from multiprocessing.connection import Connection
import os
from pathlib import Path

from fdrl_ros.errors import FdrlError, PolicyError
from fdrl_ros.plan import Plan
from fdrl_ros.policy import Policy
from fdrl_ros.selector import HOLD, ValueModel
from fdrl_ros.trainer.learner import TrainingStopped
from fdrl_ros.valuation import fit_public_value


def value_model(
    policy: Policy | None,
    plan: Plan,
    lead_in: Policy,
    directory: Path,
    stopped: Callable[[], bool],
) -> ValueModel:
    """
    Return the estimate of a policy's return.

    A second process does the fitting, so that the control loop keeps its 100 Hz.

    :param policy: None holds.
    :param lead_in: the public start, as :func:`fdrl_ros.valuation.public_experience` takes it.
    :param directory: where models are kept, by the digest of their policy and of what they were
        fitted with.
    :raises TrainingStopped: as soon as `stopped` says so.
    :raises FdrlError: if the process ends without a model.
    """
    digest = HOLD if policy is None else policy.digest.hex()
    made_with = (plan.value, plan.federation.seed, plan.federation.names, plan.world)
    marks = hashlib.sha256(repr((made_with, lead_in.digest)).encode()).hexdigest()
    path = directory / f'value_{digest[:16]}_{marks[:16]}.npz'
    if path.exists():
        try:
            return ValueModel.from_bytes(path.read_bytes(), digest)
        except PolicyError:
            path.unlink()
    data = _fit_elsewhere(policy, plan, lead_in, stopped)
    model = ValueModel.from_bytes(data, digest)
    part = path.with_name(path.name + '.part')
    part.write_bytes(data)
    part.replace(path)
    return model


def _fit_elsewhere(
    policy: Policy | None, plan: Plan, lead_in: Policy, stopped: Callable[[], bool]
) -> bytes:
    context = multiprocessing.get_context('spawn')
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_fit, args=(policy, plan, lead_in, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        while not ours.poll(0.2):
            if stopped():
                raise TrainingStopped('the selector stopped before a policy was valued')
            if not process.is_alive() and not ours.poll():
                raise FdrlError(f'valuing a policy ended with exit code {process.exitcode}')
        data: bytes = ours.recv_bytes()
        return data
    except EOFError:
        process.join()
        raise FdrlError(f'valuing a policy ended with exit code {process.exitcode}') from None
    finally:
        process.terminate()
        process.join()
        ours.close()


def _fit(policy: Policy | None, plan: Plan, lead_in: Policy, out: Connection) -> None:
    """Run in the other process, below the control loop's priority."""
    os.nice(5)
    out.send_bytes(fit_public_value(policy, plan, lead_in).to_bytes())
