# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`benchmark/learner.py`: what it promises to measure, and that ours holds all that it claims."""

from dataclasses import replace

from fdrl_ros.privacy.ledger.content import read_content
import pytest


@pytest.fixture
def work(module, monkeypatch):
    work = module('learner_work')
    monkeypatch.setattr(work, 'PATIENTS', 40)
    monkeypatch.setattr(work, 'EPOCHS', 2)
    monkeypatch.setattr(work, 'HOSPITALS', 3)
    return work


def ledgers(folder):
    return [read_content(path).chain.history() for path in sorted(folder.glob('*/ledger.sqlite'))]


@pytest.mark.parametrize('unit', ['transition', 'patient'])
def test_a_private_step_takes_as_many_transitions_at_either_level_and_is_charged(
    work, tmp_path, unit
):
    steps = work.private_steps(work.SMALL, tmp_path, unit)
    assert steps() == steps() == 2 * 32  # 1,000 transitions in batches of 32
    [history] = ledgers(tmp_path)
    assert [each.steps for each in history] == [32] * 4
    rates = {'transition': 32 / 1000, 'patient': 8 / 40}
    assert {each.sampling_probability for each in history} == {rates[unit]}


def test_hospitals_that_are_trained_together_keep_a_ledger_each(work, tmp_path):
    assert work.hospitals_steps(work.SMALL, tmp_path)() == 3 * 2 * 32
    assert [len(history) for history in ledgers(tmp_path)] == [2, 2, 2]


def test_cart_pole_is_updated_once_for_each_step_in_the_env(work, tmp_path, monkeypatch):
    monkeypatch.setattr(work, 'ONLINE', replace(work.ONLINE, rounds=4))
    steps = work.cart_pole_steps(tmp_path)()
    [history] = ledgers(tmp_path)
    assert sum(each.steps for each in history) == steps > 64
    assert len({each.sampling_probability for each in history}) == 4


def test_the_peer_s_network_is_ours(module, work):
    pytest.importorskip('torch')
    peers = module('learner_peers')
    for size in (work.SMALL, work.LARGE):
        dueling, plain = (
            sum(each.numel() for each in peers.network(size, kind).parameters())
            for kind in (True, False)
        )
        assert dueling == size.shape.n_parameters == plain + size.hidden + 1
