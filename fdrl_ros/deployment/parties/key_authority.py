# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Put the key authority together, with its secret key of the homomorphic encryption."""

from collections.abc import Callable
import logging
from typing import Any

from fdrl_ros.crypto.he.encryption import SecretContext
from fdrl_ros.crypto.he.schemes import AnyScheme, choose_scheme, EncryptionSettings
from fdrl_ros.crypto.keys.he_key import he_bytes, load_he
from fdrl_ros.crypto.keys.transaction import reading, transaction
from fdrl_ros.deployment.agreed_encryption import agreed_encryption, check_sums, loads_world
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.parties.channel import open_channel
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.federation.key_authority.key_authority import KeyAuthority, KeyAuthoritySettings
from fdrl_ros.federation.key_authority.server_step import ServerStep
from fdrl_ros.federation.key_authority.state import KeyAuthorityState, Validation
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.runtime.references import load_reference
from fdrl_ros.runtime.subprocess_runner import run_elsewhere
import numpy as np
from numpy.typing import NDArray

log = logging.getLogger(__name__)

VALIDATION = 'fdrl_ros.deployment.parties.policy_validation:PublicValidation'
"""The test of a new policy, which loads the world that it tests in."""

Validate = Callable[[NDArray[np.float32]], Validation]
"""Tests the weights of a new policy before it is released."""


def derive_encryption(
    layout: Layout, plan: Plan, stopped: Callable[[], bool]
) -> EncryptionSettings:
    """
    Derive what all encrypt by, in another process if that loads the world.

    :raises TrainingStopped: as soon as `stopped` says so.
    """
    given = plan, layout.roster().n_max, layout.pretrained
    if loads_world(plan):
        derived: EncryptionSettings = run_elsewhere(agreed_encryption, given, stopped)
        return derived
    return agreed_encryption(*given)


def make_here(place: str, *arguments: object) -> Callable[..., Any]:
    """Make a callable object of a reference `module:Class` in this process."""
    made: Callable[..., Any] = load_reference(place)(*arguments)  # type: ignore[operator]
    return made


def open_key_authority(
    layout: Layout,
    plan: Plan,
    store: Store,
    *,
    validate: Validate,
    encryption: EncryptionSettings | None = None,
    step: ServerStep | None = None,
) -> KeyAuthority:
    """
    Put the key authority together; it makes its secret key on the first call.

    :param validate: test of a new policy, such as
        :class:`fdrl_ros.deployment.parties.policy_validation.PublicValidation`.
    :param encryption: of :func:`fdrl_ros.deployment.agreed_encryption.agreed_encryption`, which is
        called unless it is given.
    :param step: the server's step; that of :func:`server_step` unless given.
    """
    saved = load_policy(layout.pretrained)
    start = saved.weights
    channel = open_channel(layout, 'key_authority', store)
    check_sums(plan, channel.roster)
    personal = plan.federation.personal_layers
    chosen = encryption or agreed_encryption(plan, channel.roster.n_max, layout.pretrained)
    log.info(
        'a weight changes by at most %g in a round, or is clipped; %d projections bound the norm '
        'of an update, of at most %g',
        chosen.limit,
        chosen.projections,
        chosen.norm,
    )
    scheme = choose_scheme(
        saved.layout.shared(personal).size,
        len(channel.roster.hospitals),
        chosen.bits,
        chosen.scheme,
        projected=chosen.projections > 0,
    )
    if scheme.dishonest_warning:
        log.warning('%s: %s', scheme.kind.upper(), scheme.dishonest_warning)
    return KeyAuthority(
        channel,
        store,
        saved.layout,
        start,
        open_secret_context(layout, scheme, KeyAuthorityState(store, start).record.round),
        KeyAuthoritySettings(
            chosen,
            validate=validate,
            personal=personal,
            step=step or server_step(plan, start),
            combine=plan.server.combine,
            test_buckets=plan.validation.each_bucket,
        ),
    )


def server_step(
    plan: Plan, start: NDArray[np.float32], make: Callable[..., Callable[..., Any]] = make_here
) -> ServerStep:
    """
    Return the server's step of a plan: its task's, or that of its settings `server`.

    :param start: weights of the public start, shape (n_parameters,).
    :param make: makes the object, here or elsewhere; see :func:`make_here`.
    :raises PluginError: if the task's step cannot be loaded.
    """
    place = plan.server_step
    if not place:
        return plan.server.step()
    return make(place, plan.federation, plan.world, plan.network, start)


def open_secret_context(layout: Layout, scheme: AnyScheme, after_round: int = 0) -> SecretContext:
    """
    Read the secret key of the homomorphic encryption, or draw one for this scheme.

    A key of another scheme is of no use any more, as when hospitals were admitted or revoked; so
    is one of CKKS that has served as many rounds as its flooding allows. It is erased then, and
    the log says so.

    :param after_round: the newest round that was released.
    :raises PassphraseError: if the passphrase is missing, wrong, or not needed.
    :raises KeyFileError: if the file is damaged or open to others, or cannot be written.
    """
    path, reason = layout.he_key, 'there is none yet'
    with reading(layout.keys):
        found = load_he(path, passphrase=layout.passphrase) if path.exists() else None
    if found is not None:
        secret, since = found
        served = after_round - since
        if secret.scheme != scheme:
            reason = f'the old one is of {secret.scheme}'
        elif served >= scheme.most_rounds:
            reason = f'the old one has served {served} rounds'
        else:
            return secret
    secret = SecretContext.generate(scheme)
    with transaction(layout.keys) as changes:
        name = str(path.relative_to(layout.keys))
        changes.write(name, he_bytes(secret, layout.passphrase, after_round=after_round))
    level = logging.INFO if found is None else logging.WARNING
    log.log(level, 'drew a secret key of %s: %s', scheme, reason)
    return secret
