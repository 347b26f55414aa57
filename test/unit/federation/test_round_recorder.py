# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Who only looks on: forged words end no run, name no file, and replace no policy."""

from dataclasses import replace

from fdrl_ros.crypto.keys.roster import Member, Roster
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.errors import MessageError, ReplayError, RoundError, SignatureError
from fdrl_ros.experiments.json_file import from_json, write_json
from fdrl_ros.experiments.round_recorder import Meters, read_rounds, RoundRecorder, setbacks
from fdrl_ros.federation.protocol.channel import MessageVerifier
from fdrl_ros.federation.protocol.message import (
    Blame,
    Envelope,
    Fault,
    GlobalPolicy,
    HospitalPolicy,
    MaskedUpdate,
    Phase,
    RoundKey,
    RoundStatus,
)
from fdrl_ros.policy import digest_of, encode_weights
from fdrl_ros.privacy.ledger.chain import Head
from fdrl_ros.runtime.stopwatch import peak_memory, Stopwatch
import numpy as np
import pytest

NAMES = ('hospital_1', 'hospital_2', 'hospital_3', 'aggregator', 'key_authority')
KEYS = {name: Identity.generate(name) for name in NAMES}
ROSTER = Roster(
    'trial',
    3,
    tuple(
        Member(name, *(('hospital', key.public, 10) if '_' in name[-2:] else (name, key.public)))
        for name, key in KEYS.items()
    ),
    True,
)
PLAN = Plan({'learner': {'hidden': 4}})


def said(sender='aggregator', counter=1, key=None, federation='trial', phase=Phase.FINISHED):
    envelope = Envelope(federation, 1, 0, sender, counter)
    status = RoundStatus(envelope, int(phase), b'', b'', b'', 0.0, b'', b'', b'', b'', b'', '')
    return status.signed_by(key or KEYS.get(sender, KEYS['aggregator']))


def policy(sender='hospital_1', value=1.0, counter=1, key=None, **changes):
    weights = np.full(PLAN.network.layout.n_parameters, value, np.float32)
    fields = {'weights': encode_weights(weights), 'digest': digest_of(weights), **changes}
    envelope = Envelope('trial', 1, 0, sender, counter)
    made = HospitalPolicy(envelope, **fields, unit='patient', epsilon=1.0, delta=1e-4, secure=True)
    return made.signed_by(key or KEYS[sender])


@pytest.fixture
def observer(tmp_path):
    (tmp_path / 'policies').mkdir()
    return RoundRecorder(
        ROSTER, tmp_path / 'policies', tmp_path / 'rounds.json', PLAN, Meters(Stopwatch(), dict)
    )


def released(round, rolled_back=False):
    weights = np.zeros(PLAN.network.layout.n_parameters, np.float32)
    envelope = Envelope('trial', round, 1, 'key_authority', round)
    content = encode_weights(weights), digest_of(weights), ('hospital_1',), bytes(32)
    policy = GlobalPolicy(envelope, *content, rolled_back=rolled_back, secure=True, reason='')
    return policy.signed_by(KEYS['key_authority'])


def test_notes_of_a_round_hold_the_peak_memory_and_older_ones_none(tmp_path):
    (tmp_path / 'policies').mkdir()
    peaks = iter((12.5, None))
    meters = Meters(Stopwatch(), dict, lambda: next(peaks))
    path = tmp_path / 'rounds.json'
    recorder = RoundRecorder(ROSTER, tmp_path / 'policies', path, PLAN, meters)
    for round in (1, 2):
        recorder.handle(released(round), 0.0)
    assert [note.peak_memory for note in read_rounds(path)] == [12.5, None]
    rows = from_json(path.read_text('utf-8'))
    write_json(path, [{k: v for k, v in row.items() if k != 'peak_memory'} for row in rows])
    assert [note.peak_memory for note in read_rounds(path)] == [None, None]


@pytest.mark.parametrize('words_first', [True, False])
def test_the_last_round_says_why_the_federation_ended_whatever_comes_first(observer, words_first):
    ended = replace(said(), reason='all is done').signed_by(KEYS['aggregator'])
    last = (ended, released(2)) if words_first else (released(2), ended)
    for each in (released(1), blame('hospital_3', 2), *last):
        observer.handle(each, 0.0)
    assert [note.ended for note in observer.notes] == ['', 'all is done']
    assert [[*note.blamed] for note in observer.notes] == [[], ['hospital_3']]


def test_a_bucket_that_was_left_out_is_told(observer, tmp_path):
    told = 'left out 1 of 2 sums: fails on public patients: hospital_1, hospital_2, hospital_3'
    observer.handle(replace(released(1), reason=told).signed_by(KEYS['key_authority']), 0.0)
    (note,) = read_rounds(tmp_path / 'rounds.json')
    assert setbacks([note], 1) == [f'round 1: {told}']
    assert setbacks([replace(note, reason='succeeds on 67% of the public patients')], 1) == []


def blame(guilty, counter, fault=Fault.SKETCH, sender='aggregator'):
    lists = dict.fromkeys(
        ('complaints', 'reveals', 'verdicts', 'sketches', 'keys', 'keyed', 'ends', 'dealt'), ()
    )
    content = dict.fromkeys(
        ('keys_digest', 'keys_path', 'parcels', 'paths', 'pairs', 'shares'), b''
    )
    content['secret'] = bytes(32)
    envelope = Envelope('trial', 2, 0, sender, counter)
    about = {'terms_digest': bytes(32), 'members': (), 'survivors': ()}
    made = Blame(envelope, guilty, int(fault), **lists, **content, **about)
    return made.signed_by(KEYS[sender])


def test_notes_of_a_round_name_whom_the_aggregator_blamed_once(observer, tmp_path):
    observer.handle(released(1), 0.0)
    observer.handle(blame('hospital_2', 1), 0.0)
    observer.handle(released(2), 0.0)
    observer.handle(blame('hospital_2', 2), 0.0)  # a restarted aggregator says it again
    observer.handle(released(3), 0.0)
    told = [note.blamed for note in read_rounds(tmp_path / 'rounds.json')]
    assert told == [{}, {'hospital_2': 'signed false projections of a mask'}, {}]


def test_notes_have_the_exact_success_of_what_was_accepted_alone(observer, tmp_path):
    observer.note_success(1, 0.125)
    observer.handle(released(1), 0.0)
    observer.note_success(2, 1 / 3)
    observer.handle(released(2, rolled_back=True), 0.0)
    observer.handle(released(3), 0.0)
    observer.note_success(3, 0.5)  # over ROS 2 it may come later
    observer.note_success(2, 1 / 3)
    told = [note.public_success for note in read_rounds(tmp_path / 'rounds.json')]
    assert told == [0.125, None, 0.5]


def test_who_spoiled_the_round_that_never_ended_is_in_the_last_note(observer, tmp_path):
    observer.handle(released(1), 0.0)
    observer.handle(blame('hospital_2', 1), 0.0)
    observer.note_end('too few hospitals')
    (note,) = read_rounds(tmp_path / 'rounds.json')
    assert note.ended == 'too few hospitals' and note.blamed.keys() == {'hospital_2'}


@pytest.mark.parametrize(
    'message',
    [
        blame('somebody', 1),
        blame('hospital_2', 1, fault=99),
        blame('hospital_2', 1, sender='hospital_1'),
    ],
    ids=['a stranger', 'no such fault', 'not by the aggregator'],
)
def test_blame_that_cannot_be_is_refused(observer, tmp_path, message):
    with pytest.raises(MessageError):
        observer.handle(message, 0.0)
    observer.handle(released(2), 0.0)
    assert [note.blamed for note in read_rounds(tmp_path / 'rounds.json')] == [{}]


def chunk(number, counter, attempt=0, sender='hospital_1'):
    head = Head(0, bytes(32))
    update = MaskedUpdate(
        Envelope('trial', 1, attempt, sender, counter),
        *(number, 5, bytes(32), bytes(32), bytes(100)),
        *(*head, *head, b'', False),
    )
    return update.signed_by(KEYS[sender])


def test_bytes_are_of_whole_updates_though_chunks_are_missed_or_come_twice(observer, tmp_path):
    observer.handle(chunk(4, 1, sender='hospital_2'), 0.0)
    for counter, number in enumerate((0, 1, 1, 3), 1):
        observer.handle(chunk(number, counter), 0.0)
    observer.handle(chunk(0, 9, attempt=1), 0.0)
    observer.handle(released(1), 0.0)
    assert [note.update_bytes for note in read_rounds(tmp_path / 'rounds.json')] == [1000]


def test_peak_memory_is_that_of_this_process():
    before = peak_memory()
    if before is None:
        pytest.skip('this system does not state it')
    held = np.ones(int(before * 1e6), dtype=np.uint8)
    assert peak_memory() > before + 1
    assert held.size


def test_forged_or_old_end_ends_nothing():
    witness, unsigned = MessageVerifier(ROSTER), said()
    unsigned = replace(unsigned, envelope=replace(unsigned.envelope, signature=b''))
    key = RoundKey(Envelope('trial', 1, 0, 'hospital_1', 1), *4 * [bytes(32)], release=True)
    for forged, error in (
        (unsigned, SignatureError),
        (said(key=Identity.generate('aggregator')), SignatureError),
        (said('hospital_1'), SignatureError),
        (said('stranger'), SignatureError),
        (said(federation='other'), RoundError),
        (said(phase=77), MessageError),
        (key.signed_by(KEYS['hospital_1']), RoundError),
    ):
        with pytest.raises(error):
            witness.accept(forged)
    witness.accept(said(counter=0, phase=Phase.TRAIN))
    with pytest.raises(ReplayError):
        witness.accept(said(counter=0))
    assert not witness.finished
    witness.accept(said())
    assert witness.finished, 'a refused message must not use up the counter of a true one'


@pytest.mark.parametrize('sender', ['../outside', 'global_1', 'aggregator', 'key_authority'])
def test_only_hospitals_of_the_roster_name_files(observer, tmp_path, sender):
    with pytest.raises(SignatureError):
        observer.handle(policy(sender, key=KEYS.get(sender, KEYS['hospital_1'])), 0.0)
    assert not list(tmp_path.rglob('*.npz*'))


def test_true_policy_is_kept_and_an_older_one_does_not_replace_it(observer, tmp_path):
    path = tmp_path / 'policies/hospital_1.npz'
    observer.handle(policy(counter=5), 0.0)
    observer.handle(policy(counter=4, value=2.0), 0.0)
    with pytest.raises(SignatureError):
        observer.handle(policy(counter=6, value=3.0, key=KEYS['hospital_2']), 0.0)
    assert set(load_policy(path).weights) == {1.0}


def test_signed_policy_that_fits_no_network_is_a_refused_message(observer, tmp_path):
    for wrong in ({'weights': bytes(8)}, {'digest': bytes(32)}):
        with pytest.raises(MessageError):
            observer.handle(policy(**wrong, counter=9 + len(wrong.popitem()[1])), 0.0)
    assert not list(tmp_path.rglob('*.npz*'))
