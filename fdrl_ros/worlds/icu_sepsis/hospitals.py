# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Hospitals that admit different patients: the same distribution at H = 0, disjoint ones at 1."""

from dataclasses import dataclass

from fdrl_ros.runtime.random_streams import SepsisStream
from fdrl_ros.surgery.ranges import check_hospital, check_whole
from fdrl_ros.worlds.icu_sepsis.model import Floats, IcuSepsis
import numpy as np


@dataclass(frozen=True)
class SepsisHospital:
    """
    One of several hospitals that share the patients of ICU-Sepsis by severity.

    Order everyone who is admitted by SOFA score and cut the queue into equal parts, one for
    each hospital. A hospital admits from its part with chance H and from everyone with chance
    1 - H. So at H = 0 all are the same, at H = 1 no two share a degree of severity (but for
    the state where a cut falls), every mix is linear in H, and their mean is always what
    ICU-Sepsis admits. How patients answer to treatment is the same everywhere.

    :param hospital: from 0.
    :param hospitals: how many there are.
    :param heterogeneity: H in [0, 1].
    :param seed: decides who gets which part; of the whole federation.
    """

    hospital: int = 0
    hospitals: int = 1
    heterogeneity: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no hospital."""
        check_hospital(self.hospital, self.hospitals, self.heterogeneity, self.seed)

    @property
    def name(self) -> str:
        """Name of the hospital."""
        return f'hospital_{self.hospital + 1}'

    @property
    def part(self) -> int:
        """Return which part it leans to: 0 is the least severe, hospitals - 1 the most."""
        order = np.random.default_rng([self.seed, SepsisStream.HOSPITALS]).permutation(
            self.hospitals
        )
        return int(order[self.hospital])

    def start(self, model: IcuSepsis) -> Floats:
        """Return the chance of each state on admission, (713,)."""
        queue = np.argsort(model.sofa, kind='stable')
        ends = np.minimum(np.cumsum(model.start[queue]), 1.0)
        begins = np.concatenate(([0.0], ends[:-1]))
        low, high = self.part / self.hospitals, (self.part + 1) / self.hospitals
        inside = np.clip(np.minimum(ends, high) - np.maximum(begins, low), 0.0, None)
        own = np.zeros_like(model.start)
        own[queue] = inside * self.hospitals
        mix = (1.0 - self.heterogeneity) * model.start + self.heterogeneity * own
        return mix / mix.sum()


def federation(hospitals: int, heterogeneity: float, seed: int) -> list[SepsisHospital]:
    """
    Return all hospitals of a federation.

    :raises SettingError: if there is none, or as :class:`SepsisHospital` refuses.
    """
    check_whole('hospitals', hospitals, 1)
    return [SepsisHospital(each, hospitals, heterogeneity, seed) for each in range(hospitals)]
