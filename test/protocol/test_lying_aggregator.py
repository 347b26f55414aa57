# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
An aggregator that lies, with c < 2t - n hospitals on its side, gains nothing and is noticed.

It has the secret key of the encryption too, so what it can compute is what masks do not hide: of
one round one sum, over the honest hospitals of one survivor set, whatever it told to whom.
`test/nightly/test_lies_in_full.py` tells many more random lies.
"""

from dataclasses import replace

from fdrl_ros.crypto.masking.share_sealing import PARCEL_BYTES
from fdrl_ros.federation.protocol.attempt import key_list
from fdrl_ros.federation.protocol.message import (
    DecryptRequest,
    MaskedUpdate,
    Phase,
    Relay,
    Reveal,
    RoundKey,
    RoundStatus,
    Settle,
    Verdict,
)
import pytest
from support.federation_bench import Bench
from support.interception import Interception, resealed
from support.liar import gains_nothing, Liar, lie_at_random, Story
from support.rings import HOSPITALS, NEIGHBOURS, small_rings

FIRST, SECOND = (1, 1), (1, 2)


def near(graph):
    """Tell whether all of whom these lies are, and to whom, are neighbours in a ring."""
    ours = {'hospital_1', 'hospital_2'}
    return graph.witnesses > ours and {'hospital_2', *LAST} <= {*graph.peers('hospital_1')}


LAST = ('hospital_11', 'hospital_12')


@pytest.fixture(params=['all mask with all', 'a ring'])
def liar(request):
    """Return a liar with two hospitals of five on its side, or two of twelve in a ring."""
    if request.param == 'a ring':
        with small_rings(near):
            yield Liar(HOSPITALS, len(LAST), seed=1, neighbours=NEIGHBOURS)
    else:
        yield Liar(5, 2, seed=1)


def everybody(liar, **changes):
    names = tuple(liar.bench.names)
    return replace(Story(names, names, names), **changes)


def without(liar, *numbers):
    left = {f'hospital_{number}' for number in numbers}
    return tuple(name for name in liar.bench.names if name not in left)


def too_few(liar):
    return tuple(liar.bench.names[: liar.bench.roster.quorum - 1])


OTHER_SURVIVORS = 'signed other survivors than this hospital was told of'

TO_ONE = {
    'other survivors': (lambda liar: {'survivors': without(liar, 2)}, OTHER_SURVIVORS),
    'that it did not survive': (lambda liar: {'survivors': without(liar, 1)}, OTHER_SURVIVORS),
    'other members': (
        lambda liar: dict.fromkeys(('members', 'survivors'), without(liar, 2)),
        OTHER_SURVIVORS,
    ),
    'other names in the list of keys': (
        lambda liar: dict.fromkeys(('keyed', 'members', 'survivors'), without(liar, 2)),
        'not signed by its dealer',
    ),
    'other keys of its own hospitals': (lambda liar: {'variant': 1}, 'not signed by its dealer'),
}
"""What one hospital is told otherwise than the others, and what somebody will complain of."""

TO_ALL = {
    'members too few': (
        lambda liar: dict.fromkeys(('members', 'survivors'), too_few(liar)),
        'are too few',
    ),
    'survivors too few': (lambda liar: {'survivors': too_few(liar)}, 'are too few'),
    'survivors that are no members': (lambda liar: {'members': without(liar, 2)}, 'not all of'),
}
"""What all hospitals are told."""


@pytest.mark.parametrize('name', [*TO_ONE, *TO_ALL])
def test_each_list_that_lies_is_noticed_and_gains_nothing(name, liar):
    changes, expected = (TO_ONE | TO_ALL)[name]
    lied = everybody(liar, **changes(liar))
    others = everybody(liar) if name in TO_ONE else lied
    liar.run_attempt(FIRST, dict.fromkeys(liar.honest, others) | {'hospital_1': lied})
    assert any(expected in complaint for _, complaint in liar.caught()), liar.caught()
    assert gains_nothing(liar)


LIES: dict = {}
"""What may be said to whom, and what somebody will complain of."""


def noticed_as(complaint):
    """Add a lie."""

    def add(lie):
        LIES[lie.__name__] = lie, complaint
        return lie

    return add


@noticed_as('not signed by its dealer')
def other_keys_of_its_own_hospitals_to_half(liar):
    stories = [everybody(liar), everybody(liar, variant=1)]
    liar.run_attempt(FIRST, {name: stories[place % 2] for place, name in enumerate(liar.honest)})


@noticed_as('another survivor set than')
def another_set_in_the_next_attempt(liar, restarted=False):
    liar.run_attempt(FIRST, everybody(liar))
    if restarted:
        liar.restart_all()
    liar.run_attempt(SECOND, everybody(liar, survivors=without(liar, 2)))


@noticed_as('another survivor set than')
def another_set_in_the_next_attempt_after_restarts(liar):
    another_set_in_the_next_attempt(liar, restarted=True)


@noticed_as('another survivor set than')
def another_set_in_the_same_attempt_after_restarts(liar):
    story = everybody(liar)
    liar.run_attempt(FIRST, story, until=Phase.SETTLE)
    liar.restart_all()
    liar.run_attempt(FIRST, everybody(liar, survivors=without(liar, 2)))


@noticed_as('status of a past attempt')
def back_to_an_older_attempt_with_other_members_after_restarts(liar):
    """Both updates of the old attempt would have the same self mask on."""
    fewer = without(liar, 2)
    story = everybody(liar)
    liar.run_attempt(FIRST, Story(fewer, fewer, fewer), until=Phase.TRAIN)
    liar.run_attempt(SECOND, story, until=Phase.TRAIN)
    liar.restart_all()
    liar.run_attempt(FIRST, story)


@noticed_as('changed the members of an attempt')
def training_again_with_other_members(liar):
    story, fewer = everybody(liar), without(liar, 2)
    liar.run_attempt(FIRST, story, until=Phase.SETTLE)
    for name in liar.honest:
        liar.status(name, FIRST, Phase.TRAIN, Story(story.keyed, fewer, fewer))


@noticed_as('changed the survivors of an attempt')
def lists_that_are_emptied_and_filled_with_others(liar):
    story, fewer = everybody(liar), without(liar, 2)
    liar.run_attempt(FIRST, story, until=Phase.SETTLE)
    for name in liar.honest:
        liar.status(name, FIRST, Phase.OPEN, Story((), (), ()))
        liar.status(name, FIRST, Phase.REVEAL, Story(story.keyed, (), ()))
        liar.status(name, FIRST, Phase.REVEAL, Story(story.keyed, story.members, fewer))


@noticed_as('is none of some hospitals')
def a_status_with_bits_of_nobody(liar):
    names = everybody(liar).keyed
    told = liar.say_status(FIRST, Phase.SHARE, keyed=names, members=names, survivors=())
    more = replace(told, members=told.members + bytes(1))
    liar.tell('hospital_1', more.signed_by(liar.bench.identities['aggregator']))


@noticed_as('RoundStatus counter')
def an_old_status_again(liar):
    liar.run_attempt(FIRST, everybody(liar), until=Phase.TRAIN)
    old = liar.say_status(
        FIRST, Phase.SHARE, keyed=tuple(liar.bench.names), members=(), survivors=()
    )
    liar.tell('hospital_1', old)
    liar.status('hospital_1', FIRST, Phase.TRAIN, everybody(liar))
    liar.forget_what_was_told()
    liar.tell('hospital_1', old)


@noticed_as('status of a past attempt')
def a_status_of_the_attempt_before(liar):
    story = everybody(liar)
    liar.run_attempt(FIRST, story, until=Phase.TRAIN)
    liar.run_attempt(SECOND, story, until=Phase.TRAIN)
    liar.status('hospital_1', FIRST, Phase.SETTLE, story)


def content_of(message):
    return {name: value for name, value in vars(message).items() if name != 'envelope'}


@noticed_as('not signed by its dealer')
def a_copied_key(liar):
    copy_keys(liar, 'hospital_2')


@noticed_as('not signed by its dealer')
def its_own_key_to_a_hospital(liar):
    copy_keys(liar, 'hospital_1')


def copy_keys(liar, owner):
    """Tell all that a corrupt hospital has an honest one's keys, whose secrets it lacks."""
    liar.run_attempt(FIRST, everybody(liar), until=Phase.OPEN)
    stolen = next(
        each for each in liar.said if isinstance(each, RoundKey) and each.envelope.sender == owner
    )
    genuine = liar.keys_for
    copied = liar.seal(RoundKey, liar.corrupt[0], FIRST, **content_of(stolen))
    liar.keys_for = lambda of, variant: genuine(of, variant) | {liar.corrupt[0]: copied}
    liar.run_attempt(FIRST, everybody(liar))


@noticed_as('other round keys than before')
def other_keys_in_the_same_attempt(liar):
    story = everybody(liar)
    liar.run_attempt(FIRST, story, until=Phase.SHARE)
    keys = liar.keys_for(FIRST, 1)
    listed = key_list(liar.bench.roster, keys.values(), FIRST, liar.terms)
    liar.tell('hospital_1', liar.peer_keys('hospital_1', FIRST, listed, keys))


@noticed_as('bad signature')
def a_signature_of_an_honest_hospital(liar):
    story = everybody(liar)
    liar.run_attempt(FIRST, story, until=Phase.SETTLE)
    fake = liar.seal(
        Settle, liar.corrupt[0], FIRST, settle_digest=bytes(32), update_hash=bytes(32)
    )
    envelope = replace(fake.envelope, sender='hospital_2', counter=10**6)
    liar.tell('hospital_1', replace(fake, envelope=envelope))


FORGED = {
    'one byte': (
        lambda each: {'parcels': bytes([each.parcels[0] ^ 1]) + each.parcels[1:]},
        'not signed by its dealer',
    ),
    'in another order': (
        lambda each: {'parcels': each.parcels[PARCEL_BYTES:] + each.parcels[:PARCEL_BYTES]},
        'not signed by its dealer',
    ),
    'of others': (
        lambda each: {
            'shares': each.shares[1:],
            'parcels': each.parcels[PARCEL_BYTES:],
            'paths': each.paths[len(each.paths) // len(each.shares) :],
        },
        'delivered shares of',
    ),
    'for another': (
        lambda each: {'to': 'hospital_2' if each.to != 'hospital_2' else 'hospital_1'},
        'shares for hospital_',
    ),
    'of another length': (
        lambda each: {'parcels': each.parcels[:-1]},
        'bytes of leaves and paths',
    ),
    'none at all': (
        lambda each: {'parcels': bytes(len(each.parcels))},
        'not signed by its dealer',
    ),
}
"""What the liar changes of a delivery, and what somebody will complain of."""


@pytest.mark.parametrize('name', LIES)
def test_each_lie_is_noticed_and_gains_nothing(name, liar):
    lie, expected = LIES[name]
    lie(liar)
    caught = liar.caught()
    assert any(expected in complaint for _, complaint in caught), caught
    assert {who for who, _ in caught} <= set(liar.honest)
    assert gains_nothing(liar)


@pytest.mark.parametrize('name', FORGED)
def test_a_forged_delivery_is_noticed_and_gains_nothing(name, liar):
    change, expected = FORGED[name]
    liar.forge = lambda delivery: replace(delivery, **change(delivery))
    liar.run_attempt(FIRST, everybody(liar))
    assert any(expected in complaint for _, complaint in liar.caught())
    assert gains_nothing(liar)


def test_nothing_is_revealed_before_enough_survivors_signed(liar):
    story = everybody(liar)
    liar.run_attempt(FIRST, story, until=Phase.TRAIN)
    for name in liar.honest:
        liar.status(name, FIRST, Phase.REVEAL, story)
    assert not [each for each in liar.said if isinstance(each, Reveal)]
    witnesses = liar.bench.roster.neighbourhoods.witnesses & {*liar.honest}
    assert len([each for each in liar.said if isinstance(each, Settle)]) == len(witnesses)
    assert not liar.facts()


def test_truth_is_not_taken_for_a_lie(liar):
    liar.run_attempt(FIRST, everybody(liar))
    assert not liar.caught()
    assert liar.facts() == [dict.fromkeys(liar.honest, 1)]


@pytest.mark.parametrize(('hospitals', 'corrupt'), [(5, 2), (7, 2), (10, 3)])
def test_random_lies_are_noticed_and_gain_nothing(hospitals, corrupt):
    noticed, sums = [], 0
    for seed in range(4):
        liar = Liar(hospitals, corrupt, seed)
        noticed += lie_at_random(liar, liar.rng.randint(1, 3))
        assert gains_nothing(liar)
        sums += bool(liar.facts())
    assert all(noticed) and len(noticed) > 1
    assert sums


def test_with_2t_minus_n_hospitals_on_its_side_it_gets_two_sums():
    liar = Liar(5, 3, seed=1)
    one, other = (
        everybody(liar, survivors=without(liar, 2)),
        everybody(liar, survivors=without(liar, 1)),
    )
    liar.run_attempt(FIRST, {'hospital_1': one, 'hospital_2': other})
    assert not gains_nothing(liar)
    assert len(liar.facts()) == 2
    assert liar.caught()


# What it may ask of the key authority.


def a_survivor_left_out(bench, request):
    left = request.survivors[-1]
    settles = tuple(each for each in request.settles if each.envelope.sender != left)
    hashes = request.update_hashes[:-32]
    return {'survivors': request.survivors[:-1], 'update_hashes': hashes, 'settles': settles}


ASKED = {
    'a survivor left out': a_survivor_left_out,
    'one update alone': lambda bench, asked: {
        'survivors': asked.survivors[:1],
        'update_hashes': asked.update_hashes[:32],
        'settles': asked.settles[:1],
    },
    'other survivors': lambda bench, asked: {'survivors': asked.survivors[1:]},
    'one more': lambda bench, asked: {'survivors': (*asked.survivors, 'hospital_9')},
    'other members': lambda bench, asked: {'members': asked.members[1:]},
    'too few reveals': lambda bench, asked: {
        'reveals': asked.reveals[: bench.roster.threshold - 1]
    },
    'a reveal twice': lambda bench, asked: {'reveals': (*asked.reveals[:-1], asked.reveals[0])},
    'a signature twice': lambda bench, asked: {'settles': (*asked.settles[:-1], asked.settles[0])},
    'a signature on another update': lambda bench, asked: {
        'settles': (
            resealed(bench, asked.settles[0], update_hash=bytes(32)),
            *asked.settles[1:],
        )
    },
    'too few signatures': lambda bench, asked: {
        'settles': asked.settles[: bench.roster.threshold - 1]
    },
    'a key left out': lambda bench, asked: {'keys': asked.keys[1:]},
    'a key of its own': lambda bench, asked: {
        'keys': (replace(asked.keys[0], mask_keys=bytes(range(128))), *asked.keys[1:])
    },
    'another sum': lambda bench, asked: {'sum_hash': bytes(32)},
    'other updates': lambda bench, asked: {'update_hashes': asked.update_hashes[:-32] + bytes(32)},
    'no updates': lambda bench, asked: {'update_hashes': b''},
}
"""What the aggregator changes of an honest request."""


def a_ciphertext_of_its_own(bench, updates):
    """Ask for the secret key: the second polynomial is 1, the first is 0."""
    residues = bench.secret.public.residues(updates[0].ciphertext)
    residues[0], residues[1], residues[1, :, 0] = 0, 0, 1
    crafted = replace(updates[0], ciphertext=bench.secret.public.to_wire(residues))
    return (crafted, *updates[1:])


def a_ciphertext_of_its_own_with_a_signature_of_its_own(bench, updates):
    crafted, *others = a_ciphertext_of_its_own(bench, updates)
    return (crafted.signed_by(bench.identities['aggregator']), *others)


RELAYED = {
    'in another order': lambda bench, updates: updates[::-1],
    'an update twice': lambda bench, updates: (*updates[:-1], updates[0]),
    'the ciphertext of another': lambda bench, updates: (
        replace(updates[0], ciphertext=updates[1].ciphertext),
        *updates[1:],
    ),
    'a ciphertext of its own': a_ciphertext_of_its_own,
    'with a signature of its own': a_ciphertext_of_its_own_with_a_signature_of_its_own,
}
"""What it changes of the updates that it relays."""


@pytest.mark.parametrize('change', ASKED.values(), ids=ASKED)
def test_key_authority_decrypts_nothing_but_the_sum_that_was_settled(change):
    bench = Bench(hospitals=4, rounds=1)
    decrypted = bench.spy_on_decryption(really=False)

    def lie(request):
        return [resealed(bench, request, **change(bench, request)) if request.settles else request]

    Interception(bench, DecryptRequest, change=lie)
    refused_without_decryption(bench, decrypted)


@pytest.mark.parametrize('change', RELAYED.values(), ids=RELAYED)
def test_key_authority_decrypts_nothing_that_was_put_in_between(change):
    bench = Bench(hospitals=4, rounds=1)
    decrypted = bench.spy_on_decryption(really=False)

    def lie(relay):
        return [resealed(bench, relay, updates=change(bench, relay.updates))]

    Interception(bench, Relay, change=lie)
    verdicts, phases = Interception(bench, Verdict), Interception(bench, RoundStatus)
    bench.run(ticks=100)
    assert [each.reason for each in verdicts.messages if not each.accepted]
    assert not decrypted and Phase.SETTLE not in {each.phase for each in phases.messages}


def refused_without_decryption(bench, decrypted):
    """Run to the end of a round that the aggregator has to give up, and look at its reasons."""
    verdicts = Interception(bench, Verdict)
    assert bench.run(lambda: bench.key_authority.round == 1, ticks=60)
    assert [each.reason for each in verdicts.messages if not each.accepted]
    assert not decrypted
    bench.run(ticks=1)
    assert bench.policy.rolled_back


@pytest.mark.parametrize('kind', [MaskedUpdate, RoundKey])
def test_key_authority_mixes_no_two_attempts(kind):
    bench = Bench(hospitals=4, rounds=1)
    decrypted = bench.spy_on_decryption(really=False)
    said = Interception(bench, kind)
    Interception(bench, Settle, change=lambda each: [each] if each.envelope.attempt == 2 else [])

    def mix(message):
        name = 'updates' if isinstance(message, Relay) else 'keys'
        parts = getattr(message, name)
        if not parts or message.envelope.attempt == 1:
            return [message]
        sender = parts[0].envelope.sender
        before = next(each for each in said.messages if each.envelope.sender == sender)
        assert before.envelope.attempt == 1
        return [resealed(bench, message, **{name: (before, *parts[1:])})]

    Interception(bench, Relay if kind is MaskedUpdate else DecryptRequest, change=mix)
    verdicts = Interception(bench, Verdict)
    bench.run(ticks=100)
    assert any('signed for attempt (1, 1)' in each.reason for each in verdicts.messages)
    assert not decrypted
