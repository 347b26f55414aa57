# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Trainers with planted faults that an audit has to prove."""

from fdrl_ros.audit.privacy_audit import AuditedTrainer
from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
import numpy as np


class Noiseless(AuditedTrainer):
    """Forgets the noise."""

    def noise(self, round, step):
        return np.zeros(self.dqn.size)


class Forgetful(AuditedTrainer):
    """Begins a new ledger in every round, and reports what that one says."""

    def train(self, weights, round, **told):
        self.checkpoint.unlink(missing_ok=True)  # it would tell of the last ledger
        with Ledger(
            f'{self.checkpoint}.{round}',
            Owner(hospital='audit', unit='patient', delta=self.privacy.delta, budget=float('inf')),
        ) as self.ledger:
            return super().train(weights, round, **told)
