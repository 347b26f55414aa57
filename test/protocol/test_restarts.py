# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Parties that are killed and started again: the end is the same, and nothing is reused."""

from dropouts import CHUNKED, DroppingFederation, secret_of, Stage
from fdrl_ros.federation.message import MaskedUpdate
from federation_bench import Bench
import pytest


@pytest.mark.parametrize('stage', [Stage.BEFORE_SENDING, Stage.WHILE_SENDING])
def test_hospital_killed_while_it_sends_sends_the_same_chunks_again(stage):
    driver = DroppingFederation(1, {'hospital_2': stage})
    bench = Bench(None, 3, 1, shape=CHUNKED, secret=secret_of(3), driver=driver)
    assert bench.run(lambda: driver.lost == ['hospital_2'])
    bench.start('hospital_2')
    assert bench.run()
    assert not driver.refused
    sent = [m for m in driver.messages if isinstance(m, MaskedUpdate)]
    assert {m.envelope.attempt for m in sent} == {1}
    assert len({m.ciphertext for m in sent}) == 3 * 2
