# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Lying servers never get two sums of one round, nor a sum that is one hospital's update."""

from dataclasses import replace

from fdrl_ros.errors import CryptoError, MessageError
from fdrl_ros.federation.protocol.message import (
    EncryptionKey,
    GlobalPolicy,
    Phase,
    RoundKey,
    RoundStatus,
)
from fdrl_ros.policy import digest_of, encode_weights
import numpy as np
import pytest
from support.federation_bench import Bench
from support.interception import Interception, refusals, resealed

VICTIM = 'hospital_3'


def tell_others(bench, kind, change):
    """Deliver something else of a kind to all hospitals but the victim."""
    deliver = bench.driver.deliver

    def lie(name, message):
        if isinstance(message, kind) and name in bench.names and name != VICTIM:
            message = change(message)
        deliver(name, message)

    bench.driver.deliver = lie


def test_hospitals_refuse_a_quantisation_that_they_did_not_agree_to():
    """Who is told a huge limit adds nothing: the sum would be the update of the one who is not."""
    bench = Bench(hospitals=5, rounds=1)
    tell_others(bench, EncryptionKey, lambda message: resealed(bench, message, limit=1e6))
    assert not bench.run(ticks=100)
    assert len({name for name, _ in refusals(bench, MessageError)}) == 4
    assert bench.key_authority.round == 0


def test_hospitals_that_start_from_different_policies_are_never_summed():
    """Weights of 1e10 swallow every step of float32: who has them adds nothing."""
    bench = Bench(hospitals=5, rounds=1)
    huge = np.full(bench.layout.n_parameters, 1e10, dtype=np.float32)
    fields = {'weights': encode_weights(huge), 'digest': digest_of(huge)}
    tell_others(bench, GlobalPolicy, lambda message: resealed(bench, message, **fields))
    tell_others(
        bench,
        RoundStatus,
        lambda message: resealed(
            bench,
            message,
            policy_digest=digest_of(huge),
            terms_digest=b'\0' * 32 if message.terms_digest else b'',
        ),
    )
    assert not bench.run(ticks=100)
    assert bench.key_authority.round == 0


def test_what_hospitals_rest_on_is_in_every_digest_that_they_sign():
    bench = Bench(hospitals=4, rounds=1)
    bench.run_to(Phase.SETTLE)
    state = bench.aggregator.state
    before = state.setup_digest
    state.record = replace(state.record, terms=bytes(32))
    del state.key_list, state.setup_digest
    assert state.setup_digest != before


def replayed(bench, name, messages):
    """Start a hospital again and give it old messages; return what it says and does."""
    hospital, said, jobs = bench.make(name), [], []
    for message in messages:
        try:
            effects = hospital.handle(message, 0.0)
        except (MessageError, CryptoError):
            continue
        said += effects.messages
        jobs += effects.jobs
    return said, jobs


def test_a_hospital_that_starts_again_never_works_at_a_round_that_is_over():
    """Its update of that round, summed over another set, would show itself."""
    bench = Bench(hospitals=5, rounds=3)
    tap = Interception(bench, GlobalPolicy, EncryptionKey, RoundStatus)
    assert bench.run(lambda: bench.key_authority.round == 1)
    bench.order('roll_back', to_round=0)
    assert bench.run(lambda: bench.aggregator.round == 3)
    bench.kill(VICTIM)
    opening = next(m for m in tap.messages if isinstance(m, RoundStatus) and m.phase == Phase.OPEN)
    key = next(m for m in tap.messages if isinstance(m, EncryptionKey))
    start = next(m for m in tap.messages if isinstance(m, GlobalPolicy))
    for attempt in (1, 7):
        envelope = replace(opening.envelope, attempt=attempt)
        status = resealed(bench, replace(opening, envelope=envelope))
        said, jobs = replayed(bench, VICTIM, [key, start, status])
        assert not [m for m in said if isinstance(m, RoundKey)] and not jobs, attempt


@pytest.mark.parametrize('order', ['pause', 'stop'])
def test_stop_and_pause_hold_whatever_the_key_authority_does(order):
    bench = Bench(rounds=2)
    bench.run_to(Phase.SUM)
    aggregator = bench.aggregator
    bench.order(order)
    bench.kill('key_authority')
    bench.secret = type(bench.secret).generate(bench.scheme)
    bench.join('key_authority')
    bench.wait(300)
    assert aggregator.phase in (Phase.PAUSED, Phase.FINISHED)
    assert bench.key_authority.round == 0


def test_resuming_after_the_last_round_trains_no_further():
    bench = Bench(rounds=1)
    assert bench.run()
    bench.restart('aggregator')
    bench.order('pause')
    assert bench.aggregator.phase is Phase.PAUSED
    bench.order('resume')
    bench.wait(50)
    assert bench.aggregator.phase is Phase.FINISHED
    assert all(learner.trained == [1] for learner in bench.learners.values())


@pytest.mark.parametrize('round', [1, 2])
def test_a_seed_that_was_erased_is_not_drawn_again(round):
    bench = Bench(rounds=2)
    assert bench.run()
    bench.kill('hospital_1')
    hospital = bench.make('hospital_1')
    with pytest.raises(CryptoError, match='is over'):
        hospital.seeds.of(round)
