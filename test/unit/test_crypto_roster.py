# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The roster: signed by the pinned root, free of contradictions, and the same in every form."""

from dataclasses import replace
import json

from fdrl_ros.crypto.roster import default_threshold, Member, Roster
from fdrl_ros.crypto.signing import Identity, verify
from fdrl_ros.errors import RosterError
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


def test_roster_comes_back_from_its_file(path):
    assert Roster.load(path, ROOT.public) == ROSTER
    assert Roster.load(path, ROOT.public).digest == ROSTER.digest


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
    with pytest.raises(RosterError, match='not in the roster'):
        ROSTER.member('hospital_4')


def test_default_threshold_is_above_two_thirds():
    assert [default_threshold(n) for n in (3, 4, 6, 10, 50)] == [3, 3, 5, 7, 34]


def test_roster_of_another_root_is_refused(path):
    with pytest.raises(RosterError, match='not signed by the pinned root'):
        Roster.load(path, Identity.generate('root').public)


def change(document, keys, value):
    for key in keys[:-1]:
        document = document[key]
    document[keys[-1]] = value


@pytest.mark.parametrize(
    ('keys', 'value'),
    [
        (['roster', 'federation'], 'trial_2'),
        (['roster', 'threshold'], 2),
        (['roster', 'disjoint_patients'], False),
        (['roster', 'members', 0, 'size'], 101),
        (['roster', 'members', 0, 'name'], 'hospital_9'),
        (['roster', 'members', 0, 'public'], 'ab' * 32),
        (['roster', 'members', 0, 'role'], 'aggregator'),
        (['roster', 'members', 5, 'name'], 'nobody'),
        (['roster', 'extra'], 1),
        (['roster', 'members', 0, 'extra'], 1),
        (['roster', 'members'], None),
        (['roster', 'members', 0], None),
        (['roster', 'members', 0, 'public'], 5),
        (['roster'], []),
        (['signature'], '00' * 64),
        (['signature'], 'xy'),
        (['signature'], None),
        (['format'], 2),
        (['extra'], 1),
    ],
    ids=str,
)
def test_changed_file_is_refused(path, keys, value):
    document = json.loads(path.read_text())
    change(document, keys, value)
    path.write_text(json.dumps(document))
    with pytest.raises(RosterError):
        Roster.load(path, ROOT.public)


@pytest.mark.parametrize('text', ['', '{', '[]', '3', 'null', '"x"', '\udce4', '[' * 200_000])
def test_damaged_file_is_refused(path, text):
    path.write_text(text, errors='surrogateescape')
    with pytest.raises(RosterError):
        Roster.load(path, ROOT.public)


def test_key_named_twice_is_refused(path):
    text = path.read_text().replace('"threshold": 3,', '"threshold": 2, "threshold": 3,')
    path.write_text(text)
    with pytest.raises(RosterError, match='twice'):
        Roster.load(path, ROOT.public)


def test_missing_and_huge_files_are_refused(tmp_path):
    with pytest.raises(RosterError, match='No such file'):
        Roster.load(tmp_path / 'none.json', ROOT.public)
    (tmp_path / 'huge.json').write_bytes(b' ' * (2**20 + 1))
    with pytest.raises(RosterError, match='longer'):
        Roster.load(tmp_path / 'huge.json', ROOT.public)


def test_duplicate_names_and_keys_are_refused():
    first, second, *rest = members()
    with pytest.raises(RosterError, match='same name'):
        replace(ROSTER, members=(first, replace(second, name=first.name), *rest))
    with pytest.raises(RosterError, match='same public key'):
        replace(ROSTER, members=(first, replace(second, public=first.public), *rest))


def test_fewer_than_three_hospitals_are_refused():
    with pytest.raises(RosterError, match='2 hospitals'):
        Roster('trial', 2, members(2), True)


@pytest.mark.parametrize('threshold', [0, 1, 4, True, 3.0])
def test_threshold_that_two_halves_reach_is_refused(threshold):
    with pytest.raises(RosterError, match='threshold'):
        replace(ROSTER, threshold=threshold)


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
        ('hospital_1', 'hospital', bytes(32), 0),
        ('hospital_1', 'hospital', bytes(32), -5),
        ('hospital_1', 'hospital', bytes(32), 1.5),
        ('hospital_1', 'hospital', bytes(32), True),
        ('hospital_1', 'hospital', bytes(31), 5),
        ('hospital_1', 'hospital', '00' * 32, 5),
        ('hospital_1', 'surgeon', bytes(32), 5),
        ('aggregator', 'aggregator', bytes(32), 5),
        ('Hospital', 'hospital', bytes(32), 5),
        ('../root', 'hospital', bytes(32), 5),
        ('hospital_1\n', 'hospital', bytes(32), 5),
        ('', 'hospital', bytes(32), 5),
        ('h' * 64, 'hospital', bytes(32), 5),
    ],
    ids=str,
)
def test_member_that_could_not_take_part_is_refused(fields):
    with pytest.raises(RosterError):
        Member(*fields)


@pytest.mark.parametrize('changes', [{'federation': 'a/b'}, {'disjoint_patients': 1}], ids=str)
def test_roster_that_says_nothing_sure_is_refused(changes):
    with pytest.raises(RosterError):
        replace(ROSTER, **changes)
