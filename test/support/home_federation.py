# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A federation whose hospitals make home policies that are simple enough to check by hand."""

from fdrl_ros.errors import TrainingStopped
from fdrl_ros.learner.home import PERSONAL
from fdrl_ros.learner.learner import HomePolicy
from fdrl_ros.policy import digest_of
import numpy as np
from support.federation_bench import Bench, KnownLearner


class HomeBody(KnownLearner):
    """A known learner whose home policy is the global one, moved by its own number."""

    def __init__(self, *arguments, **named) -> None:
        super().__init__(*arguments, **named)
        self.asked: list[tuple[int, np.ndarray | None]] = []
        self.stops = False

    def home(self, weights, round, *, own, report, stopped) -> HomePolicy:
        if self.stops:
            raise TrainingStopped('stopped')
        self.asked.append((round, own))
        moved = (weights + self.number).astype(np.float32)
        leads = {PERSONAL: 0.1}
        return HomePolicy(round, digest_of(weights), PERSONAL, moved, leads, 9.0, ('a note',))


class Homes(Bench):
    learner = HomeBody


def at_home(bench) -> bool:
    return bench.is_over() and all(bench.parties[name].home for name in bench.names)
