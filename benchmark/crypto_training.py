# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The default local training of one round, which the protocol's cost is compared with."""

from collections.abc import Callable
import itertools
import math
from pathlib import Path
import tempfile

from crypto_work import SEED
from fdrl_ros.deployment.parties.hospital import open_training
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.learner.records.collection import collect_records
from fdrl_ros.learner.records.records import Records
import numpy as np
from turns import Work


def plan() -> Plan:
    """Return the default plan, without a budget, so that a long measurement never ends it."""
    return Plan().changed({'privacy': {'budget': math.inf}})


def repeated(records: Records, patients: int) -> Records:
    """Return the records of so many patients: of the first ones again under other names."""
    rounds, rest = divmod(patients, records.n_patients)
    end = int(records.starts[rest])
    length = int(records.starts[-1])

    def again(values: np.ndarray) -> np.ndarray:
        return np.concatenate([*[values] * rounds, values[:end]])

    starts = [records.starts[:-1] + each * length for each in range(rounds)]
    return Records(
        states=again(records.states),
        actions=again(records.actions),
        rewards=again(records.rewards),
        next_states=again(records.next_states),
        terminals=again(records.terminals),
        starts=np.concatenate([*starts, records.starts[: rest + 1] + rounds * length]),
        patients=np.array([f'patient_{each}' for each in range(patients)]),
        ends=again(records.ends),
    )


def training(folder: Path, collected: int, report: Callable[[str], None]) -> Work:
    """
    Return work that is one round of default local training; it counts rounds.

    Settings, network and number of patients are the plan's, with ledger and secure noise.

    :param collected: patients that are operated on, the others repeat them; 0: all.
    """
    used = plan()
    patients = used.collection.patients
    fewer = used.changed({'collection': {'patients': collected or patients}})
    records = collect_records(
        used.cohorts[0],
        fewer.collection,
        used.world,
        progress=lambda done, count: (
            report(f'operating on patient {done} of {count}') if done % 50 == 0 else None
        ),
    )
    home = Path(tempfile.mkdtemp(dir=folder))
    trainer = open_training(home, used.hospitals[0], used, repeated(records, patients)).trainer
    weights, rounds = used.shape.draw(np.random.default_rng(SEED)), itertools.count(1)

    def work() -> int:
        trainer.train(weights, next(rounds), report=lambda told: None, stopped=lambda: False)
        return 1

    return work
