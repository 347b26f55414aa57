# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Every party writes down what it did, and the journals of a run agree, kills or not."""

from dataclasses import replace

from fdrl_ros.federation.journal.journal import read
from fdrl_ros.federation.protocol.message import DecryptRequest, Phase
from support.interception import Interception, resealed
from support.journaled_federation import Journaled


def kinds(path):
    return [entry.kind for entry in read(path)]


def test_journals_of_a_run_say_who_contributed_to_what_and_agree(tmp_path):
    bench = Journaled(tmp_path, hospitals=4, rounds=2)
    bench.run_to(Phase.TRAIN)
    bench.kill('hospital_4')
    assert bench.run()
    paths = bench.paths()
    found = bench.compared()
    assert not found.problems and set(found.released) == {1, 2}
    release = [entry for entry in read(paths['key_authority']) if entry.kind == 'release']
    assert [set(entry.fields['contributors']) for entry in release] == [set(bench.names[:3])] * 2
    assert release[0].fields['contributors']['hospital_2']['size'] == 20
    hospital = kinds(paths['hospital_1'])
    assert (
        hospital == ['begin', 'policy'] + ['sent', 'projected', 'signed', 'revealed', 'policy'] * 2
    )
    assert {'open', 'settle'} <= set(kinds(paths['aggregator']))


def test_a_request_that_is_refused_again_and_again_does_not_fill_the_journal(tmp_path):
    bench = Journaled(tmp_path, rounds=1)
    asked = Interception(bench, DecryptRequest).messages
    assert bench.run(lambda: bool(asked))
    authority = bench.key_authority
    for number in range(50):
        bad = resealed(bench, asked[0], sum_hash=bytes([number]) * 32, settles=())
        authority.handle(bad, bench.driver.now)
    path = bench.paths()['key_authority']
    assert kinds(path).count('refuse') == 1


def test_requests_that_name_others_each_time_do_not_fill_the_journal_or_the_log(tmp_path):
    """Every refusal has words of its own, which the aggregator chooses."""
    bench = Journaled(tmp_path, rounds=1)
    asked = Interception(bench, DecryptRequest, change=lambda message: []).messages
    assert bench.run(lambda: bool(asked))
    authority, notes = bench.key_authority, 0
    for number in range(300):
        bad = resealed(bench, asked[0], members=('hospital_1', f'hospital_{number:05}'))
        if number % 2:  # of other rounds as well
            envelope = replace(asked[0].envelope, round=number)
            bad = resealed(bench, replace(asked[0], envelope=envelope))
        notes += len(authority.handle(bad, bench.driver.now).notes)
    path = bench.paths()['key_authority']
    assert 20 <= kinds(path).count('refuse') == notes <= 20 + 5
    authority.handle(resealed(bench, asked[0]), bench.driver.now)  # and a good one is taken
    assert kinds(path).count('refuse') == notes
