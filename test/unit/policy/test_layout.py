# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The order of named tensors in flat weights, and which of them hospitals share."""

from fdrl_ros.errors import PolicyError
from fdrl_ros.policy.layout import Tensor, TensorLayout
from hypothesis import given, strategies
import numpy as np
import pytest

TENSORS = (
    Tensor('body.0.weight', (3, 2)),
    Tensor('body.0.bias', (3,)),
    Tensor('head.weight', (1, 3)),
    Tensor('head.bias', ()),
)


def test_frozen_tensors_come_first_and_are_not_shared():
    layout = TensorLayout.of(TENSORS, ['head'])
    assert [tensor.name for tensor in layout.tensors] == [
        'head.weight',
        'head.bias',
        'body.0.weight',
        'body.0.bias',
    ]
    assert (layout.n_parameters, layout.start) == (13, 4)
    np.testing.assert_array_equal(layout.shared(), np.arange(4, 13))
    np.testing.assert_array_equal(layout.shared(['body.0.bias']), np.arange(4, 10))
    split = layout.split(np.arange(13.0))
    np.testing.assert_array_equal(split['body.0.weight'], [[4, 5], [6, 7], [8, 9]])
    assert split['head.bias'].shape == ()


def test_a_star_in_a_name_stands_for_any_letters():
    layout = TensorLayout(TENSORS)
    np.testing.assert_array_equal(layout.shared(['*.bias']), [*range(6), 9, 10, 11])
    np.testing.assert_array_equal(layout.shared(['b*0']), np.arange(9, 13))
    np.testing.assert_array_equal(layout.trained(['*d*.w*t']), [6, 7, 8, 12])
    assert TensorLayout.of(TENSORS, ['h*']) == TensorLayout.of(TENSORS, ['head'])
    dotted = TensorLayout((Tensor('a+c', (1,)), Tensor('aac', (1,))))
    np.testing.assert_array_equal(dotted.shared(['a+c']), [1])


@pytest.mark.parametrize(
    'make',
    [
        lambda: TensorLayout((TENSORS[0], TENSORS[0])),
        lambda: TensorLayout((Tensor('empty', (2, 0)),)),
        lambda: TensorLayout((Tensor('', (2,)),)),
        lambda: TensorLayout(()),
        lambda: TensorLayout.of(TENSORS, ['body', 'head']),
        lambda: TensorLayout.of(TENSORS, ['bod']),
        lambda: TensorLayout(TENSORS).shared(['tail']),
        lambda: TensorLayout(TENSORS).shared(['t*']),
        lambda: TensorLayout(TENSORS).shared(['*']),
        lambda: TensorLayout(TENSORS).shared(['body', 'head']),
        lambda: TensorLayout.from_json('{"frozen": 0}'),
        lambda: TensorLayout.from_json('{"frozen": 1, "tensors": [["a", [2]]]}'),
        lambda: TensorLayout.from_json('[]'),
    ],
)
def test_what_is_no_layout_is_refused(make):
    with pytest.raises(PolicyError):
        make()


@given(
    strategies.lists(
        strategies.tuples(
            strategies.text('abc.', min_size=1, max_size=5),
            strategies.lists(strategies.integers(1, 4), max_size=3),
        ),
        min_size=1,
        max_size=5,
        unique_by=lambda row: row[0],
    ),
    strategies.data(),
)
def test_every_layout_is_read_back_and_cuts_the_weights_into_its_tensors(rows, data):
    tensors = [Tensor(name, tuple(shape)) for name, shape in rows]
    layout = TensorLayout(tuple(tensors), data.draw(strategies.integers(0, len(tensors) - 1)))
    again = TensorLayout.from_json(layout.to_json())
    assert again == layout and again.digest() == layout.digest()
    weights = np.arange(layout.n_parameters)
    joined = np.concatenate([part.reshape(-1) for part in layout.split(weights).values()])
    np.testing.assert_array_equal(joined, weights)
