# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Settings of the FDRL paper's experiments; all that matters to a verdict is fixed here."""

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.experiments.studies.leakage.settings import AttackSettings, PAPER, Regime, REGIMES
from fdrl_ros.settings import setting, Settings

FEWEST_SEEDS = 10
"""Below which a report claims nothing."""

TEMPERATURE = 0.1
"""Tau of the D_KL and OPE that verdicts are about; the paper names none."""

PAPER_NOISE = 0.1
"""s of the paper's centralised baseline."""

BUDGET = 8.0
"""Epsilon of private learning from more records."""


@dataclass(frozen=True)
class FdrlSettings(Settings):
    """What is measured, and how often."""

    seeds: int = setting(10, 'seeds of every experiment, from the first on', limits=(1, 1000))
    seed: int = setting(1, 'first seed', limits=(0, 10**6))
    hospitals: int = setting(3, 'hospitals (paper: 3)', limits=(3, 100))
    heterogeneity: float = setting(0.5, 'H of Fig. 3, 5 and 7', limits=(0.0, 1.0))
    noise: float = setting(
        PAPER_NOISE, 's of federated learning in Fig. 3, 5 and 7', limits=(0.0, 100.0)
    )
    levels: str = setting('0, 0.2, 0.4, 0.6, 0.8, 1', 'H of Fig. 4 and 6, separated by commas')
    noises: str = setting(
        '0, 0.01, 0.025, 0.063, 0.16, 0.4, 1', 's of Fig. 4 and 6, separated by commas'
    )
    records: str = setting(
        '100, 300, 1000, 3000, 10000', 'records of a hospital in learning curves'
    )
    models: int = setting(
        129, 'models that an attack looks at; each has all others as shadows', limits=(4, 100000)
    )
    patients: int = setting(
        200, 'patients of a hospital, in whom R_mit is measured', limits=(2, 10**6)
    )
    draws: int = setting(
        8, 'policies of each kind and seed at the H and s of Fig. 5 and 7', limits=(1, 1000)
    )
    resamples: int = setting(100, 'bootstrap resamples of models', limits=(10, 100000))
    workers: int = setting(2, 'processes that work at once', limits=(1, 64))

    def __post_init__(self) -> None:
        """Refuse lists that are none, and levels of H beyond 1."""
        super().__post_init__()
        for name, most in (('levels', 1.0), ('noises', 100.0)):
            found = self._numbers(name, 0.0, most)
            if len(found) < 2 or (name == 'noises' and sum(each > 0.0 for each in found) < 2):
                expected = 'at least two numbers' + ' above 0' * (name == 'noises')
                raise SettingError(name, getattr(self, name), expected)
        for each in self._numbers('records', 4.0, 10**6):
            if each % 4.0:
                raise SettingError('records', self.records, 'multiples of 4 (q is 1 / 4)')

    def _numbers(self, name: str, low: float, high: float) -> tuple[float, ...]:
        """Read a list of rising numbers."""
        words = str(getattr(self, name))
        try:
            found = [float(each) for each in words.split(',')]
        except ValueError:
            found = []
        rising = all(a < b for a, b in zip(found, found[1:], strict=False))
        if not found or not rising or not low <= found[0] <= found[-1] <= high:
            expected = f'rising numbers from {low:g} to {high:g}, separated by commas'
            raise SettingError(name, words, expected)
        return tuple(found)

    @property
    def all_levels(self) -> tuple[float, ...]:
        """Return every H of the grid."""
        return self._numbers('levels', 0.0, 1.0)

    @property
    def all_noises(self) -> tuple[float, ...]:
        """Return every s of the grid."""
        return self._numbers('noises', 0.0, 100.0)

    @property
    def all_records(self) -> tuple[int, ...]:
        """Return every number of records of the learning curves."""
        return tuple(int(each) for each in self._numbers('records', 4.0, 10**6))

    @property
    def every_seed(self) -> range:
        """Return the seeds."""
        return range(self.seed, self.seed + self.seeds)

    def regime(self, noise: float, *, matched: bool = True) -> Regime:
        """
        Return the paper's regime at some noise.

        :param noise: s.
        :param matched: whether the centralised baseline takes as many epochs as the federation.
        """
        found = replace(REGIMES[PAPER], noise=noise)
        if not matched:
            return found
        return replace(found, central_epochs=found.rounds * found.epochs, central_noise=None)

    def of_records(self, records: int, *, private: bool) -> Regime:
        """Return the regime of a learning curve: q stays 1 / 4, so steps do not grow."""
        found = replace(self.regime(0.0), records=records, batch=records // 4)
        return replace(found, epsilon=BUDGET if private else math.inf)

    def attack(self) -> AttackSettings:
        """Return the settings of the attacks from every seat."""
        return AttackSettings(
            models=self.models,
            seed=self.seed,
            seeds=self.seeds,
            hospitals=self.hospitals,
            heterogeneity=self.heterogeneity,
            resamples=self.resamples,
            workers=self.workers,
        )

    def relevant(self, names: Collection[str]) -> dict[str, object]:
        """Return the settings that a part depends on, but for its seed."""
        known = asdict(self)
        return {name: known[name] for name in names}

    def quick(self) -> 'FdrlSettings':
        """Return settings for a look of two minutes: no claim."""
        return replace(
            self,
            seeds=2,
            models=12,
            levels='0, 0.8, 1',
            noises='0, 0.01, 1',
            records='100, 300',
            patients=40,
            draws=2,
            resamples=20,
        )
