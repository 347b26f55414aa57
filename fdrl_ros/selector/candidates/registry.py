# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The policies that a robot may choose from: each checked, tested, valued, then taken at once."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
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
from fdrl_ros.settings import named_among

FEDERATION = 'federation'
"""Owner of the federated policy."""

NOT_VALUED = (
    'it is not valued yet, which its robot does while it runs; `fdrl policies list` shows when'
)

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
    :param refusal: why it must not act; nothing if it may, or nobody knows yet.
    :param decision: how long it takes to choose an action on this machine.
    :param setback: why nobody knows yet though it was tried; it will be once more.
    """

    name: str
    message: Released
    policy: Policy
    came: float
    report: SafetyReport | None = None
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
    def passed(self) -> bool:
        """Whether it passed its test, and nothing else was found against it."""
        return self.report is not None and not self.refusal


@dataclass(frozen=True, eq=False)
class Values:
    """
    Value models that compare with each other, as all are fitted with the same.

    :param fitted_with: hash over all that they are fitted with, beside the policy of each.
    :param known: policies that tell how far the robot is off, for which they are fitted.
    :param models: by the digest of their policy, hexadecimal; that of holding by its name.
    """

    fitted_with: str = ''
    known: tuple[Policy, ...] = ()
    models: dict[str, ValueModel] = field(default_factory=dict)


class PolicyRegistry:
    """
    Keeps the newest versions of the federation's policy and of each hospital's.

    A version becomes a candidate when it has passed its test and there is an estimate of its
    return; until then the one before it stays. Where all are valued anew, the candidates keep the
    values in use until the newer ones are complete. All of it is in memory; see
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
        self.values = Values()
        """Those in use, by which candidates are compared."""
        self.newer_values = self.values
        """Those that are being fitted; the ones in use where nothing is valued anew."""

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

    def calibrated(self, supervision: Supervision) -> tuple[Version, ...]:
        """
        Return policies that tell how far the robot is off: home's, or without one all others.

        That is the pinned version, or else the newest that passed its test, of each name that is
        not vetoed.
        """
        names = sorted(self._versions.keys() - supervision.vetoed)
        able = [each for name in names if (each := self._newest(name, supervision, passed=True))]
        home = [each for each in able if each.name == HOME]
        return tuple(home or able)

    def _newest(
        self, name: str, supervision: Supervision, *, passed: bool = False
    ) -> Version | None:
        """
        Return the newest version of a name that may stand by the supervision and is not refused.

        :param passed: whether it must have passed its test.
        """
        pinned = supervision.pinned.get(name)
        for each in self._versions.get(name, ()):
            able = each.passed if passed else not each.refusal
            if able and pinned in (None, each.digest):
                return each
        return None

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

        The newest that passed its test must be valued before. An older one may have no value in
        use: it is valued once it is pinned, and its name is no candidate until then.

        :param text: number of its round, or at least six digits of its digest, hexadecimal.
        :raises SupervisionError: if there is none, more than one, or it must not act.
        """
        found = [
            each
            for each in self._versions.get(name, ())
            if text == str(each.round) or (len(text) >= 6 and each.digest.startswith(text))
        ]
        if not self._versions.get(name):
            known = named_among(name, 'policies', sorted(self._versions))
            raise SupervisionError(f'there is no policy {name!r}: expected {known}')
        if len(found) != 1:
            kept = ', '.join(f'{x.round} ({x.digest[:12]})' for x in self._versions[name])
            raise SupervisionError(
                f'{name} {text!r}: expected one of the rounds that are kept, {kept}, or at least '
                'six digits of a digest'
            )
        newest = self._newest(name, Supervision(), passed=True)
        if not self.ready(found[0]) and (not found[0].passed or found[0] is newest):
            reason = found[0].refusal or found[0].setback or NOT_VALUED
            raise SupervisionError(f'{name} of round {found[0].round} cannot be pinned: {reason}')
        return found[0]

    def pending(self, supervision: Supervision, waiting: Collection[str] = ()) -> Version | None:
        """
        Return a version that is to be tested next, or where all are, one that is to be valued.

        Of each name, the global one first, that is the pinned version, or the newest that is not
        refused.

        :param waiting: digests of those whose turn it is not, hexadecimal.
        """
        names = dict.fromkeys(version.name for version in self.versions)
        newest = (self._newest(name, supervision) for name in names)
        untested = (each for each in newest if each and not each.report)
        unvalued = self._unvalued(supervision)
        both = (each for some in (untested, unvalued) for each in some)
        return next((each for each in both if each.digest not in waiting), None)

    def _unvalued(self, supervision: Supervision) -> Iterator[Version]:
        """Return the versions that passed their test and lack one of the newer values."""
        for name in dict.fromkeys(version.name for version in self.versions):
            version = self._newest(name, supervision, passed=True)
            if version and version.digest not in self.newer_values.models:
                yield version

    @property
    def hold_pending(self) -> bool:
        """Whether holding is to be valued: it is where there is another candidate."""
        passed = any(each.passed for each in self.versions)
        return passed and HOLD not in self.newer_values.models

    def value_with(self, fitted_with: str, known: tuple[Policy, ...] = ()) -> None:
        """
        Have all valued with something else; candidates keep the values in use meanwhile.

        :param fitted_with: hash over all that value models are to be fitted with.
        :param known: policies that tell how far the robot is off.
        """
        if fitted_with == self.values.fitted_with:
            self.newer_values = self.values
        elif fitted_with != self.newer_values.fitted_with:
            self.newer_values = Values(fitted_with, known)

    def use_newer_values(self, supervision: Supervision) -> None:
        """Use the newer values where they are complete, or nothing stands by those in use."""
        complete = not self.hold_pending and not any(self._unvalued(supervision))
        if complete or not self.standing(supervision):
            self.values = self.newer_values

    def add_report(self, version: Version, report: SafetyReport) -> None:
        """
        Take in what a test found; a version that fails it is refused.

        :raises PolicyError: if the report is of another policy, or of another test.
        """
        if report.policy != version.digest or report.basis != self._basis:
            raise PolicyError(f'safety report of policy {report.policy}, test {report.basis}')
        version.report = report
        version.refusal = report.refusal(self._settings)

    def add_model(
        self, version: Version | None, model: ValueModel, values: Values | None = None
    ) -> None:
        """
        Take in an estimate of a version's return.

        :param version: None for holding.
        :param values: among which it was fitted; None for the newer ones.
        :raises PolicyError: if the estimate is of another policy, or of other states.
        """
        digest = version.digest if version else HOLD
        if model.policy != digest:
            raise PolicyError(f'value model of {model.policy}: expected {digest}')
        size, _, _ = model.form
        if size != self._network.states:
            raise PolicyError(f'value model takes {size} numbers: expected {self._network.states}')
        (values or self.newer_values).models[digest] = model

    def ready(self, version: Version) -> bool:
        """Tell whether a version passed its test and has an estimate that is in use."""
        return version.passed and version.digest in self.values.models

    def standing(self, supervision: Supervision) -> tuple[Version, ...]:
        """Return the version that stands for each name, vetoed or not."""
        able: dict[str, Version] = {}
        for version in reversed(self.versions):
            pinned = supervision.pinned.get(version.name)
            if self.ready(version) and pinned in (None, version.digest):
                able[version.name] = version  # the newest comes last
        return tuple(able[name] for name in sorted(able))

    def candidates(self, supervision: Supervision) -> tuple[Candidate, ...]:
        """Return those to choose from, hold last."""
        models = self.values.models
        standing = [
            Candidate(each.name, each.policy, models[each.digest], each.policy.digest, each.owner)
            for each in self.standing(supervision)
            if each.name not in supervision.vetoed
        ]
        return (*standing, Candidate(HOLD, None, models.get(HOLD)))

    def status(self, version: Version, supervision: Supervision) -> Status:
        """Say what has become of a version."""
        if version.refusal:
            return Status.REFUSED
        if version.name in supervision.vetoed:
            return Status.VETOED
        if version in self.standing(supervision):
            return Status.CANDIDATE
        untested = self._newest(version.name, supervision)
        unvalued = self._newest(version.name, supervision, passed=True)
        return Status.VALUING if version in (untested, unvalued) else Status.REPLACED

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
        Forget the oldest versions, unless one is needed.

        Those are needed that are pinned, stand for their name, or tell how far the robot is off.

        :returns: those forgotten.
        """
        standing = self.standing(supervision)
        described = (*self.values.known, *self.newer_values.known)
        known = {each.digest.hex() for each in described}
        forgotten = []
        for name, versions in self._versions.items():
            pinned = supervision.pinned.get(name)
            for each in versions[self._kept :]:
                needed = each in standing or each.digest in (pinned, *known)
                if not needed:
                    versions.remove(each)
                    forgotten.append(each)
        left = {HOLD, *(each.digest for each in self.versions)}
        for values in (self.values, self.newer_values):
            for digest in values.models.keys() - left:
                del values.models[digest]
        return forgotten
