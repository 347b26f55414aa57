# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The policies that a robot may choose from: each checked, tested, valued, then taken at once."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.errors import MessageError, PolicyError, RoundError, SupervisionError
from fdrl_ros.federation.protocol.channel import check_signed
from fdrl_ros.federation.protocol.message import GlobalPolicy, HospitalPolicy
from fdrl_ros.policy import decode_weights, Policy
from fdrl_ros.policy.network import Network
from fdrl_ros.selector.candidates.candidate import Candidate, GLOBAL, HOLD, HOME
from fdrl_ros.selector.candidates.decision_time import DecisionTime
from fdrl_ros.selector.candidates.safety_limits import SafetyReport, SafetySettings
from fdrl_ros.selector.candidates.supervision import Supervision
from fdrl_ros.selector.value.model import ValueModel

FEDERATION = 'federation'
"""Owner of the federated policy."""

KEPT_VERSIONS = 3
"""Versions of each name that are kept, so that one can be pinned."""

Released = GlobalPolicy | HospitalPolicy


def name_of(message: Released) -> str:
    """Return the name that a policy has by its sender: that of its file on a robot."""
    return GLOBAL if isinstance(message, GlobalPolicy) else message.envelope.sender


class Status(StrEnum):
    """What has become of a version of a policy."""

    VALUING = 'valuing'
    CANDIDATE = 'candidate'
    REFUSED = 'refused'
    VETOED = 'vetoed'
    REPLACED = 'replaced'


@dataclass(eq=False)
class Version:
    """
    One policy as its sender signed it, and what this robot found of it.

    :param name: global, the hospital's, or home for the hospital that this robot is of.
    :param came: when it came here, second since 1970.
    :param valued_with: hash over all that its model was fitted with.
    :param refusal: why it must not act; nothing if it may, or nobody knows yet.
    :param decision: how long it takes to choose an action on this machine.
    :param setback: why nobody knows yet though it was tried; it will be once more.
    """

    name: str
    message: Released
    policy: Policy
    came: float
    report: SafetyReport | None = None
    model: ValueModel | None = None
    valued_with: str = ''
    decision: DecisionTime | None = None
    refusal: str = ''
    setback: str = ''

    @property
    def owner(self) -> str:
        """Whose policy it is: the hospital's name, or the federation."""
        of_all = isinstance(self.message, GlobalPolicy)
        return FEDERATION if of_all else self.message.envelope.sender

    @property
    def round(self) -> int:
        """Round that it was released after."""
        return self.message.envelope.round

    @property
    def digest(self) -> str:
        """SHA-256 of its weights, hexadecimal."""
        return self.policy.digest.hex()

    @property
    def ready(self) -> bool:
        """Whether it passed its test and has an estimate of its return."""
        return self.model is not None and self.report is not None and not self.refusal


class PolicyRegistry:
    """
    Keeps the newest versions of the federation's policy and of each hospital's.

    A version becomes a candidate when it has passed its test and there is an estimate of its
    return; until then the one before it stays. All of it is in memory; see
    :mod:`fdrl_ros.selector.candidates.policy_files` for the disk.
    """

    def __init__(
        self,
        roster: Roster,
        network: Network,
        settings: SafetySettings | None = None,
        *,
        kept: int = KEPT_VERSIONS,
        basis: str = '',
        hospital: str = '',
    ) -> None:
        """
        Begin with nothing.

        :param roster: who may release policies.
        :param network: of the policies that this robot runs.
        :param settings: what is let pass.
        :param kept: versions of each name that are kept.
        :param basis: of the tests that count; tests of another one are done again.
        :param hospital: that this robot is of, whose policy is called home here; empty for none.
        """
        self._roster = roster
        self._network = network
        self._settings = settings or SafetySettings()
        self._kept = kept
        self._basis = basis
        self._hospital = hospital
        self._versions: dict[str, list[Version]] = {}
        self.hold: ValueModel | None = None
        """The estimate of holding, once there is one."""
        self.held_with = ''
        """Hash over all that it was fitted with."""
        self.fitted_with = ''
        """
        Hash over all that models are fitted with now. What was fitted with something else is
        valued again; until the robot's own policy is, the candidates stay those of before.
        """

    @property
    def names(self) -> frozenset[str]:
        """Names that a policy can have here."""
        hospitals = (HOME if x.name == self._hospital else x.name for x in self._roster.hospitals)
        return frozenset({GLOBAL, *hospitals}) - {HOLD}

    def name(self, message: Released) -> str:
        """Return the name that a policy has among the candidates of this robot."""
        by_sender = name_of(message)
        return HOME if by_sender == self._hospital else by_sender

    @property
    def versions(self) -> tuple[Version, ...]:
        """All versions: global, home, then by name, the newest of each name first."""
        names = sorted(self._versions, key=lambda name: (name != GLOBAL, name != HOME, name))
        return tuple(version for name in names for version in self._versions[name])

    @property
    def calibrated(self) -> tuple[Version, ...]:
        """Policies that tell how far the robot is off: home's, or without one all others."""
        newest: dict[str, Version] = {}
        for name, versions in self._versions.items():
            able = [each for each in versions if not each.refusal]
            newest |= {name: able[0]} if able else {}
        return (newest[HOME],) if HOME in newest else tuple(newest.values())

    def receive(self, message: Released, came: float) -> Version | None:
        """
        Check a released policy and keep it if it is new.

        :param came: second since 1970.
        :returns: the version that is now the newest of its name, or None if nothing is new.
        :raises MessageError: unless its sender signed it, it fits, and it is no older.
        """
        return self.add(message, self.check(message), came)

    def check(self, message: Released) -> Policy:
        """
        Check who signed a released policy, and that it fits; any thread may.

        :raises MessageError: unless its sender signed it, and it fits.
        """
        sender, name = message.envelope.sender, name_of(message)
        role = 'key_authority' if isinstance(message, GlobalPolicy) else 'hospital'
        check_signed(self._roster, message, role)
        if role == 'hospital' and name in (GLOBAL, HOME, HOLD):
            raise MessageError(sender, f'{name!r} is no name that a hospital may have here')
        try:
            policy = self._network.policy(
                decode_weights(message.weights, self._network.layout.n_parameters)
            )
        except PolicyError as error:
            raise MessageError(sender, str(error)) from error
        if policy.digest != message.digest:
            raise MessageError(sender, 'the digest is not that of the weights')
        return policy

    def add(self, message: Released, policy: Policy, came: float) -> Version | None:
        """
        Keep a released policy if it is new.

        Weights that are known already, as after a roll-back, keep what was found of them. Of one
        round, a hospital's later policy counts: its home policy follows the own one.

        :param policy: of :meth:`check`.
        :param came: second since 1970.
        :returns: the version that is now the newest of its name, or None if nothing is new.
        :raises RoundError: if a newer one is known.
        """
        name, number = self.name(message), message.envelope.round
        known = self._versions.setdefault(name, [])
        same = next((each for each in known if each.policy.digest == policy.digest), None)
        if known:
            newest = known[0]
            before = newest.message.envelope
            later = name != GLOBAL and message.envelope.counter > before.counter
            other = number == newest.round and same is not newest and not later
            if number < newest.round or other:
                raise RoundError(
                    message.envelope.sender,
                    f'policy of round {number}, round {newest.round} is known',
                )
            if same is newest and number == newest.round:
                return None
        version = same or Version(name, message, policy, came)
        if same is not None:
            known.remove(same)
            same.message, same.came = message, came
        known.insert(0, version)
        return version

    def find(self, name: str, digest: str) -> Version | None:
        """Return the version of a name with this digest, hexadecimal."""
        return next((x for x in self._versions.get(name, ()) if x.digest == digest), None)

    def to_pin(self, name: str, text: str) -> Version:
        """
        Return the version that somebody wants pinned.

        :param text: number of its round, or at least six digits of its digest, hexadecimal.
        :raises SupervisionError: if there is none, more than one, or it must not act.
        """
        found = [
            each
            for each in self._versions.get(name, ())
            if text == str(each.round) or (len(text) >= 6 and each.digest.startswith(text))
        ]
        if len(found) != 1:
            kept = ', '.join(f'{x.round} ({x.digest[:12]})' for x in self._versions.get(name, ()))
            raise SupervisionError(
                f'{name} {text!r}: expected one of the rounds {kept or "(none is here)"}, or at '
                'least six digits of a digest'
            )
        if not found[0].ready:
            reason = found[0].refusal or found[0].setback or 'it is not valued yet'
            raise SupervisionError(f'{name} of round {found[0].round} cannot be pinned: {reason}')
        return found[0]

    def pending(self, supervision: Supervision, waiting: Collection[str] = ()) -> Version | None:
        """
        Return a version that is to be tested and valued next.

        That is the one that is pinned, or the newest, of each name, the global one first; those
        that were valued with something else come last.

        :param waiting: digests of those whose turn it is not, hexadecimal.
        """
        again = []
        for name in dict.fromkeys(version.name for version in self.versions):
            pinned = supervision.pinned.get(name)
            version = self.find(name, pinned) if pinned else self._versions[name][0]
            if version is None or version.refusal or version.digest in waiting:
                continue
            if not version.ready:
                return version
            if version.valued_with != self.fitted_with:
                again.append(version)
        return next(iter(again), None)

    def add_report(self, version: Version, report: SafetyReport) -> None:
        """
        Take in what a test found; a version that fails it is refused.

        :raises PolicyError: if the report is of another policy, or of another test.
        """
        if report.policy != version.digest or report.basis != self._basis:
            raise PolicyError(f'safety report of policy {report.policy}, test {report.basis}')
        version.report = report
        version.refusal = report.refusal(self._settings)

    def add_model(self, version: Version, model: ValueModel, fitted_with: str = '') -> None:
        """
        Take in an estimate of a version's return.

        :param fitted_with: hash over all that it was fitted with.
        :raises PolicyError: if the estimate is of another policy, or of other states.
        """
        if model.policy != version.digest:
            raise PolicyError(f'value model of {model.policy}: expected {version.digest}')
        size, _, _ = model.form
        if size != self._network.states:
            raise PolicyError(f'value model of {size} numbers: expected {self._network.states}')
        version.model, version.valued_with = model, fitted_with

    def standing(self, supervision: Supervision) -> tuple[Version, ...]:
        """
        Return the version that stands for each name, vetoed or not.

        All were valued with the same as the robot's own: other estimates compare with nothing.
        """
        able: dict[str, Version] = {}
        for version in reversed(self.versions):
            pinned = supervision.pinned.get(version.name)
            if version.ready and pinned in (None, version.digest):
                able[version.name] = version  # the newest comes last
        own = able.get(HOME, able.get(GLOBAL))
        alike = [each for each in able if own is None or own.valued_with == able[each].valued_with]
        return tuple(able[name] for name in sorted(alike))

    def candidates(self, supervision: Supervision) -> tuple[Candidate, ...]:
        """Return those to choose from, hold last."""
        standing = [
            Candidate(each.name, each.policy, each.model, each.policy.digest, each.owner)
            for each in self.standing(supervision)
            if each.name not in supervision.vetoed
        ]
        return (*standing, Candidate(HOLD, None, self.hold))

    def status(self, version: Version, supervision: Supervision) -> Status:
        """Say what has become of a version."""
        if version.refusal:
            return Status.REFUSED
        if version.name in supervision.vetoed:
            return Status.VETOED
        if version in self.standing(supervision):
            return Status.CANDIDATE
        pinned = supervision.pinned.get(version.name)
        newest = self._versions[version.name][0]
        waits = version.digest == pinned if pinned else version is newest
        return Status.VALUING if waits else Status.REPLACED

    def check_pins(self, supervision: Supervision) -> None:
        """
        Refuse to begin where what was pinned cannot stand.

        :raises PolicyError: if a pinned version is not here, or must not act.
        """
        for name, digest in sorted(supervision.pinned.items()):
            version = self.find(name, digest)
            if version is None:
                raise PolicyError(
                    f'{name} is pinned to {digest[:12]}, which is not here, or was put aside as '
                    'damaged, foreign or of another shape: unpin it (`fdrl policies unpin`)'
                )
            if version.refusal:
                raise PolicyError(
                    f'{name} is pinned to {digest[:12]}, which is refused: {version.refusal}'
                )

    def prune(self, supervision: Supervision) -> list[Version]:
        """
        Forget the oldest versions; never what is pinned, or stands for its name.

        :returns: those forgotten.
        """
        standing = self.standing(supervision)
        forgotten = []
        for name, versions in self._versions.items():
            pinned = supervision.pinned.get(name)
            for each in versions[self._kept :]:
                if each not in standing and each.digest != pinned:
                    versions.remove(each)
                    forgotten.append(each)
        return forgotten
