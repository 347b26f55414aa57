# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A hospital restored from an older copy hears of it, stops, and delays nobody."""

from fdrl_ros.errors import BudgetExceededError, MessageError
from fdrl_ros.federation.protocol.message import (
    Decline,
    DeclineReason,
    HospitalPolicy,
    LedgerHeads,
    message_from_bytes,
    MOST_WORDS,
    Phase,
)
import pytest
from support.federation_bench import Bench
from support.interception import Interception, resealed
from support.restored_hospital import backup, NAME, restore, run_to_policy


def test_it_publishes_no_epsilon_below_the_truth_and_no_policy(tmp_path):
    """It says why, and the others wait for no deadline of training."""
    bench = Bench(tmp_path, hospitals=4, rounds=6)
    run_to_policy(bench, 1)
    links = backup(bench)
    run_to_policy(bench, 4)
    released, declined = Interception(bench, HospitalPolicy), Interception(bench, Decline)
    began = bench.driver.now
    restore(bench, links)
    assert bench.run(lambda: bench.aggregator.left_out)
    hospital = bench.parties[NAME]
    assert 'lacks the head 8:' in bench.aggregator.left_out[NAME]
    assert hospital.restored and not hospital.acknowledged
    assert 'key authority' in hospital.problem
    assert bench.run(lambda: bench.key_authority.round == 6)
    assert bench.driver.now - began < bench.settings.open_timeout
    bench.wait(5)
    assert {each.envelope.sender for each in released.messages} == set(bench.names) - {NAME}
    assert bench.learners[NAME].trained == [1, 2, 3, 4]
    assert [each.envelope.round for each in declined.messages] == [5, 6]
    assert {each.reason for each in declined.messages} == {DeclineReason.LEDGER}


def test_it_takes_part_again_with_its_newest_ledger(tmp_path):
    bench = Bench(tmp_path, hospitals=3, rounds=4)
    run_to_policy(bench, 2)
    newest = list(bench.learners[NAME].links)
    bench.kill(NAME)
    bench.learners[NAME].links = newest[:2]
    bench.join(NAME)
    assert not bench.run(ticks=50)
    assert bench.aggregator.left_out.keys() == {NAME} and bench.key_authority.round == 2
    bench.kill(NAME)
    bench.learners[NAME].links = newest
    bench.join(NAME)
    assert bench.run()
    assert bench.aggregator.left_out == {}
    assert bench.learners[NAME].trained == [1, 2, 3, 4]


@pytest.mark.parametrize('server', ['aggregator', 'key_authority'])
def test_it_waits_for_both_servers_before_it_trains(tmp_path, server):
    bench = Bench(tmp_path)
    Interception(bench, LedgerHeads, change=lambda m: [] if m.envelope.sender == server else [m])
    assert not bench.run(lambda: bench.learners[NAME].trained, ticks=50)


def test_it_releases_nothing_before_the_key_authority_saw_its_ledger(tmp_path):
    bench = Bench(tmp_path, hospitals=4, rounds=1)

    def first_heads(message):
        """Let nobody hear of heads that the key authority saw."""
        old = message.sender == 'key_authority'
        return [resealed(bench, message, head=b'') if old else message]

    Interception(bench, LedgerHeads, change=first_heads)
    released = Interception(bench, HospitalPolicy)
    assert bench.run()
    bench.wait(5)
    assert bench.learners[NAME].trained == [1] and released.messages == []


def test_heads_are_durable_before_they_are_acknowledged(tmp_path):
    bench = Bench(tmp_path, hospitals=3, rounds=2)
    events: dict[str, list[str]] = {'aggregator': [], 'key_authority': []}

    def watched(server, event, call):
        def kept(*arguments):
            if not arguments or arguments[0].startswith('ledger '):
                events[server].append(event)
            call(*arguments)

        return kept

    for server in events:
        store = bench.stores[server]
        store.note = watched(server, 'note', store.note)
        store.sync = watched(server, 'sync', store.sync)
    heads = Interception(
        bench, LedgerHeads, change=lambda m: events[m.envelope.sender].append('heads') or [m]
    )
    assert bench.run()
    for server, seen in events.items():
        notes = [at for at, event in enumerate(seen) if event == 'note']
        assert len(notes) == 6
        for at in notes:
            after = seen[at:]
            assert after.index('sync') < after.index('heads')
        last = {each.to: each.head for each in heads.messages if each.sender == server}
        for name in bench.names:
            assert last[name] == bench.learners[name].head().to_bytes()


def test_a_head_of_a_round_that_was_rolled_back_is_acknowledged_too(tmp_path):
    """As when a backup from before that round is put back: nobody summed its update."""
    bench = Bench(tmp_path, hospitals=4, rounds=6)
    run_to_policy(bench, 3)
    links = backup(bench)
    assert bench.run(
        lambda: 4 in bench.learners[NAME].trained and bench.aggregator.phase is Phase.SETTLE
    )
    bench.order('roll_back', to_round=2)
    restore(bench, links)
    released = Interception(bench, HospitalPolicy)
    assert bench.run(lambda: bench.key_authority.round == 6)
    assert bench.learners[NAME].trained == [1, 2, 3, 4]
    assert bench.parties[NAME].restored
    assert NAME not in {each.envelope.sender for each in released.messages}


def test_replayed_heads_count_for_nothing(tmp_path):
    bench = Bench(tmp_path, hospitals=4, rounds=6)
    old = Interception(bench, LedgerHeads)
    run_to_policy(bench, 1)
    first = list(old.messages)
    links = backup(bench)
    run_to_policy(bench, 4)
    restore(bench, links)
    Interception(bench, LedgerHeads, change=lambda m: [])  # the network holds the newest back
    bench.driver.latched = {
        key: each for key, each in bench.driver.latched.items() if key[1] is not LedgerHeads
    }
    hospital = bench.parties[NAME]
    bench.driver.queue.clear()
    for message in first:
        bench.driver.deliver(NAME, message)
    for message in bench.driver.latched.values():
        bench.driver.deliver(NAME, message)
    bench.wait(50)
    assert not hospital.acknowledged and bench.learners[NAME].trained == [1, 2, 3, 4]


def test_a_decline_is_short_and_printable(tmp_path):
    bench = Bench(tmp_path, hospitals=3, rounds=1)
    bench.run_to(Phase.OPEN)
    channel = bench.parties[NAME].channel
    for detail in ('two\nlines', 'x' * (MOST_WORDS + 1)):
        with pytest.raises(MessageError):
            said = channel.sign(Decline, 1, 1, reason=1, detail=detail)
            bench.aggregator.handle(message_from_bytes(said.to_bytes()), 0.0)
    assert bench.aggregator.left_out == {}


def test_how_much_of_a_shared_account_is_spent_stays_in_the_hospital(tmp_path):
    bench = Bench(tmp_path, hospitals=4, rounds=1)

    def refuse(round):
        raise BudgetExceededError(7.25, 9.0, 8.0, shared=True)

    bench.learners[NAME].check_affordable = refuse
    assert bench.run(lambda: bench.aggregator.left_out)
    told = bench.aggregator.left_out[NAME]
    assert told == bench.parties[NAME].problem and 'shared account' in told
    assert '7.25' not in told and '9' not in told
    assert bench.run() and bench.learners[NAME].trained == []


def test_why_a_hospital_was_left_out_is_over_with_its_round(tmp_path):
    bench = Bench(tmp_path, hospitals=4, rounds=1)
    assert bench.run(lambda: bench.learners[NAME].trained)
    bench.aggregator._unaccounted[NAME] = 'it lost its ledger'
    assert bench.aggregator.left_out == {NAME: 'it lost its ledger'}
    assert bench.run()
    assert bench.aggregator.left_out == {}
