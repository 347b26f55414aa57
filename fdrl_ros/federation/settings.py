# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Settings of the rounds."""

from dataclasses import dataclass

from fdrl_ros.settings import setting, Settings


@dataclass(frozen=True)
class RoundSettings(Settings):
    """How the aggregator runs the rounds."""

    rounds: int = setting(4, 'rounds T of the federation', limits=(1, 100000))
    quorum: int = setting(3, 'fewest hospitals of a round', limits=(3, 1000))
    open_timeout: float = setting(
        20.0, 'wait for round keys before going on without the missing', unit='second', minimum=0.1
    )
    absent_timeout: float = setting(
        2.0,
        'wait for round keys when only those are missing that were absent in the last attempt',
        unit='second',
        minimum=0.1,
    )
    share_timeout: float = setting(
        20.0, 'wait for shares before going on without the missing', unit='second', minimum=0.1
    )
    train_timeout: float = setting(
        600.0, 'wait for updates before going on without the missing', unit='second', minimum=0.1
    )
    settle_timeout: float = setting(
        20.0, 'wait for signatures on the survivor set', unit='second', minimum=0.1
    )
    reveal_timeout: float = setting(
        20.0, 'wait for revealed shares before asking again', unit='second', minimum=0.1
    )
    sum_timeout: float = setting(
        60.0, 'wait for the key authority to release the policy', unit='second', minimum=0.1
    )
    retry_delay: float = setting(
        2.0, 'pause between a failed attempt and the next', unit='second', minimum=0.1
    )
