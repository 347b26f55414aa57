# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Policies as their senders sign them: with keys of the test's own, or of a directory."""

from pathlib import Path
from typing import Any

from fdrl_ros.crypto.keys.keystore import (
    KEY_FILE,
    load_identity,
    make_federation,
    NewFederation,
)
from fdrl_ros.crypto.keys.roster import Member, Roster
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy, save_policy
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.message import GlobalPolicy, HospitalPolicy
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.policy import digest_of, encode_weights, NetworkShape, Policy
from fdrl_ros.runtime.durable import make_private_directory
from fdrl_ros.selector import Experience, fit_value, ValueModel, ValueSettings
from fdrl_ros.selector.candidates.safety_limits import SafetyReport
import numpy as np

SMALL = ValueSettings(features=8, groups=4)
SHAPE = NetworkShape(18, 15, (4,))
NAMES = ('hospital_1', 'hospital_2', 'hospital_3', 'aggregator', 'key_authority')
IDENTITIES = {name: Identity.generate(name) for name in NAMES}


def roster_of(identities: dict[str, Identity], name: str = 'test') -> Roster:
    """Return a roster of these keys."""
    members = tuple(
        Member(each, 'hospital', identities[each].public, 10)
        if each.startswith('hospital')
        else Member(each, each, identities[each].public)
        for each in NAMES
    )
    return Roster(name, 3, members, True)


ROSTER = roster_of(IDENTITIES)


def weights(seed: int, shape: NetworkShape = SHAPE) -> np.ndarray:
    """Draw weights."""
    return np.random.default_rng(seed).normal(size=shape.n_parameters).astype(np.float32)


def sign_global(channel: Channel, number: int, drawn: np.ndarray, **changes: Any) -> GlobalPolicy:
    """Return the federation's policy of a round."""
    fields = {
        'weights': encode_weights(drawn),
        'digest': digest_of(drawn),
        'contributors': (),
        'updates_root': b'',
        'rolled_back': False,
        'secure': True,
        'reason': '',
    }
    return channel.sign(GlobalPolicy, number, 1, **(fields | changes))


def sign_own(
    channel: Channel, number: int, drawn: np.ndarray, *, secure: bool = True
) -> HospitalPolicy:
    """Return a hospital's own policy."""
    return channel.sign(
        HospitalPolicy,
        number,
        1,
        weights=encode_weights(drawn),
        digest=digest_of(drawn),
        unit='patient',
        epsilon=1.0,
        delta=1e-4,
        secure=secure,
    )


def released(
    seed: int,
    number: int,
    sender: str = 'key_authority',
    shape: NetworkShape = SHAPE,
    **changes: Any,
) -> GlobalPolicy:
    """Return a policy of the federation, released after a round."""
    channel = Channel(IDENTITIES[sender], ROSTER, Store())
    return sign_global(channel, number, weights(seed, shape), **changes)


def own(seed: int, sender: str, number: int = 1) -> HospitalPolicy:
    """Return a hospital's own policy."""
    return sign_own(Channel(IDENTITIES[sender], ROSTER, Store()), number, weights(seed))


# Policies of a prepared directory, with its keys.


def channel(directory: Path, name: str) -> Channel:
    """Return the channel of one of the parties."""
    layout = Layout(directory)
    identity = load_identity(layout.keys / name / KEY_FILE, name)
    return Channel(identity, layout.roster(), Store())


def near_start(directory: Path, seed: int) -> np.ndarray:
    """Return the public start, or with a seed weights that are near it."""
    start = load_policy(Layout(directory).pretrained).weights
    factors = 1.0 + 0.01 * np.random.default_rng(seed).normal(size=start.shape) * bool(seed)
    near: np.ndarray = (start * factors).astype(np.float32)
    return near


def global_policy(directory: Path, number: int = 0, seed: int = 0) -> GlobalPolicy:
    """Return the federation's policy of a round."""
    sender, drawn = channel(directory, 'key_authority'), near_start(directory, seed)
    return sign_global(sender, number, drawn, secure=False, reason='for a test')


def own_policy(directory: Path, name: str, seed: int) -> HospitalPolicy:
    """Return a hospital's own policy."""
    return sign_own(channel(directory, name), 1, near_start(directory, seed), secure=False)


def model_of(policy: Policy) -> ValueModel:
    """Fit a value model to noise."""
    rng = np.random.default_rng(0)
    states, cases = rng.normal(size=(60, 18)), np.repeat(np.arange(12), 5)
    known = Experience(states, rng.normal(size=60), np.zeros(60), cases)
    return ValueModel(policy.digest.hex(), {'palpation': fit_value(known, SMALL)})


def report_on(policy: Policy, **changes: Any) -> SafetyReport:
    """Return the report of a policy that passed, but for the changes."""
    fields: dict[str, Any] = {
        'policy': policy.digest.hex(),
        'basis': '',
        'frozen': '',
        'states': 10,
        'finite': True,
        'force_share': 0.0,
        'workspace_share': 0.0,
        'one_action_share': 0.5,
        'patients': 16,
        'mean_return': 1.0,
        'hold_return': 0.0,
        'success_share': 1.0,
        'force_failures': 0.0,
    }
    return SafetyReport(**(fields | changes))


def robot_directory(directory: Path, plan: Plan) -> Layout:
    """Prepare keys, a public start, and a robot that has no policy yet."""
    layout = Layout(directory)
    make_private_directory(layout.directory)
    layout.plan.write_text(plan.to_yaml())
    make_federation(layout.keys, NewFederation(dict.fromkeys(plan.hospitals, 10)))
    save_policy(layout.pretrained, weights(0, plan.network), plan)
    make_private_directory(layout.party('robot_1'))
    return layout
