# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The links of a ledger through the rounds: a backup that respends is refused, the honest not."""

from fdrl_ros.errors import LedgerHeadError
from fdrl_ros.federation.hospital import state
from fdrl_ros.federation.protocol.ledger_watch import heads_seen
from fdrl_ros.federation.protocol.message import MaskedUpdate, Phase, RoundStatus, Verdict
from fdrl_ros.privacy.ledger.chain import DIGEST
import pytest
from support.federation_bench import Bench
from support.interception import Interception
from support.restored_hospital import backup, NAME, restore, run_to_policy

SERVERS = ('aggregator', 'key_authority')


def test_a_restored_machine_refuses_a_policy_of_what_it_forgot_that_it_sent(tmp_path):
    bench = Bench(tmp_path, rounds=4)
    run_to_policy(bench, 1)
    links = backup(bench)
    run_to_policy(bench, 2)
    restore(bench, links)
    assert not bench.run(ticks=50)
    assert 'summed an update that was never sent' in str(bench.driver.refused[0][1])
    assert bench.learners[NAME].trained == [1, 2]


@pytest.fixture(params=[1, 3])
def restored(tmp_path, request):
    """
    Return a federation in which a backup has spent again, unheard, before it sends an update.

    This hospital lies: it ignores the heads that the servers acknowledge. It took part in rounds 1
    and 2, of which its backup has the first, and not in 3. In round 4 it trains so many blocks,
    and nobody hears of it.
    """
    bench = Bench(tmp_path, hospitals=4, rounds=6)
    run_to_policy(bench, 1)
    links = backup(bench)
    run_to_policy(bench, 2)
    leave_out(bench)
    run_to_policy(bench, 3)
    bench.learners[NAME].blocks = request.param
    bench.learners[NAME].verify_ledger = lambda seen, by: None
    restore(bench, links)
    lost = [4]
    Interception(bench, MaskedUpdate, change=lambda m: [] if at(m, NAME, lost) else [m])
    bench.order('admit', NAME)
    assert bench.run(lambda: 4 in bench.learners[NAME].trained)
    leave_out(bench)
    run_to_policy(bench, 4)
    bench.order('admit', NAME)
    assert len(bench.learners[NAME].links) == 2 + request.param
    return bench


def at(message, name, rounds):
    return message.envelope.sender == name and message.envelope.round in rounds


def leave_out(bench):
    bench.order('withdraw', NAME)


def test_a_machine_restored_from_a_backup_is_refused_whatever_it_spends(restored):
    told = Interception(restored, RoundStatus)
    assert restored.run(lambda: restored.aggregator.left_out)
    grown = restored.learners[NAME].blocks > 1
    complaint = 'was rewritten' if grown else 'shrank'
    assert complaint in restored.aggregator.left_out[NAME]
    assert restored.run(lambda: restored.key_authority.round == 6)
    assert restored.aggregator.left_out.keys() == {NAME}
    assert restored.learners[NAME].trained == [1, 2, 4, 5, 6]
    # The others go on without it, and no attempt fails.
    assert Phase.FAILED not in {each.phase for each in told.messages}
    assert NAME not in restored.parties['hospital_1'].policy.contributors


def test_the_key_authority_refuses_it_too_where_the_aggregator_looks_away(restored):
    restored.aggregator.watch.take = lambda update: None
    told = Interception(restored, Verdict)
    assert restored.run(lambda: restored.key_authority.round == 5)
    assert {each.unaccounted for each in told.messages} == {(), (NAME,)}
    restored.run(ticks=1)
    policy = restored.parties['hospital_1'].policy
    assert not policy.rolled_back and NAME not in policy.contributors
    assert not restored.aggregator.orders.guilty  # it was restored, which is no fault


def test_a_hospital_whose_updates_were_lost_for_rounds_is_taken_again(tmp_path):
    bench = Bench(tmp_path, hospitals=4, rounds=5)
    lost = [MaskedUpdate]

    def lose(message):
        away = message.envelope.sender == NAME and message.envelope.round in (2, 3)
        return [] if away and lost else [message]

    Interception(bench, MaskedUpdate, change=lose)
    for round in (2, 3):
        # It trained, and nobody heard of it: the operator goes on without it.
        assert bench.run(lambda r=round: r in bench.learners[NAME].trained)
        bench.order('withdraw', NAME)
        assert bench.run(lambda r=round: bench.key_authority.round == r)
        bench.order('admit', NAME)
        assert {head.entries for head in heads(bench, NAME)} == {2}
    assert bench.run()
    assert {head.entries for head in heads(bench, NAME)} == {10}
    assert not [e for _, e in bench.driver.refused if isinstance(e, LedgerHeadError)]


def heads(bench, name):
    return [heads_seen(bench.directory / f'{server}.sqlite')[name] for server in SERVERS]


def test_a_server_that_lost_its_memory_takes_what_it_meets_first(tmp_path):
    bench = Bench(tmp_path, rounds=3)
    run_to_policy(bench, 2)
    bench.kill('aggregator')
    (tmp_path / 'aggregator.sqlite').unlink()
    bench.join('aggregator')
    assert bench.run()
    assert heads(bench, NAME) == [bench.learners[NAME].head()] * 2


def test_links_go_back_to_what_both_servers_saw_and_a_little_further(tmp_path, monkeypatch):
    monkeypatch.setattr(state, 'SPARE', 3)
    bench = Bench(tmp_path, hospitals=4, rounds=5)
    tap = Interception(bench, MaskedUpdate)
    assert bench.run(lambda: bench.key_authority.round == 3)
    leave_out(bench)
    run_to_policy(bench, 4)
    bench.order('admit', NAME)
    assert bench.run()
    sent = {}
    for message in tap.messages:
        if not message.chunk:
            place = (message.envelope.sender, message.envelope.round)
            sent[place] = len(message.ledger_links) // DIGEST
    # Two blocks a round; who was left out goes back to its last round that was summed.
    assert [sent['hospital_2', round] for round in (1, 2, 3, 4, 5)] == [2, 3, 3, 3, 3]
    trained = bench.learners[NAME].trained
    assert sent[NAME, 5] == max(3, 2 * len([each for each in trained if each > 3]))
