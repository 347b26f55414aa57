# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a task says of observations and actions, and what contradicts itself."""

from fdrl_ros.errors import TaskError
from fdrl_ros.policy.task_identity import TaskIdentity
from fdrl_ros.tasks import Field, TaskSpec
from gymnasium import spaces
import numpy as np
import pytest

IMAGE = spaces.Box(0, 255, (1, 4, 5), np.uint8)
VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
PAIR = spaces.Dict({'b': spaces.Box(-9.0, 9.0, (2,), np.float32), 'a': spaces.Discrete(3)})
TWO = spaces.Discrete(2)
REACH = spaces.Box(np.float32([-1.0, 0.0]), np.float32([1.0, 2.0]))


def test_an_image_stays_bytes_in_its_shape():
    spec = TaskSpec.from_spaces(IMAGE, TWO)
    assert (spec.shape, spec.size, spec.dtype, spec.n_actions) == ((1, 4, 5), 20, 'uint8', 2)
    seen = IMAGE.sample()
    found = spec.encode(seen, IMAGE)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, seen.reshape(-1))


def test_a_dictionary_becomes_one_vector_in_the_order_of_its_names():
    spec = TaskSpec.from_spaces(
        PAIR, TWO, fields=[Field(str(each), scale=2.0) for each in 'vwxyz']
    )
    found = spec.encode({'a': 1, 'b': np.array([4.0, -6.0], np.float32)}, PAIR)
    np.testing.assert_array_equal(found, [0.0, 0.5, 0.0, 2.0, -3.0])
    assert found.dtype == np.float32


def test_actions_are_drawn_evenly_within_their_limits():
    spec, rng = TaskSpec.from_spaces(VECTOR, REACH), np.random.default_rng(1)
    assert spec.continuous and spec.n_actions == 2
    drawn = np.array([spec.draw_action(rng) for _ in range(400)])
    assert drawn.dtype == np.float32 and REACH.contains(drawn[0])
    np.testing.assert_allclose(drawn.mean(axis=0), [0.0, 1.0], atol=0.1)
    discrete = TaskSpec.from_spaces(VECTOR, TWO)
    assert {discrete.draw_action(rng) for _ in range(20)} == {0, 1}
    pixels = TaskSpec((8,), 'uint8', actions=('a', 'b', 'c'), places=300)
    classes = pixels.draw_action(rng)
    assert classes.shape == (300,) and classes.dtype == np.uint8 and set(classes) == {0, 1, 2}
    assert pixels.in_words == '3 discrete at 300 places'


@pytest.mark.parametrize(
    'make',
    [
        lambda: TaskSpec((0,), actions=('a',)),
        lambda: TaskSpec((2,)),
        lambda: TaskSpec((2,), 'float64', actions=('a',)),
        lambda: TaskSpec((2,), fields=(Field('only'),), actions=('a',)),
        lambda: TaskSpec((1,), fields=(Field('flat', scale=0.0),), actions=('a',)),
        lambda: TaskSpec((1,), low=(0.0,), high=(0.0,)),
        lambda: TaskSpec((1,), low=(0.0,), high=()),
        lambda: TaskSpec((1,), actions=('a',), low=(0.0,), high=(1.0,)),
        lambda: TaskSpec((1,), actions=('a', 'b'), places=0),
        lambda: TaskSpec((1,), low=(0.0,), high=(1.0,), places=2),
        lambda: TaskSpec((1,), actions=tuple(map(str, range(257))), places=2),
        lambda: TaskSpec.from_spaces(VECTOR, TWO, actions=['one']),
        lambda: TaskSpec.from_spaces(VECTOR, spaces.Discrete(2, start=1)),
        lambda: TaskSpec.from_spaces(VECTOR, spaces.Box(-np.inf, np.inf, (2,))),
        lambda: TaskSpec.from_spaces(VECTOR, spaces.Box(-1.0, 1.0, (2, 2))),
        lambda: TaskSpec.from_spaces(VECTOR, spaces.MultiBinary(3)),
        lambda: TaskSpec.from_spaces(spaces.Graph(VECTOR, None), TWO),
    ],
)
def test_what_no_policy_can_see_or_do_is_refused(make):
    with pytest.raises(TaskError):
        make()


def test_places_are_part_of_the_digest_where_there_are_several():
    one, two = (TaskSpec((2,), actions=('a', 'b'), places=each) for each in (1, 2))
    assert one.digest() != two.digest()
    # That of specs before there were places.
    assert one.digest().startswith('512191d1177fa22b')


def test_an_identity_is_read_back_and_refuses_others():
    one = TaskIdentity('pole', 2, 'ab' * 32)
    assert TaskIdentity.from_json(one.to_json()) == one
    one.check(one, 'it')
    for other in (None, TaskIdentity('pole', 3, 'ab' * 32), TaskIdentity('pole', 2, 'cd' * 32)):
        with pytest.raises(TaskError, match=r'records\.npz'):
            one.check(other, 'records.npz')
    for text in ('', '[]', '{"name": "pole"}', '{"name": "a", "version": "x", "world_hash": ""}'):
        with pytest.raises(TaskError):
            TaskIdentity.from_json(text)
