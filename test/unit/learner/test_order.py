# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A block is charged, durably, before anything of it is drawn, and kept durably after."""

import os
from pathlib import Path
import sqlite3
import threading

from fdrl_ros.errors import BudgetExceededError
from fdrl_ros.learner.online import OnlineSettings, OnlineTrainer
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.privacy.accountant.accountant import Charge
from fdrl_ros.privacy.ledger.ledger import Ledger
import pytest
from support.small_hospital import (
    Draws,
    ledger_of,
    PRIVACY,
    RecordedNoise,
    records,
    SHAPE,
    START,
    trained,
)

LEARNER = LearnerSettings(epochs=3, transitions_per_patient=2, target_period=3)
ONLINE = OnlineSettings(rounds=4, patients=5, warm_up=10)
STEPS = 2  # of a block: 10 patients, 5 of them in a step

WAYS = ['train', 'train_on', 'online']


class Collector:
    """Patients who are there already."""

    def collect(self, policy, exploration, first, count):
        return records(count, first)


def run(way: str, home: Path, told: Draws) -> None:
    """Train, in one of the ways in which something is ever drawn."""
    ledger, source = ledger_of(home, 'a', PRIVACY), RecordedNoise('a', told)
    setup = TrainingSetup(SHAPE, LEARNER, PRIVACY, ledger, source)
    if way == 'online':
        OnlineTrainer(setup, Collector(), ONLINE, home).train(START)
        return
    trainer, state = Trainer(setup, records(), home / 'a.state'), None
    if way == 'train':
        trained(trainer, START)
        return
    for round in (1, 2, 3):
        state = trainer.train_on(state, START, round, stopped=lambda: False)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Draws:
    """Note every granted reservation, and every draw of a `RecordedNoise`."""
    order: Draws = []
    reserve = Ledger.reserve

    def heard(self, **named):
        made = reserve(self, **named)
        order.append(('reserved', self.owner.hospital, named['round'], named['block']))
        return made

    monkeypatch.setattr(Ledger, 'reserve', heard)
    return order


@pytest.mark.parametrize('way', WAYS)
def test_every_block_is_reserved_before_anything_of_it_is_drawn(tmp_path, told, way):
    run(way, tmp_path, told)
    reserved: dict[tuple[str, int], int] = {}
    first: dict[tuple[str, int], int] = {}
    for what, hospital, round, number in told:
        name = hospital, round
        if what == 'reserved':
            assert number == reserved.get(name, 0)
            reserved[name] = number + 1
        else:
            # Steps are counted through the rounds of an online learner, blocks in each.
            block = 0 if way in ('train_on', 'online') else number // STEPS
            assert block < reserved.get(name, 0), f'{name}: step {number} was drawn too early'
            first.setdefault(name, number)
    assert set(first) == set(reserved)
    rounds = {'online': {2, 3, 4}, 'train_on': {1, 2, 3}}.get(way, {1})
    assert set(reserved) == {('a', round) for round in rounds}


@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize('granted', [0, 1])
def test_a_block_that_the_ledger_refuses_draws_nothing(tmp_path, told, monkeypatch, way, granted):
    grant = Ledger.reserve

    def reserve(self, **named):
        if sum(what == 'reserved' for what, *_ in told) >= granted:
            raise BudgetExceededError(spent=1.0, wanted=2.0, budget=1.0)
        return grant(self, **named)

    monkeypatch.setattr(Ledger, 'reserve', reserve)
    with pytest.raises(BudgetExceededError):
        run(way, tmp_path, told)
    drawn = {(hospital, round, step) for what, hospital, round, step in told if what == 'drawn'}
    round, steps = (2, 5) if way == 'online' else (1, STEPS)
    assert drawn == {('a', round, step) for step in range(steps * granted)}


def test_a_reservation_is_synced_with_the_end_of_its_journal(tmp_path, monkeypatch):
    """What SQLite's connection says of itself when a reservation is written."""
    opened, connect = [], sqlite3.connect
    statements: list[str] = []

    def noted(*given, **named):
        opened.append(connect(*given, **named))
        opened[-1].set_trace_callback(statements.append)
        return opened[-1]

    monkeypatch.setattr(sqlite3, 'connect', noted)
    with ledger_of(tmp_path, 'a', PRIVACY) as ledger:
        statements.clear()
        ledger.reserve(round=1, block=0, charge=Charge(2.0, 0.5, 2), inputs=bytes(32))
        assert statements[0].startswith('BEGIN') and statements[-1] == 'COMMIT'
        assert not any('PRAGMA' in statement.upper() for statement in statements)
        writer = opened[-1]
        assert writer.execute('PRAGMA synchronous').fetchone() == (3,)  # EXTRA
        assert writer.execute('PRAGMA journal_mode').fetchone() == ('delete',)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    """Hear which files were synced, with what was in them."""
    heard: list[tuple[str, bytes]] = []

    def hear(sync):
        def noted(file):
            path = Path(os.readlink(f'/proc/self/fd/{file}'))
            sync(file)
            if path.is_file():
                heard.append((path.name, path.read_bytes()))

        return noted

    for name in ('fsync', 'fdatasync'):
        monkeypatch.setattr(os, name, hear(getattr(os, name)))
    return heard


def test_a_checkpoint_is_whole_on_the_disk_before_it_takes_the_old_one_s_place(
    tmp_path, monkeypatch, synced
):
    seen, move = [], Path.replace

    def noted(self, target):
        seen.append((self.name, self.read_bytes()) in synced)
        return move(self, target)

    monkeypatch.setattr(Path, 'replace', noted)
    run('train', tmp_path, [])
    assert seen == [True] * LEARNER.epochs
    assert synced[-1][1] == (tmp_path / 'a.state').read_bytes()


def test_the_state_after_each_round_is_on_the_disk_before_the_other_is_written(
    tmp_path, monkeypatch, synced
):
    wrong, pwrite, fsync = [], os.pwrite, os.fsync
    names = ['turn_0.checkpoint', 'turn_1.checkpoint']
    writing = threading.Event()

    def slow(file):
        if Path(os.readlink(f'/proc/self/fd/{file}')).name in names:
            writing.wait(0.05)  # a disk that is slower than whoever does not wait for it
        fsync(file)

    def noted(file, data, at):
        path = Path(os.readlink(f'/proc/self/fd/{file}'))
        if path.name in names:
            other = tmp_path / names[1 - names.index(path.name)]
            if other.exists() and (other.name, other.read_bytes()) not in synced:
                wrong.append(path.name)
                writing.set()
        return pwrite(file, data, at)

    monkeypatch.setattr(os, 'pwrite', noted)
    monkeypatch.setattr(os, 'fsync', slow)
    run('online', tmp_path, [])
    assert wrong == []
    for name in names:
        assert (name, (tmp_path / name).read_bytes()) in synced


def test_the_patients_of_a_round_are_on_the_disk_before_anything_is_learned_from_them(
    tmp_path, monkeypatch, synced
):
    reserve, seen = Ledger.reserve, []

    def noted(self, **named):
        whole = (tmp_path / 'patients.turns').read_bytes()
        seen.append(('patients.turns', whole) in synced)
        return reserve(self, **named)

    monkeypatch.setattr(Ledger, 'reserve', noted)
    run('online', tmp_path, [])
    assert seen == [True] * 3
