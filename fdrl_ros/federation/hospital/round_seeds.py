# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Where a hospital keeps the seed of the present round, and how it forgets it (spec section 4)."""

from pathlib import Path
import re

from fdrl_ros.crypto.masking.round_secret import RoundSeed
from fdrl_ros.errors import CryptoError
from fdrl_ros.runtime.durable import erase_secret

_LATEST = 10**19
_NAME = re.compile(r'round_(\d{1,19})\.seed(\.draft.*)?')


class RoundSeeds:
    """
    One private file a round: a hospital that is killed goes on with the very same secrets.

    Without a directory the seeds live in memory, for simulation.
    """

    def __init__(self, directory: Path | None, *, federation: str, name: str) -> None:
        """Keep the seeds of one hospital in its own directory."""
        self._directory = directory
        self._federation, self._name = federation, name
        self._seeds: dict[int, RoundSeed] = {}
        self._last = 0

    def of(self, round: int) -> RoundSeed:
        """
        Return the seed of a round; the first call draws it, and stores it durably.

        :raises KeyFileError: if its file is damaged, open to others, or cannot be written.
        :raises CryptoError: if the round is over: a second seed would mask the same update anew.
        """
        if round <= self._last:
            raise CryptoError(f'round {round} is over: its seed was erased')
        if round not in self._seeds:
            federation, name = self._federation, self._name
            self._seeds[round] = (
                RoundSeed.draw(federation=federation, round=round, name=name)
                if self._directory is None
                else RoundSeed.at(
                    _path(self._directory, round), federation=federation, round=round, name=name
                )
            )
        return self._seeds[round]

    def erase(self) -> None:
        """
        Erase every seed: who knows nothing of what was said with it must not use it again.

        :raises KeyFileError: if a file cannot be removed.
        """
        before, self._last = self._last, 0
        self.forget(_LATEST)
        self._last = before

    def forget(self, last: int) -> None:
        """
        Erase the seeds of all rounds up to one that is over.

        :raises KeyFileError: if a file cannot be removed.
        """
        self._last = max(last, self._last)
        self._seeds = {round: seed for round, seed in self._seeds.items() if round > last}
        if self._directory is None:
            return
        for path in self._directory.glob('round_*.seed*'):
            found = _NAME.fullmatch(path.name)
            if found and int(found[1]) <= last:
                erase_secret(path)


def _path(directory: Path, round: int) -> Path:
    return directory / f'round_{round}.seed'
