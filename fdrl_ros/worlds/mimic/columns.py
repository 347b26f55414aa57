# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Columns of an extracted MIMIC-III table: units, limits, and the public constants that scale."""

from dataclasses import dataclass
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.resources import parse_yaml, resource
from fdrl_ros.settings import setting, Settings
from fdrl_ros.worlds.icu_sepsis.model import LEVELS
from fdrl_ros.worlds.icu_sepsis.records import CLIP
import numpy as np
from numpy.typing import NDArray

_OFFSET = 0.1
"""Added before a logarithm, as the AI Clinician does."""


@dataclass(frozen=True)
class MimicFeature:
    """
    One of the 47 features of config/mimic.yaml.

    :param name: of the column, as the AI Clinician's extraction writes it.
    :param lowest: a number below cannot be: the unit is another, or the row is damaged.
    :param highest: nor can one above.
    :param low: what becomes -1: the lower end of what is usual in intensive care.
    :param high: what becomes 1: its upper end.
    :param log: whether the logarithm is scaled.
    """

    name: str
    unit: str
    lowest: float
    highest: float
    low: float
    high: float
    log: bool = False

    @property
    def binary(self) -> bool:
        """Return whether only 0 and 1 are allowed."""
        return (self.lowest, self.highest) == (0, 1)

    def scaled(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return -1 for the lower and 1 for the upper usual value, clipped to 4 around 0."""
        low, high = self.low, self.high
        if self.log:
            values = np.log(_OFFSET + values)
            low, high = math.log(_OFFSET + low), math.log(_OFFSET + high)
        middle, half = (low + high) / 2.0, (high - low) / 2.0
        return np.clip((values - middle) / half, -CLIP, CLIP).astype(np.float32)


def _features() -> tuple[MimicFeature, ...]:
    rows = parse_yaml(resource('config/mimic.yaml').read_text('utf-8'))
    return tuple(MimicFeature(name, *cells) for name, cells in rows.items())


MIMIC_FEATURES = _features()


@dataclass(frozen=True)
class MimicSettings(Settings):
    """Names of the table's columns beside the 47 features."""

    patient: str = setting('subject_id', 'column of the patient, who is the privacy unit')
    stay: str = setting('icustayid', 'column of the stay; one patient may have several')
    window: str = setting('bloc', 'column of the number of the window of 4 h within the stay')
    outcome: str = setting('mortality_90d', 'column that is 1 if the patient died, else 0')
    fluid: str = setting('input_4hourly', 'column of intravenous fluid in the window', unit='ml')
    vasopressor: str = setting(
        'max_dose_vaso', 'column of the highest rate of vasopressor', unit='ug/kg/min'
    )
    doses: str = setting(
        'dose', 'whether those two hold doses or levels 0 to 4', choices=('dose', 'level')
    )
    minimum_patients: int = setting(1, 'fewest patients of a table', unit='patients', minimum=1)

    def __post_init__(self) -> None:
        """Refuse levels out of columns that hold a feature, which is a dose."""
        super().__post_init__()
        features = {each.name for each in MIMIC_FEATURES}
        for name in ('fluid', 'vasopressor'):
            column = getattr(self, name)
            if self.doses == 'level' and column in features:
                raise SettingError(name, column, 'a column of levels, not one of the features')


@dataclass(frozen=True)
class DoseCuts:
    """
    Doses that part the levels 1 to 4; level 0 is none at all.

    A level holds the doses up to its cut. The DP-DQN paper cuts at the quartiles of its own
    patients, which are a private statistic: cuts are either public, as the default is, or
    charged to the ledger before they get here.

    :param fluid: three rising doses in ml in 4 h.
    :param vasopressor: three rising rates in ug/kg/min.
    :param origin: 'public' or 'charged'.
    """

    fluid: tuple[float, float, float] = (50.0, 180.0, 530.0)
    vasopressor: tuple[float, float, float] = (0.08, 0.22, 0.45)
    origin: str = 'public'

    def __post_init__(self) -> None:
        """Refuse cuts that do not rise from above 0, or of unsaid origin."""
        if self.origin not in ('public', 'charged'):
            raise SettingError('origin', self.origin, "'public', or 'charged' to the ledger")
        for name in ('fluid', 'vasopressor'):
            cuts = getattr(self, name)
            rising = len(cuts) == LEVELS - 2 and 0.0 < cuts[0] < cuts[1] < cuts[2] < math.inf
            if not rising:
                raise SettingError(name, cuts, 'three doses that rise from above 0')

    def levels(self, name: str, doses: NDArray[np.float64]) -> NDArray[np.int64]:
        """
        Return the level of each dose, same shape.

        :param name: 'fluid' or 'vasopressor'.
        :param doses: at least 0.
        """
        level = 1 + np.searchsorted(np.array(getattr(self, name)), doses, side='left')
        return np.where(doses > 0.0, level, 0).astype(np.int64)


PUBLISHED_CUTS = DoseCuts()
"""The AI Clinician's (Komorowski et al., Nature Medicine 24, 2018): quartiles of its patients."""
