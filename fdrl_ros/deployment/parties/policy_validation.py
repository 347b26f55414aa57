# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The key authority's test of a new policy: public patients only, so it costs no epsilon."""

from collections import defaultdict
from contextlib import closing
from functools import cached_property

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.federation.key_authority.state import Validation
import numpy as np

EVERYBODY = ''
"""Name of all public patients among shares by procedure."""


class PublicValidation:
    """
    Tries a policy on public patients that no training has seen, against the public start.

    It is the `validate` of :class:`fdrl_ros.federation.key_authority.key_authority.KeyAuthority`.
    """

    def __init__(self, plan: Plan, start: np.ndarray) -> None:
        """
        Compare with the public start.

        :param start: weights of the public starting policy, shape (n_parameters,).
        """
        self._plan = plan
        self._start = start

    def __call__(self, weights: np.ndarray) -> Validation:
        """Pass a policy whose success is no more than the margin below the start's."""
        shares = self.shares(weights)
        least = self._wanted - self._plan.validation.margin
        share, wanted = shares[EVERYBODY], self._wanted
        words = f'succeeds on {share:.0%} of the public patients, the start on {wanted:.0%}'
        return Validation(shares[EVERYBODY] >= least, words, shares)

    def success(self, weights: np.ndarray) -> float:
        """Return the share of public patients on whom a policy succeeds."""
        return self.shares(weights)[EVERYBODY]

    def shares(self, weights: np.ndarray) -> dict[str, float]:
        """Return the same by procedure, where the task knows procedures, and of everybody."""
        plan, task = self._plan, self._plan.task
        policy, public = plan.network.policy(weights), plan.population(None)
        rng = np.random.default_rng(plan.federation.seed)
        found = defaultdict[str, list[bool]](list)
        with closing(task.make_env(plan.world)) as env:
            for index in range(plan.validation.patients):
                episode = task.operate(env, policy, public.patient(index, 'test'), rng)
                procedure = task.measure(episode, plan.world).get('procedure', EVERYBODY)
                for name in {EVERYBODY, str(procedure)}:
                    found[name].append(episode.success)
        return {name: float(np.mean(each)) for name, each in found.items()}

    @cached_property
    def _wanted(self) -> float:
        return self.success(self._start)
