# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A federation's directory: what lies where, and how it is made ready.

Preparing is idempotent: what exists is kept, what an interruption left half done is done again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
import os
from pathlib import Path
import time
from typing import Any
from zipfile import BadZipFile

from fdrl_ros.crypto.keys.commit import reading
from fdrl_ros.crypto.keys.keystore import (
    check_opens,
    HE_FILE,
    KEY_FILE,
    load_identity,
    load_passphrase,
    load_root_public,
    make_federation,
    make_private_directory,
    ROOT_FILE,
    ROSTER_FILE,
)
from fdrl_ros.crypto.keys.roster import remember_roster, Roster, ROSTER_MEMORY, SERVERS
from fdrl_ros.crypto.keys.sealed_key import Passphrase
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.deployment.bringup import PLAN_FILE
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import KeyFileError, PolicyError, SettingError, StoreError
from fdrl_ros.learner.guarantee import check_rounds, Size
from fdrl_ros.learner.pretraining import pretrain_public
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.table import dqn_of
from fdrl_ros.policy import decode_weights, encode_weights, NetworkShape
import numpy as np

ROBOTS = ('robot_1',)
FREE_GROUPS = ('rounds', 'selector', 'shield', 'value', 'safety', 'evaluation')
"""Settings that a directory may change later: nothing that is kept depends on them."""

Progress = Callable[[str, int, int], None]
"""What is under way, and how many of how many are done."""


@dataclass(frozen=True)
class Layout:
    """
    Paths below a federation's directory.

    :param passphrase_file: file with the passphrase of the keys; the one that the variable
        FDRL_PASSPHRASE_FILE names, if None.
    """

    directory: Path
    passphrase_file: Path | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the passphrase out of what goes to another process."""
        return {'directory': self.directory, 'passphrase_file': self.passphrase_file}

    @cached_property
    def passphrase(self) -> Passphrase | None:
        """The passphrase of the keys, read once; None where they are in clear."""
        return load_passphrase(self.passphrase_file)

    @property
    def plan(self) -> Path:
        """The plan that the directory was prepared for."""
        return self.directory / PLAN_FILE

    @property
    def keys(self) -> Path:
        """Keys of all parties and the signed roster."""
        return self.directory / 'keys'

    @property
    def pretrained(self) -> Path:
        """The public starting policy."""
        return self.directory / 'pretrained.npz'

    @property
    def log(self) -> Path:
        """Log files, one a node."""
        return self.directory / 'log'

    def party(self, name: str) -> Path:
        """Return the directory of a hospital, server or robot."""
        return self.directory / name

    def records(self, name: str) -> Path:
        """Return the file of a hospital's records."""
        return self.party(name) / 'records.npz'

    def state(self, name: str) -> Path:
        """Return the file of what a party must not forget."""
        return self.party(name) / 'state.sqlite'

    @property
    def he_key(self) -> Path:
        """The key authority's secret key of the homomorphic encryption."""
        return self.keys / 'key_authority' / HE_FILE

    def roster(self) -> Roster:
        """
        Read the roster and check it against the root's public key beside it.

        :raises RosterError: if the root did not sign it.
        """
        with reading(self.keys):
            return Roster.load(self.keys / ROSTER_FILE, load_root_public(self.keys / ROOT_FILE))

    def trusted_roster(self, name: str) -> Roster:
        """
        Read the roster as a party or robot that is going to act by it.

        :param name: whose memory tells which roster was the newest.
        :raises RosterTimeError: if it is not valid by this host's clock.
        :raises RosterRollbackError: if it is older than one that was used here.
        :raises RosterError: if the root did not sign it.
        """
        roster = self.roster()
        roster.check_time(time.time())
        remember_roster(self.party(name) / ROSTER_MEMORY, roster)
        return roster

    def credentials(self, name: str) -> tuple[Identity, Roster]:
        """
        Read a party's key, and the roster by which it acts.

        :raises RosterError: as :meth:`trusted_roster`, or if the party is not in it.
        :raises PassphraseError: if the passphrase is missing, wrong, or not needed.
        :raises KeyFileError: if the key is missing, damaged, or not that of the roster.
        """
        with reading(self.keys):
            roster = self.trusted_roster(name)
            member, path = roster.member(name), self.keys / name / KEY_FILE
            identity = load_identity(path, name, passphrase=self.passphrase)
        if identity.public != member.public:
            raise KeyFileError(
                f'roster {roster.serial} holds another key of {name} than {path}: one of the two '
                f'is older; fetch both from who holds the root'
            )
        return identity, roster


def save_policy(path: Path, weights: np.ndarray, shape: NetworkShape) -> None:
    """
    Write weights and the shape of their network atomically, as npz.

    :raises StoreError: if the file cannot be written.
    """
    part = path.with_name(path.name + '.part')
    try:
        with part.open('wb') as file:
            np.savez(
                file,
                weights=np.frombuffer(encode_weights(weights), '<f4'),
                states=np.int64(shape.states),
                actions=np.int64(shape.actions),
                hidden=np.array(shape.hidden, dtype=np.int64),
            )
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise StoreError(f'cannot write the policy {path}: {error.strerror}') from error


def load_policy(path: Path) -> tuple[np.ndarray, NetworkShape]:
    """
    Read what :func:`save_policy` wrote.

    :returns: weights, shape (n_parameters,), float32, and the network.
    :raises PolicyError: if the file is missing, damaged, or contradicts itself.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            shape = NetworkShape(
                int(file['states']), int(file['actions']), tuple(map(int, file['hidden']))
            )
            data = file['weights'].astype('<f4').tobytes()
    except OSError as error:
        raise PolicyError(f'cannot read the policy {path}: {error.strerror or error}') from error
    except (KeyError, ValueError, TypeError, EOFError, BadZipFile) as error:
        raise PolicyError(
            f'{path} is no policy file, or damaged: expected one such as policies/global_6.npz '
            'of a run'
        ) from error
    return decode_weights(data, shape.n_parameters), shape


def prepare(
    directory: Path,
    plan: Plan,
    *,
    progress: Progress = lambda what, done, count: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Layout:
    """
    Make a directory ready for every party: plan, keys, directories, public starting policy.

    :param progress: told what is made.
    :raises PrivacyError: if the budget of a hospital does not pay for all rounds of this plan, or
        it could not train by it; nothing is made then.
    :raises SettingError: if the quorum is more than all hospitals.
    :raises StoreError: if the directory was prepared for another plan.
    :raises RosterError: if the roster is not valid now.
    :raises PassphraseError: if the passphrase of the keys is missing, wrong, or not needed.
    :raises KeyFileError: if it cannot be made, or others may enter it.
    :raises TrainingStopped: as soon as `stopped` says so.
    """
    layout = Layout(directory)
    passphrase = layout.passphrase
    if layout.keys.exists():
        check_keys(layout)
    check_plan(plan, layout)
    make_private_directory(directory)
    _keep_plan(layout, plan)
    _make_keys(layout, plan, passphrase)
    for name in (*plan.hospitals, *SERVERS, *ROBOTS):
        make_private_directory(layout.party(name))
    make_private_directory(layout.log)
    if not layout.pretrained.exists():
        weights = pretrain_public(
            plan.public_cohort(),
            plan.shape,
            plan.pretraining,
            plan.collection,
            plan.world,
            seed=plan.federation.seed,
            progress=progress,
            stopped=stopped,
        )
        save_policy(layout.pretrained, weights, plan.shape)
    return layout


def check_plan(
    plan: Plan, layout: Layout | None, own: Mapping[str, Records] | None = None
) -> None:
    """
    Refuse a plan that a hospital would refuse only after it collected its patients.

    :param layout: of the federation that the plan is for; None for a new one.
    :param own: records that hospitals bring along, by the name of the hospital.
    :raises PrivacyError: if the budget of a hospital does not pay for all rounds of this plan, or
        it could not train by it, or the compiled arithmetic is not built.
    :raises SettingError: if the quorum is more than all hospitals.
    """
    if plan.privacy.noise_multiplier:
        dqn_of(plan.shape, plan.learner, None).check_private()
    known = layout is not None and layout.keys.exists()
    count = len(layout.roster().hospitals if layout and known else plan.hospitals)
    if plan.rounds.quorum > count:
        raise SettingError('rounds.quorum', plan.rounds.quorum, f'at most {count} hospitals')
    patients = plan.collection.patients
    for name in plan.hospitals:
        size: Size | Records = Size(patients, patients, plan.privacy.most_transitions)
        if own and name in own:
            size = own[name]
        elif layout and layout.records(name).exists():
            size = Records.load(layout.records(name), plan.shape.states)
        elif 'transition' in (plan.privacy.unit, plan.privacy.clipped):
            continue  # how many transitions there will be, nobody knows yet
        check_rounds(plan.learner, plan.privacy, size, plan.rounds.rounds)


def _keep_plan(layout: Layout, plan: Plan) -> None:
    """Write the plan, or refuse one that contradicts what the directory was prepared for."""
    if layout.plan.exists():
        before, now = Plan.load(layout.plan).to_mapping(), plan.to_mapping()
        changed = [
            f'{group}.{name}'
            for group, named in now.items()
            for name, value in named.items()
            if before[group][name] != value and group not in FREE_GROUPS
        ]
        if changed:
            raise StoreError(
                f'{layout.directory} was prepared with other settings ({", ".join(changed)}): '
                'take those again, or another directory'
            )
    part = layout.plan.with_name('plan.yaml.part')
    part.write_text(plan.to_yaml(), 'utf-8')
    part.replace(layout.plan)


def check_keys(layout: Layout) -> None:
    """
    Refuse now what some party on this host would refuse when it starts.

    :raises RosterError: if the roster is not signed, or not valid now.
    :raises PassphraseError: if the passphrase is missing, wrong, or not needed.
    :raises KeyFileError: if a key is damaged or open to others.
    """
    with reading(layout.keys):
        roster = layout.roster()
        roster.check_time(time.time())
        for member in roster.members:
            path = layout.keys / member.name / KEY_FILE
            if member.role != 'operator' and path.exists():
                check_opens(path, layout.passphrase)
        if layout.he_key.exists():
            check_opens(layout.he_key, layout.passphrase)


def taking_part(layout: Layout, plan: Plan) -> tuple[str, ...]:
    """
    Return the hospitals of the roster that run here, in its order.

    They are those of the plan that were not revoked, and those admitted since that have records.
    """
    named = [each.name for each in layout.roster().hospitals]
    return tuple(name for name in named if name in plan.hospitals or layout.records(name).exists())


def _make_keys(layout: Layout, plan: Plan, passphrase: Passphrase | None) -> None:
    """Make all keys in one step, so that an interruption leaves none."""
    if layout.keys.exists():
        return
    names = plan.hospitals
    sizes = dict.fromkeys(names, plan.collection.patients)
    brought = [name for name in names if layout.records(name).exists()]
    for name in brought:
        sizes[name] = Records.load(layout.records(name), plan.shape.states).n_patients
    # Simulated hospitals draw from streams of their own: no patient is in two of them. Of records
    # that came from elsewhere nobody knows.
    make_federation(
        layout.keys,
        names,
        sizes=sizes,
        disjoint_patients=not brought,
        passphrase=passphrase,
    )
