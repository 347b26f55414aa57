# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
State files that were deleted, or put back from a copy, beside a journal that knows better.

Nothing that was said is said otherwise, nothing is decrypted twice, and who was killed in the
middle of a write is not taken for one who lost anything.
"""

from collections import defaultdict
import shutil

from fdrl_ros.errors import ReplayError, StateLostError
from fdrl_ros.federation.journal.journal import read
from fdrl_ros.federation.protocol.message import (
    GlobalPolicy,
    MaskedUpdate,
    Phase,
    Reveal,
)
from fdrl_ros.federation.protocol.orders import ORDER_AGE, sign_order
import pytest
from support.journaled_federation import Journaled
from support.restarts import (
    check_nothing_is_reused,
    check_said_once,
    points_of,
    policy_of,
    RestartBench,
)

PHASES = (Phase.SHARE, Phase.TRAIN, Phase.SETTLE, Phase.REVEAL, Phase.SUM)
LOSSES = [
    *((phase, 'older') for phase in PHASES),
    (Phase.TRAIN, 'deleted'),
    (Phase.REVEAL, 'deleted'),
    (Phase.SETTLE, 'newest'),
]
"""When a party loses its state, and what it finds in its place."""
NOON = 1_800_000_000.0
"""Some time, in seconds since 1970."""


class Watched(Journaled):
    """Keeps all that was said, and what lies on the disk at some moment."""

    def __init__(self, directory, **options):
        self.said = []
        super().__init__(directory, **options)
        self.clocks.update(dict.fromkeys(self.clocks, NOON))
        post = self.driver.post
        self.driver.post = lambda message: (self.said.append(message), post(message))

    def files(self, name, folder):
        return [*folder.glob(f'{name}.sqlite*'), *folder.glob(f'{name}.*.spool')]

    def copy(self, name):
        """Copy a party's state as it is, as a backup would."""
        folder = self.directory / 'copy'
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self.kill(name)
        for path in self.files(name, self.directory):
            shutil.copy(path, folder / path.name)
        self.join(name)

    def lose(self, name, loss):
        """Kill a party, and put back what a backup has of its state, or nothing."""
        self.kill(name)
        self.clocks[name] += 20.0
        if loss == 'newest':
            return
        for path in self.files(name, self.directory):
            path.unlink()
        if loss == 'older':
            for path in self.files(name, self.directory / 'copy'):
                shutil.copy(path, self.directory / path.name)

    def check_nothing_is_said_otherwise(self, name):
        """Check what a hospital said in all its lives, and that its promises held."""
        check_said_once(each for each in self.said if each.envelope.sender == name)
        revealed = defaultdict(set)
        for entry in read(self.paths()[name]):
            if entry.kind == 'revealed':
                revealed[entry.round].add(tuple(entry.fields['seeds']))
        assert all(len(each) == 1 for each in revealed.values())


def warnings(caplog):
    return [each.getMessage() for each in caplog.records if 'recovery' in each.name]


@pytest.fixture(params=LOSSES)
def lost(tmp_path, caplog, request):
    """Return how to play three rounds in the second of which a party loses its state."""
    phase, loss = request.param

    def play(name):
        bench = Watched(tmp_path, hospitals=4, rounds=3)
        bench.run_to(Phase.TRAIN)
        bench.copy(name)
        bench.run_to(phase, 2)
        bench.lose(name, loss)
        bench.join(name)
        assert bench.run()
        told = warnings(caplog)
        assert bool(told) == (loss != 'newest')
        assert all(f'state file of {name} was lost or is an older copy' in each for each in told)
        return bench

    return play


def test_a_hospital_closes_the_attempts_that_its_journal_tells_of(lost):
    bench = lost('hospital_1')
    bench.check_nothing_is_said_otherwise('hospital_1')
    (last,) = {m.contributors for m in bench.said if is_policy(m, 3)}
    assert 'hospital_1' in last
    assert not bench.compared().problems


def test_an_aggregator_goes_on_above_all_that_its_journal_tells_of(lost):
    bench = lost('aggregator')
    opened = [e for e in read(bench.paths()['aggregator']) if e.kind == 'open']
    tries = [(e.round, e.attempt) for e in opened]
    assert tries == sorted(set(tries)) and tries[-1][0] == 3
    assert not bench.compared().problems


def is_policy(message, round):
    return isinstance(message, GlobalPolicy) and message.envelope.round == round


def test_of_three_hospitals_one_that_lost_its_state_comes_back_in_the_next_attempt(tmp_path):
    bench = Watched(tmp_path, hospitals=3, rounds=2)
    assert bench.run(lambda: any(isinstance(m, MaskedUpdate) for m in bench.said))
    first = bench.said[-1].envelope.sender
    bench.lose(first, 'deleted')
    bench.join(first)
    assert bench.run()
    bench.check_nothing_is_said_otherwise(first)
    (policy,) = {m.envelope.attempt for m in bench.said if is_policy(m, 1)}
    assert policy == 2 and not bench.compared().problems


def test_a_hospital_never_reveals_for_another_set_though_it_lost_its_state(tmp_path):
    bench = Watched(tmp_path, hospitals=4, rounds=3)
    name = 'hospital_1'

    def revealed():
        return [m for m in bench.said if isinstance(m, Reveal) and m.envelope.sender == name]

    assert bench.run(lambda: len(revealed()) == 2)
    record = bench.parties[name].state.record
    bench.lose(name, 'deleted')
    bench.join(name)
    state = bench.parties[name].state
    assert state.record.of(2).revealed and state.floor == (2, 2)
    assert (state.record.of(2), state.record.over) == (record.of(2), 1)
    before = len(revealed())
    assert bench.run(lambda: bench.aggregator.round == 3)
    assert len(revealed()) == before


def test_a_seed_without_state_and_journal_is_never_used_again(tmp_path):
    bench = Watched(tmp_path, hospitals=4, rounds=2)
    name = 'hospital_1'
    bench.run_to(Phase.TRAIN)
    (seed,) = (tmp_path / f'{name}_seeds').glob('*.seed')
    before = seed.read_bytes()
    bench.lose(name, 'deleted')
    bench.paths()[name].unlink()
    bench.join(name)
    assert not seed.exists() or seed.read_bytes() != before
    assert bench.run()


@pytest.mark.parametrize('copied', [Phase.SETTLE, Phase.REVEAL])
def test_an_older_state_of_an_aggregator_needs_no_updates_of_its_attempt(tmp_path, copied):
    bench = Watched(tmp_path, hospitals=3, rounds=2)
    assert bench.run(lambda: bench.aggregator.phase is copied)
    bench.copy('aggregator')
    bench.run_to(Phase.TRAIN, 2)
    bench.lose('aggregator', 'older')
    for spool in tmp_path.glob('aggregator.*.spool'):
        spool.unlink()
    bench.join('aggregator')
    assert bench.run()
    assert bench.aggregator.phase is Phase.FINISHED and not bench.compared().problems


@pytest.mark.parametrize('loss', ['deleted', 'older'])
def test_orders_survive_the_loss_of_the_aggregator_s_state(tmp_path, loss):
    bench = Watched(tmp_path, hospitals=5, rounds=3)
    bench.copy('aggregator')
    bench.run_to(Phase.TRAIN)
    bench.order('withdraw', 'hospital_5')
    bench.order('withdraw', 'hospital_4')
    bench.order('admit', 'hospital_4')
    pause = bench.signed_order('pause')
    bench.aggregator.handle(pause, bench.driver.now)
    bench.lose('aggregator', loss)
    bench.join('aggregator')
    bench.wait(50)
    aggregator = bench.aggregator
    assert aggregator.phase is Phase.PAUSED and 'hospital_5' not in aggregator.orders.admitted
    assert 'hospital_4' in aggregator.orders.admitted
    with pytest.raises(ReplayError):
        aggregator.handle(pause, bench.driver.now)
    bench.clocks['aggregator'] += 61.0
    bench.order('stop')
    bench.lose('aggregator', loss)
    bench.join('aggregator')
    bench.wait(50)
    assert bench.aggregator.phase is Phase.FINISHED and bench.key_authority.round == 0


def test_no_order_that_may_have_been_taken_counts_after_a_loss_of_state(tmp_path):
    bench = Watched(tmp_path, hospitals=4, rounds=3)
    bench.run_to(Phase.TRAIN)
    operator = bench.identities['operator']
    ahead = [
        sign_order(operator, 'test', action, NOON + off)
        for action, off in (('pause', ORDER_AGE - 10.0), ('resume', ORDER_AGE - 9.0))
    ]
    for order in ahead:
        bench.aggregator.handle(order, bench.driver.now)
    bench.lose('aggregator', 'deleted')
    bench.join('aggregator')
    for order in (*ahead, bench.signed_order('stop')):
        with pytest.raises(ReplayError, match='who lost its state takes none for 60 s'):
            bench.aggregator.handle(order, bench.driver.now)
    bench.clocks['aggregator'] += ORDER_AGE + 1.0
    bench.order('pause')
    assert bench.aggregator.phase is Phase.PAUSED


@pytest.mark.parametrize('loss', ['deleted', 'older'])
@pytest.mark.parametrize('when', [(2, Phase.OPEN), (2, Phase.TRAIN), (3, Phase.SETTLE)])
def test_a_key_authority_without_its_newest_state_refuses_to_start(tmp_path, loss, when):
    bench = Watched(tmp_path, hospitals=3, rounds=3)
    bench.copy('key_authority')
    assert bench.run(lambda: (bench.aggregator.round, bench.aggregator.phase) == when)
    newest = tmp_path / 'newest'
    newest.mkdir()
    bench.kill('key_authority')
    for path in bench.files('key_authority', tmp_path):
        shutil.copy(path, newest)
    bench.join('key_authority')
    bench.lose('key_authority', loss)
    for _ in range(2):  # whoever tries again is refused again
        with pytest.raises(StateLostError, match='older copy.*put back the newest state file'):
            bench.join('key_authority')
        bench.stores.pop('key_authority').close()
    for path in bench.files('key_authority', tmp_path):
        path.unlink()
    for path in newest.iterdir():
        shutil.copy(path, tmp_path / path.name)
    bench.join('key_authority')
    assert bench.run()


def test_a_key_authority_that_forgot_which_sum_it_began_to_decrypt_refuses(tmp_path):
    bench = Watched(tmp_path, hospitals=3, rounds=2)
    bench.run_to(Phase.SETTLE)
    bench.copy('key_authority')

    def die(weights):
        raise KeyboardInterrupt

    bench.validate = die
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    bench.lose('key_authority', 'older')
    with pytest.raises(StateLostError, match='a decryption in round 1, and the state does not'):
        bench.join('key_authority')


@pytest.mark.parametrize('loss', ['deleted', 'older'])
def test_a_key_authority_that_forgot_nothing_that_matters_goes_on(tmp_path, caplog, loss):
    bench = Watched(tmp_path, hospitals=3, rounds=2)
    bench.copy('key_authority')
    bench.run_to(Phase.SETTLE)
    bench.lose('key_authority', loss)
    bench.join('key_authority')
    assert bench.run()
    assert bool(warnings(caplog)) == (loss == 'deleted')
    refused = [str(error) for _, error in bench.driver.refused]
    assert not [each for each in refused if 'replayed' in each]
    assert not bench.compared().problems


class JournaledRestarts(Journaled, RestartBench):
    """A federation with journals, whose parties may die at any write, also of those."""


def test_a_kill_at_any_write_is_not_taken_for_a_lost_state(tmp_path, caplog):
    (tmp_path / 'all').mkdir()
    points = [
        point
        for point in points_of(tmp_path / 'all', 3, 2, bench=JournaledRestarts)
        if point.kind.endswith('write')
    ]
    policies = set()
    for number, point in enumerate(points[::27]):
        directory = tmp_path / str(number)
        directory.mkdir()
        bench = JournaledRestarts(directory, 3, 2, [point])
        assert bench.run(ticks=3000), point
        assert bench.driver.killed == [point]
        policies.add(policy_of(bench))
        check_nothing_is_reused(bench)
        assert not warnings(caplog) and not bench.compared().problems, point
    assert len(policies) == 1 and number > 8
