# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Settings of FedST's experiments."""

from dataclasses import dataclass, replace
from typing import Final

from fdrl_ros.errors import SettingError
from fdrl_ros.segmentation.network.sizes import SIZES
from fdrl_ros.segmentation.training.methods import (
    COMPONENTS,
    INDICATORS,
    LAYERS,
    MAIN,
    PLACES,
)
from fdrl_ros.segmentation.training.settings import Schedule, ServerSettings, SiteSettings
from fdrl_ros.settings import setting, Settings

FEDERATED: Final = ('A', 'B', 'C', 'D')
UNSEEN: Final = 'E'
SERVER: Final = 'synthetic'
SCARCE: Final = 'D'
"""The site with a tenth of the others' clips."""

TABLES: Final = {
    'main': MAIN,
    'components': COMPONENTS,
    'places': PLACES,
    'layers': LAYERS,
    'indicators': INDICATORS,
}
"""Methods of Tables II, III and IX; of IV; of V; of VI; of VII."""


@dataclass(frozen=True)
class FedstSettings(Settings):
    """How segmenters are trained and compared, and how often."""

    tables: str = setting(
        'main', f'which to make: all, or of {", ".join(TABLES)} some, separated by commas'
    )
    seeds: int = setting(3, 'seeds of every method, which draw clips and weights', limits=(1, 100))
    seed: int = setting(1, 'first seed', limits=(0, 10**6))
    workers: int = setting(2, 'processes that work at once', limits=(1, 1024))
    device: str = setting(
        'cpu',
        'where segmenters train; a GPU repeats a seed but for rounding',
        choices=('cpu', 'cuda'),
    )
    size: str = setting('tiny', 'of the segmenter', choices=tuple(SIZES))
    pixels: int = setting(128, 'sides of a frame, a multiple of 32', limits=(32, 1024))
    clips: int = setting(
        20, 'training clips of a site; the scarce one has a tenth', limits=(1, 10**5)
    )
    test_clips: int = setting(8, 'unseen clips of each site', limits=(1, 10**5))
    frames: int = setting(20, 'frames of a clip, 0.2 s apart', limits=(1, 10**4))
    synthetic_clips: int = setting(20, "clips of the server's set", limits=(1, 10**5))
    rounds: int = setting(20, 'rounds (paper: 300)', limits=(1, 10**4))
    steps: int = setting(100, 'training steps of a site in a round', limits=(1, 10**5))
    batch: int = setting(2, 'clips in a step', limits=(1, 1000))
    rate: float = setting(1e-3, 'learning rate of sites (paper: 6e-5)', limits=(1e-7, 1.0))
    server_steps: int = setting(
        50, 'steps of each of the two models in SERQ (paper: 100)', limits=(1, 10**5)
    )
    server_rate: float = setting(1e-4, 'learning rate of SERQ', limits=(1e-7, 1.0))
    server_frames: int = setting(100, 'synthetic frames of SERQ', limits=(1, 10**5))
    pretraining: int = setting(400, 'steps on synthetic frames before', limits=(0, 10**6))

    def __post_init__(self) -> None:
        """Refuse tables that are not there, and sizes that no segmenter takes."""
        super().__post_init__()
        if self.pixels % 32:
            raise SettingError('pixels', self.pixels, 'a multiple of 32')
        for name in self.chosen:
            if name not in TABLES:
                raise SettingError('tables', self.tables, f'all, or some of {", ".join(TABLES)}')

    @property
    def chosen(self) -> tuple[str, ...]:
        """Names of the tables that are made."""
        names = tuple(each.strip() for each in self.tables.split(','))
        return tuple(TABLES) if names == ('all',) else names

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods in them, each once."""
        return tuple(dict.fromkeys(each for name in self.chosen for each in TABLES[name]))

    @property
    def schedule(self) -> Schedule:
        """Return how long is trained."""
        return Schedule(
            self.rounds,
            self.pretraining,
            SiteSettings(steps=self.steps, batch=self.batch, rate=self.rate),
            ServerSettings(
                steps=self.server_steps, rate=self.server_rate, frames=self.server_frames
            ),
        )

    def quick(self) -> 'FedstSettings':
        """Return the same with few clips and steps: a look, no claim."""
        return replace(
            self,
            seeds=1,
            clips=10,
            test_clips=3,
            frames=10,
            synthetic_clips=6,
            rounds=4,
            steps=40,
            server_steps=15,
            server_frames=40,
            pretraining=60,
        )
