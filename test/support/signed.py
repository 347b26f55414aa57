# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Policies as the key authority and the hospitals of a prepared directory sign them."""

from pathlib import Path

from fdrl_ros.crypto.keys.keystore import KEY_FILE, load_identity
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.message import GlobalPolicy, HospitalPolicy
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.policy import digest_of, encode_weights
import numpy as np


def drawn(directory: Path, seed: int) -> np.ndarray:
    """Return the public start, or with a seed one that is near it."""
    weights, _ = load_policy(Layout(directory).pretrained)
    if not seed:
        return weights
    factors = 1.0 + 0.01 * np.random.default_rng(seed).normal(size=weights.shape)
    near: np.ndarray = (weights * factors).astype(np.float32)
    return near


def channel(directory: Path, name: str) -> Channel:
    """Speak as one of the parties."""
    layout = Layout(directory)
    identity = load_identity(layout.keys / name / KEY_FILE, name)
    return Channel(identity, layout.roster(), Store())


def global_policy(directory: Path, number: int = 0, seed: int = 0) -> GlobalPolicy:
    """Return the federation's policy of a round."""
    weights = drawn(directory, seed)
    return channel(directory, 'key_authority').sign(
        GlobalPolicy,
        number,
        0,
        weights=encode_weights(weights),
        digest=digest_of(weights),
        contributors=(),
        update_hashes=b'',
        rolled_back=False,
        secure=False,
        reason='for a test',
    )


def own_policy(directory: Path, name: str, seed: int) -> HospitalPolicy:
    """Return a hospital's own policy."""
    weights = drawn(directory, seed)
    return channel(directory, name).sign(
        HospitalPolicy,
        1,
        0,
        weights=encode_weights(weights),
        digest=digest_of(weights),
        unit='patient',
        epsilon=1.0,
        delta=1e-4,
        secure=False,
    )
