# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The roster: signed by the pinned root, free of contradictions, and the same in every form."""

from dataclasses import replace
import hashlib
import json

from fdrl_ros.crypto.keys.roster import (
    CLOCK_SKEW,
    default_threshold,
    Member,
    remember_roster,
    Revoked,
    ring,
    Roster,
)
from fdrl_ros.crypto.keys.signing import Identity, verify
from fdrl_ros.crypto.masking.neighbourhoods import fewest_neighbours, Neighbourhoods
from fdrl_ros.errors import RosterError, RosterRollbackError, RosterTimeError, StoreError
import pytest

ROOT = Identity.generate('root')


def members(hospitals=3):
    keys = (bytes([place]) * 32 for place in range(200))
    return (
        *(
            Member(f'hospital_{n}', 'hospital', next(keys), 100 * n)
            for n in range(1, hospitals + 1)
        ),
        *(Member(name, name, next(keys)) for name in ('aggregator', 'key_authority', 'operator')),
    )


ROSTER = Roster('trial', 3, members(), True)


@pytest.fixture
def path(tmp_path):
    ROSTER.save(tmp_path / 'roster.json', ROOT)
    return tmp_path / 'roster.json'


def test_file_is_for_people_and_the_signature_over_canonical_bytes(path):
    document = json.loads(path.read_text())
    assert document['roster']['members'][0]['name'] == 'hospital_1'
    assert len(path.read_text().splitlines()) > 20
    assert verify(ROOT.public, bytes.fromhex(document['signature']), ROSTER.canonical())
    # Spaces and the order of keys may change; what they say may not.
    path.write_text(json.dumps(dict(reversed(document.items()))))
    assert Roster.load(path, ROOT.public) == ROSTER


def test_roster_tells_what_a_round_needs():
    assert [member.name for member in ROSTER.hospitals] == [f'hospital_{n}' for n in (1, 2, 3)]
    assert ROSTER.n_max == 300 and ROSTER.quorum == 3
    assert ROSTER.member('hospital_2').size == 200
    assert ROSTER.member('operator').role == 'operator'
    with pytest.raises(RosterError, match='not in roster 1 of trial'):
        ROSTER.member('hospital_4')


GONE = 'is gone'


@pytest.mark.parametrize(
    ('keys', 'value', 'words'),
    [
        (['roster', 'federation'], 'trial_2', 'not signed by the pinned root'),
        (['roster', 'members', 0, 'size'], 101, 'not signed by the pinned root'),
        (['roster', 'extra'], 1, None),
        (['roster', 'members', 0, 'extra'], 1, None),
        (['roster', 'members'], None, None),
        (['roster', 'members', 0], None, None),
        (['roster', 'members', 0, 'public'], 5, None),
        (['roster'], [], None),
        *((['signature'], value, None) for value in ('00' * 64, 'xy', None)),
        (['roster', 'serial'], True, None),
        *((['roster', key], GONE, None) for key in ('serial', 'not_before', 'expires', 'revoked')),
        (['roster', 'revoked'], [{'name': 'a', 'public': '00' * 32, 'serial': 2}], None),
        (['roster', 'revoked'], [None], None),
        (['format'], 1, 'older version .*`fdrl keys init`'),
        (['format'], 3, None),
        (['extra'], 1, None),
    ],
    ids=str,
)
def test_changed_file_is_refused(path, keys, value, words):
    document = part = json.loads(path.read_text())
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = value
    if value == GONE:
        del part[keys[-1]]
    path.write_text(json.dumps(document))
    with pytest.raises(RosterError, match=words):
        Roster.load(path, ROOT.public)


@pytest.mark.parametrize(
    ('text', 'words'),
    [
        *((text, None) for text in ('', '{', '[]', '3', 'null', '"x"', '\udce4', '[' * 200_000)),
        (' ' * (2**24 + 1), 'longer'),
        ('{"format": 2, "format": 2}', 'twice'),
    ],
)
def test_damaged_or_missing_file_is_refused(path, text, words):
    path.write_text(text, errors='surrogateescape')
    with pytest.raises(RosterError, match=words):
        Roster.load(path, ROOT.public)
    with pytest.raises(RosterError, match='No such file'):
        Roster.load(path.with_name('none.json'), ROOT.public)


def test_roster_of_another_root_is_refused(path):
    with pytest.raises(RosterError, match='not signed by the pinned root'):
        Roster.load(path, Identity.generate('root').public)


@pytest.mark.parametrize('missing', ['aggregator', 'key_authority'])
def test_roster_without_a_server_or_with_two_is_refused(missing):
    rest = tuple(member for member in members() if member.name != missing)
    with pytest.raises(RosterError, match='exactly one'):
        replace(ROSTER, members=rest)
    with pytest.raises(RosterError, match='exactly one'):
        replace(ROSTER, members=(*members(), Member('second', missing, b'\xaa' * 32)))


@pytest.mark.parametrize(
    'fields',
    [
        *(('hospital_1', 'hospital', bytes(32), size) for size in (0, 1.5, True)),
        *(('hospital_1', 'hospital', public, 5) for public in (bytes(31), '00' * 32)),
        ('hospital_1', 'surgeon', bytes(32), 5),
        ('aggregator', 'aggregator', bytes(32), 5),
        *((name, 'hospital', bytes(32), 5) for name in ('Hospital', '../root', 'a\n', 'h' * 64)),
        ('../root', bytes(32), 2),
        ('a', bytes(31), 2),
        ('a', '00', 2),
        ('a', bytes(32), 1),
    ],
    ids=str,
)
def test_member_or_revocation_that_could_not_be_is_refused(fields):
    with pytest.raises(RosterError):
        (Member if len(fields) == 4 else Revoked)(*fields)


def test_digests_are_of_everything_that_is_signed():
    assert ROSTER.digest_bytes.hex() == ROSTER.digest
    others = [
        replace(ROSTER, serial=2),
        replace(ROSTER, not_before=5),
        replace(ROSTER, expires=5),
        replace(ROSTER, serial=2, revoked=(Revoked('hospital_9', b'\xaa' * 32, 2),)),
    ]
    assert len({each.digest for each in (ROSTER, *others)}) == 5


FIRST, SECOND, *REST = members()


@pytest.mark.parametrize(
    ('changes', 'words'),
    [
        ({'federation': 'a/b'}, None),
        ({'disjoint_patients': 1}, None),
        ({'members': (FIRST, replace(SECOND, name=FIRST.name), *REST)}, 'same name'),
        ({'members': (FIRST, replace(SECOND, public=FIRST.public), *REST)}, 'same public key'),
        ({'members': members(2), 'threshold': 2}, '2 hospitals'),
        *(({'threshold': number}, 'threshold') for number in (0, 1, 4, True, 3.0)),
        *(({'serial': number}, None) for number in (0, True, 2**53)),
        *(({'not_before': time}, None) for time in (-1, 2**60)),
        *(({'expires': time}, None) for time in (0, '2026')),
        ({'not_before': 10, 'expires': 10}, None),
        ({'revoked': (Revoked('hospital_9', b'\xaa' * 32, 2),)}, None),
        ({'serial': 2, 'revoked': (Revoked('hospital_1', bytes(32), 2),)}, None),
        ({'serial': 2, 'revoked': (Revoked('hospital_9', b'\xaa' * 32, 2),) * 2}, None),
    ],
    ids=lambda value: str(value)[:60],
)
def test_roster_that_contradicts_itself_is_refused(changes, words):
    with pytest.raises(RosterError, match=words):
        replace(ROSTER, **changes)


@pytest.mark.parametrize(
    ('now', 'valid'),
    [
        (1000 - CLOCK_SKEW - 1, False),
        (1000 - CLOCK_SKEW, True),
        (1500, True),
        (2000 + CLOCK_SKEW, True),
        (2000 + CLOCK_SKEW + 1, False),
    ],
)
def test_roster_is_valid_in_its_time_give_or_take_five_minutes(now, valid):
    assert CLOCK_SKEW == 300
    roster = replace(ROSTER, not_before=1000, expires=2000)
    if valid:
        roster.check_time(now)
        return
    with pytest.raises(RosterTimeError) as caught:
        roster.check_time(now)
    words = str(caught.value)
    assert 'from 1970-01-01 00:16 UTC on until 1970-01-01 00:33 UTC' in words
    assert f'it is 1970-01-01 00:{now // 60:02} UTC: check the clock' in words


def test_successor_revokes_what_it_leaves_out():
    first, *rest = members(4)
    roster = Roster('trial', 3, (first, *rest), True)
    rotated = roster.successor(members=(replace(first, public=b'\xaa' * 32), *rest))
    assert rotated.serial == 2 and rotated.revoked == (Revoked(first.name, first.public, 2),)
    without = rotated.successor(members=tuple(rest))
    assert without.serial == 3 and without.revoked[1] == Revoked(first.name, b'\xaa' * 32, 3)
    assert without.successor(expires=5).revoked == without.revoked
    with pytest.raises(RosterError, match='roster 3 revoked it'):
        without.member(first.name)
    with pytest.raises(RosterError, match='revoked'):
        without.successor(members=(first, *rest))


# Sixteen hospitals are the fewest of whom each needs fewer neighbours than all others.
SPARSE = Roster('trial', 11, members(16), True, neighbours=14, ring_seed='0f' * 32)


def with_hospitals(count):
    return {'members': members(count), 'threshold': default_threshold(count)}


def test_roster_names_neighbours_only_if_there_are_any(tmp_path):
    for roster in (ROSTER, SPARSE):
        path = tmp_path / f'{roster.neighbours}.json'
        roster.save(path, ROOT)
        loaded = Roster.load(path, ROOT.public)
        assert loaded == roster and loaded.digest == roster.digest
        assert Roster.from_dict(roster.to_dict()) == roster
        written = json.loads(path.read_text())['roster']
        assert roster.to_dict() == written
        named = {key: written[key] for key in ('neighbours', 'ring_seed') if key in written}
        told = {'neighbours': 14, 'ring_seed': '0f' * 32} if roster.neighbours else {}
        assert named == told
    # Both are signed.
    others = [replace(SPARSE, ring_seed='0e' * 32), replace(SPARSE, **ring(15, neighbours=0))]
    assert len({each.digest for each in (SPARSE, *others)}) == 3


def test_roster_of_a_version_that_knew_no_neighbours_is_the_same_one(tmp_path):
    # Frozen: the bytes that a root signed then, by hand.
    document = {
        'federation': 'trial',
        'threshold': 3,
        'disjoint_patients': True,
        'serial': 1,
        'not_before': 0,
        'expires': None,
        'revoked': [],
        'members': [
            {
                'name': each.name,
                'role': each.role,
                'public': each.public.hex(),
                'size': each.size,
            }
            for each in members()
        ],
    }
    text = json.dumps(document, sort_keys=True, separators=(',', ':'))
    signed = b'fdrl_ros roster 2\n' + text.encode()
    assert ROSTER.canonical() == signed
    path = tmp_path / 'old.json'
    signature = ROOT.sign(signed).hex()
    path.write_text(json.dumps({'format': 2, 'roster': document, 'signature': signature}))
    loaded = Roster.load(path, ROOT.public)
    assert loaded == ROSTER and (loaded.neighbours, loaded.ring_seed) == (0, '')
    assert loaded.neighbourhoods.is_complete
    # Nor is there a second way to write it.
    for more in ({'neighbours': 0}, {'ring_seed': ''}, {'neighbours': 0, 'ring_seed': ''}):
        with pytest.raises(RosterError, match='another form'):
            Roster.from_dict({**document, **more})


def test_neighbourhoods_are_those_of_the_hospitals_and_the_seed():
    graph, names = SPARSE.neighbourhoods, [f'hospital_{n}' for n in range(1, 17)]
    expected = Neighbourhoods(names, 11, 14, bytes([15]) * 32)
    assert not graph.is_complete and graph.degree == 14 and graph.withstands_lies
    assert {name: graph.peers(name) for name in names} == {
        name: expected.peers(name) for name in names
    }
    assert graph.witnesses == expected.witnesses
    complete = ROSTER.neighbourhoods
    assert complete.is_complete and complete.hospitals == tuple(names[:3])
    assert complete.threshold == complete.agreeing == ROSTER.threshold
    # The order in which a roster lists its members changes nobody's neighbours.
    turned = replace(SPARSE, members=SPARSE.members[::-1]).neighbourhoods
    assert all(turned.peers(name) == graph.peers(name) for name in names)


def test_ring_is_drawn_anew_each_time_and_empty_if_all_mask_with_all():
    assert ring(15, neighbours=0) == {'neighbours': 0, 'buckets': 0, 'ring_seed': ''}
    drawn = [ring(15, neighbours=14) for _ in range(20)]
    assert {each['neighbours'] for each in drawn} == {14}
    seeds = {each['ring_seed'] for each in drawn}
    assert len(seeds) == 20 and {len(bytes.fromhex(seed)) for seed in seeds} == {32}
    assert all(replace(SPARSE, **each).neighbourhoods for each in drawn)
    assert ring(100)['neighbours'] == 0 < ring(101)['neighbours'] == ring(101, 68)['neighbours']
    assert ring(101, 69)['neighbours'] == 0  # a higher threshold holds among all alone


def test_a_roster_that_messages_cannot_name_is_refused():
    def key(name: str) -> bytes:
        return hashlib.sha256(name.encode()).digest()

    def of(count: int, **fields: object) -> Roster:
        names = [f'hospital_{number}' for number in range(count)]
        servers = ('aggregator', 'key_authority')
        members = (
            *(Member(name, 'hospital', key(name), 1) for name in names),
            *(Member(name, name, key(name)) for name in servers),
        )
        return Roster('f', default_threshold(count), members, True, **fields)

    assert of(1000).neighbourhoods.degree == 999
    for count in (1001, 10_001):
        with pytest.raises(RosterError, match=f'{count} hospitals, all others as neighbours'):
            of(count)
    sparse = {'neighbours': 438, 'ring_seed': '0f' * 32}
    assert of(10_000, **sparse).neighbourhoods.degree == 438
    with pytest.raises(RosterError, match='10001 hospitals, 438 as neighbours'):
        of(10_001, **sparse)


def test_higher_threshold_is_refused_where_hospitals_have_neighbours():
    replace(SPARSE, threshold=default_threshold(len(SPARSE.hospitals)))
    with pytest.raises(RosterError, match='holds only if each hospital masks with all'):
        replace(SPARSE, threshold=default_threshold(len(SPARSE.hospitals)) + 1)


@pytest.mark.parametrize(
    ('changes', 'words'),
    [
        *(({'neighbours': number}, 'whole number') for number in (14.0, '14', None, True)),
        *(({'neighbours': number}, 'expected an even number') for number in (-2, 1, 13, 15, 16)),
        *(({'neighbours': number}, 'too few') for number in (2, 12)),
        ({'neighbours': 0}, 'seed of the neighbourhoods: 32 bytes'),
        *(({'ring_seed': '0f' * size}, f': {size} bytes') for size in (0, 1, 31, 33)),
        *(
            ({'ring_seed': seed}, 'seed of the neighbourhoods')
            for seed in ('0F' * 32, '0f ' * 32, '0f' * 31 + '0', '0x' * 32, '0f' * 32 + '\n', 'xy')
        ),
        *(({'ring_seed': seed}, None) for seed in (None, b'\x0f' * 32, 5)),
        # As many neighbours as there are others are all of them, and are not written so.
        ({'members': members(15), 'threshold': 11}, 'expected an even number'),
        # What is enough for few is not for many.
        ({'members': members(40), 'threshold': 27}, 'too few for 40'),
    ],
    ids=lambda value: str(value)[:60],
)
def test_neighbours_that_cannot_be_are_refused(changes, words):
    with pytest.raises(RosterError, match=words):
        replace(SPARSE, **changes)


@pytest.mark.parametrize(
    ('field', 'value'),
    [('neighbours', 0), ('neighbours', GONE), ('ring_seed', '0e' * 32), ('ring_seed', GONE)],
)
def test_changed_neighbours_of_a_file_are_refused(tmp_path, field, value):
    path = tmp_path / 'roster.json'
    SPARSE.save(path, ROOT)
    document = json.loads(path.read_text())
    document['roster'][field] = value
    if value == GONE:
        del document['roster'][field]
    path.write_text(json.dumps(document))
    with pytest.raises(RosterError):
        Roster.load(path, ROOT.public)


@pytest.mark.parametrize('strict', [True, False])
@pytest.mark.parametrize(('before', 'after'), [(150, 151), (150, 149), (150, 190), (150, 12)])
def test_successor_with_other_hospitals_has_a_new_ring_with_the_same_promise(
    before, after, strict
):
    degree = fewest_neighbours(before, withstands_lies=strict)
    every = with_hospitals(before)
    roster = replace(SPARSE, **every, neighbours=degree)
    assert roster.neighbourhoods.withstands_lies == strict
    other = roster.successor(**with_hospitals(after))
    assert other.neighbours == fewest_neighbours(after, withstands_lies=strict)
    assert other.neighbourhoods.withstands_lies >= strict
    if not other.neighbours:
        # So few that all mask with all.
        assert other.ring_seed == '' and other.neighbourhoods.is_complete
        assert 'neighbours' not in other.to_dict()
        return
    assert other.neighbourhoods.withstands_lies == strict
    seeds = {roster.successor(**with_hospitals(after)).ring_seed for _ in range(5)}
    assert len(seeds | {roster.ring_seed, other.ring_seed}) == 7


def test_successor_with_one_hospital_for_another_has_a_new_ring():
    # As many, but not the same: whoever chooses its name must not choose its neighbours.
    first, *rest = SPARSE.members
    replaced = (replace(first, name='hospital_99', public=b'\xaa' * 32), *rest)
    other = SPARSE.successor(members=replaced)
    assert other.neighbours == 14 and other.ring_seed != SPARSE.ring_seed


def test_successor_with_a_hospital_that_was_the_operator_has_a_new_ring():
    operator = SPARSE.member('operator')
    rest = tuple(each for each in SPARSE.members if each is not operator)
    joined = replace(operator, role='hospital', size=5)
    other = SPARSE.successor(members=(*rest, joined), threshold=12)
    assert len(other.hospitals) == 17
    assert other.neighbours == fewest_neighbours(17) and other.ring_seed != SPARSE.ring_seed


FIRST_OF_MANY, *OTHERS_OF_MANY = SPARSE.members


@pytest.mark.parametrize(
    'changes',
    [
        {},
        {'expires': 5},
        {'threshold': 9},
        {'members': (replace(FIRST_OF_MANY, public=b'\xaa' * 32), *OTHERS_OF_MANY)},
        {'members': (replace(FIRST_OF_MANY, size=7), *OTHERS_OF_MANY)},
        {'members': SPARSE.members[::-1]},
        {'members': tuple(each for each in SPARSE.members if each.name != 'operator')},
    ],
    ids=['nothing', 'validity', 'threshold', 'key', 'size', 'order', 'no operator'],
)
def test_successor_with_the_same_hospitals_keeps_their_ring(changes):
    # Each ring that is drawn is one more that may not keep what is promised.
    other = SPARSE.successor(**changes)
    assert other.serial == 2
    assert (other.neighbours, other.ring_seed) == (SPARSE.neighbours, SPARSE.ring_seed)


def test_successor_of_a_roster_without_neighbours_has_none():
    for count in (4, 16, 150):
        other = ROSTER.successor(**with_hospitals(count))
        assert (other.neighbours, other.ring_seed) == (0, '') and other.neighbourhoods.is_complete


def test_older_roster_is_never_used_again(tmp_path):
    path, second = tmp_path / 'seen', ROSTER.successor()
    for each in (ROSTER, ROSTER, second, second):
        remember_roster(path, each)
    before = path.read_bytes()
    with pytest.raises(RosterRollbackError, match='roster 1 of trial is older than roster 2'):
        remember_roster(path, ROSTER)
    with pytest.raises(RosterRollbackError, match='signed two of one number'):
        remember_roster(path, ROSTER.successor(expires=5))
    with pytest.raises(RosterRollbackError, match='was of federation trial'):
        remember_roster(path, replace(second, federation='other', serial=9))
    assert path.read_bytes() == before and path.stat().st_mode & 0o077 == 0
    remember_roster(path, replace(second, serial=7))
    with pytest.raises(RosterRollbackError):
        remember_roster(path, second)


@pytest.mark.parametrize('text', ['', '{', '[]', '{}', '{"serial": "a"}'])
def test_damaged_memory_is_not_taken_for_none(tmp_path, text):
    (tmp_path / 'seen').write_text(text)
    with pytest.raises(StoreError, match='damaged'):
        remember_roster(tmp_path / 'seen', ROSTER)
    with pytest.raises(StoreError, match='cannot be used'):
        remember_roster(tmp_path / 'missing' / 'seen', ROSTER)
