# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`benchmark/attack.py`: its shadows and its peer are federations of one size; its figures."""

from dataclasses import replace

from fdrl_ros.privacy.ledger.content import read_content
import pytest


def test_shadow_and_peer_take_the_same_steps(module, monkeypatch, tmp_path) -> None:
    work = module('attack')
    tiny = replace(work.PAPER, rounds=2)
    monkeypatch.setattr(work, 'PAPER', tiny)
    assert work.shadow()() == work.federation(tmp_path)() == 1
    ledgers = list(tmp_path.glob('*/*/ledger.sqlite'))
    assert len(ledgers) == 3
    for path in ledgers:
        history = read_content(path).chain.history()
        assert sum(each.steps for each in history) == tiny.steps(False)


def test_cells_of_the_surface_count_as_their_share_of_it(module, monkeypatch, tmp_path) -> None:
    work = module('attack')
    monkeypatch.setattr(work, 'SURFACE', replace(work.SURFACE, models=4, resamples=10, workers=1))
    assert work.surface(tmp_path, whole=False)() == pytest.approx(2 / 360)
    names = {row.name for row in work.ROWS}
    assert names > {'shadows_128_s', 'surface_min', 'audit_s', 'audit_tightness'}
