# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`benchmark/env.py`: a figure is written with its spread and with how it came."""

RUN = {'repeats': 3, 'seconds': 1.0, 'seed': 0, 'machine': 'one', 'software': 'Python'}


def test_every_figure_has_its_spread_and_says_how_it_came(module, capsys):
    speed = module('env')
    found = speed.measurements()
    for each in found.values():
        each.samples = [100.0, 400.0, 200.0]
    found['panda'].samples = [50.0, 100.0, 200.0]
    written = speed.table(found, (1.5, ''), RUN)
    assert written.keys() == {*(row.name for row in speed.ROWS), 'memory_growth_mb'}
    for each in written.values():
        assert each.keys() >= {'value', 'unit', 'peer', 'peer_value'} | RUN.keys()
    given = written['dynamic_steps_per_s']
    assert (given['minimum'], given['value'], given['maximum']) == (100.0, 200.0, 400.0)
    ratio = written['dynamic_over_panda_gym']
    # In turns, each with the peer's of the same turn.
    assert (ratio['minimum'], ratio['value'], ratio['maximum']) == (1.0, 2.0, 4.0)
    assert (ratio['peer_value'], written['memory_growth_mb']['value']) == (100.0, 1.5)
    assert 'dynamic_steps_per_s' in capsys.readouterr().out
