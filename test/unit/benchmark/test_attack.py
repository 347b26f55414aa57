# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`benchmark/attack.py`: its shadows and its peer are federations of the same size."""

from dataclasses import replace

from fdrl_ros.privacy.ledger.content import read_content


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
