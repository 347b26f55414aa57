# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The policies that a robot may choose from: each checked, then valued, then taken at once."""

from fdrl_ros.crypto.roster import Roster
from fdrl_ros.errors import MessageError, PolicyError, RoundError
from fdrl_ros.federation.channel import check_signed
from fdrl_ros.federation.message import GlobalPolicy, HospitalPolicy
from fdrl_ros.policy import decode_weights, NetworkShape, Policy
from fdrl_ros.selector.candidate import Candidate
from fdrl_ros.selector.value import ValueModel

GLOBAL = 'global'
"""Name of the federated policy among the candidates."""


class PolicyShelf:
    """
    Keeps the newest policy of the federation and of each hospital.

    A policy becomes a candidate when there is an estimate of its return; until then the one
    before it stays.
    """

    def __init__(self, roster: Roster, shape: NetworkShape) -> None:
        """
        Begin with nothing.

        :param roster: who may release policies.
        :param shape: of the network that this robot runs.
        """
        self._roster = roster
        self._shape = shape
        self._newest: dict[str, tuple[int, Policy]] = {}
        self._valued: dict[str, Candidate] = {}
        self._failed: set[bytes] = set()

    def take(self, message: GlobalPolicy | HospitalPolicy) -> str | None:
        """
        Check a released policy and keep it if it is new.

        :returns: name of the candidate, or None if this policy is known already.
        :raises MessageError: unless its sender signed it, it fits, and it is no older.
        """
        sender, round = message.envelope.sender, message.envelope.round
        if isinstance(message, GlobalPolicy):
            name, role = GLOBAL, 'key_authority'
        else:
            name, role = sender, 'hospital'
        check_signed(self._roster, message, role)
        try:
            policy = Policy(decode_weights(message.weights, self._shape.n_parameters), self._shape)
        except PolicyError as error:
            raise MessageError(sender, str(error)) from error
        if policy.digest != message.digest:
            raise MessageError(sender, 'the digest is not that of the weights')
        if name in self._newest:
            known, kept = self._newest[name]
            if round < known or (round == known and policy.digest != kept.digest):
                raise RoundError(sender, f'policy of round {round}, round {known} is known')
            if policy.digest == kept.digest:
                self._newest[name] = (round, kept)
                return None
        self._newest[name] = (round, policy)
        return name

    def pending(self) -> tuple[str, Policy] | None:
        """Return a policy that has no estimate yet, the global one first."""
        for name in sorted(self._newest, key=lambda name: (name != GLOBAL, name)):
            _, policy = self._newest[name]
            known = self._valued.get(name)
            if policy.digest in self._failed:
                continue
            if known is None or known.digest != policy.digest:
                return name, policy
        return None

    def value(self, name: str, policy: Policy, model: ValueModel) -> None:
        """
        Put a policy among the candidates with its estimate.

        :raises PolicyError: if the estimate is of another policy.
        """
        if model.policy != policy.digest.hex():
            raise PolicyError(f'value model of {model.policy}: expected {policy.digest.hex()}')
        self._valued[name] = Candidate(name, policy, model, policy.digest)

    def give_up(self, policy: Policy) -> None:
        """Ask no more for an estimate of a policy that could not be valued."""
        self._failed.add(policy.digest)

    def candidates(self) -> tuple[Candidate, ...]:
        """Return those to choose from."""
        return tuple(self._valued[name] for name in sorted(self._valued))
