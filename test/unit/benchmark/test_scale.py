# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`benchmark/scale.py`: what it promises to measure, and that it says why it did not."""

import argparse

from fdrl_ros.crypto.masking.neighbourhoods import default_neighbours, fewest_neighbours
import pytest


def test_the_network_is_the_same_on_both_sides(module) -> None:
    work, crypto = module('scale_work'), module('crypto_work')
    assert work.SHAPE.n_parameters == crypto.parameters(work.LAYERS) == 6928


def test_a_round_is_played_and_measured(module) -> None:
    found = module('scale_work').round_of(4, 0)
    assert found['wall'] > 0.0 and found['cpu'] > 0.0 and found['mb'] > 10.0


def test_every_figure_that_was_promised_is_there_and_growth_is_that_of_processor_time(
    module, monkeypatch
) -> None:
    scale = module('scale')

    def known(processes, key):
        _, count, *_ = key
        return dict.fromkeys(('wall', 'mb', 'sent', 'received', 'median'), 2.0 * count) | {
            'cpu': float(count) ** 2
        }

    monkeypatch.setattr(scale.Processes, '_run', known)
    given = argparse.Namespace(
        neighbours=-1, one_honest_server=True, quick=False, hospitals=scale.SIZES
    )
    made = scale.Table(['round'], {})
    scale.measure(made, scale.Processes(1.0), given)
    assert {'round_200_s', 'round_1000_s', 'memory_1000_mb', 'growth', 'growth_from_100'} <= set(
        made.written
    )
    assert {
        'hospital_10000_bytes',
        'hospital_10000_ms',
        'zenoh_over_local',
        'link_50_kb_ms',
    } <= set(made.written)
    assert made.written['growth']['value'] == 4.0
    assert made.written['neighbours_100']['value'] == 99.0
    fewest = fewest_neighbours(1000, withstands_lies=False)
    assert made.written['neighbours_1000']['value'] == fewest < default_neighbours(1000)
    assert made.written['round_1000_s']['value'] == 2000.0


def test_one_hospital_plays_its_part_of_a_round_among_others_who_are_not_there(module) -> None:
    shape = module('scale_work').SHAPE
    one = module('scale_hospital').OneHospital(shape, 101, default_neighbours(101))
    one.play()
    kinds = {type(each).__name__ for each in one.said}
    assert kinds >= {'RoundKey', 'Shares', 'MaskedUpdate', 'Sketch', 'Reveal'}
    assert one.sent == sum(len(each.to_bytes()) for each in one.said)
    assert one.seconds > 0.0 and one.received > one.sent / 10


def test_what_takes_too_long_or_fails_is_left_out_with_the_reason(module) -> None:
    scale = module('scale')
    with pytest.raises(scale.Skipped, match='more than 0.01 s'):
        scale.Processes(0.01).measure('round', 3, 0)
    with pytest.raises(scale.Skipped, match='KeyError'):
        scale.Processes(60.0).measure('nothing')
