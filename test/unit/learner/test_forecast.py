# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What further rounds cost: the budget pays for so many, and everybody tells the same number."""

from dataclasses import replace
from pathlib import Path
import re

from fdrl_ros.deployment.events import PrivacySpent
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import budget_words, check_plan
from fdrl_ros.errors import BudgetExceededError, PrivacyError
from fdrl_ros.experiments.studies.sepsis.tables import spent_words
from fdrl_ros.learner.forecast import planned_chain, RoundCosts
from fdrl_ros.learner.home import home_charges
from fdrl_ros.learner.privacy_cost import ChargedMechanism, RecordCounts
from fdrl_ros.page.forecast import Forecast, MOST_ROUNDS
from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld
from fdrl_ros.privacy.ledger.account import ACCOUNT
from fdrl_ros.privacy.ledger.chain import Chain, Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise_key import HOME_ROUNDS
from fdrl_ros.privacy.stated import rounded_up, single_precision, stated
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
from support.small_run import TINY_PLAN

ROOT = Path(__file__).resolve().parents[3]
PLAN = Plan().changed(
    {
        **TINY_PLAN,
        'learner': {'hidden': 8, 'epochs': 3},
        'privacy': {'batch': 4, 'noise_multiplier': 3.0, 'budget': 8.0, 'delta': 1e-4},
    }
)
AT_HOME = PLAN.changed({'home': {'epochs': 2}})
SIZE = RecordCounts(8, 8, PLAN.privacy.most_transitions)
MECHANISM = ChargedMechanism.from_settings(SIZE, PLAN.learner, PLAN.privacy)
BLOCK = MECHANISM.charge(MECHANISM.steps_of_epoch)
BUDGET, DELTA = PLAN.privacy.budget, PLAN.privacy.delta
OTHERS = (Charge(2.0, 0.5, 20, 1),)


def chain_of(blocks: int, home: bool = False) -> Chain:
    """Return the ledger of so many local epochs, three a round, and of a home policy after."""
    chain = Chain(Owner('hospital_1', 'patient', DELTA, BUDGET))
    for block in range(blocks):
        chain.add(chain.next(1 + block // 3, block % 3, BLOCK, b'x'))
    if home:
        last = blocks // 3
        for block in range(2):
            chain.add(chain.next(HOME_ROUNDS + last, block, BLOCK, b'x'))
        *_, choice = home_charges(PLAN.learner, PLAN.privacy, AT_HOME.home, SIZE)
        chain.add(chain.next(2 * HOME_ROUNDS + last, 0, choice, b'x'))
    return chain


def costs(plan: Plan, chain: Chain | None = None, others: tuple[Charge, ...] = ()) -> RoundCosts:
    return RoundCosts(plan.learner, plan.privacy, plan.home, SIZE, chain=chain, elsewhere=others)


@pytest.mark.parametrize('plan', [PLAN, AT_HOME])
@pytest.mark.parametrize('others', [(), OTHERS])
@pytest.mark.parametrize('blocks', [0, 3, 5])
def test_the_budget_pays_for_so_many_rounds_and_no_more(
    plan: Plan, others: tuple[Charge, ...], blocks: int
) -> None:
    found = costs(plan, chain_of(blocks), others)
    paid = found.rounds_paid(1000)
    assert 0 < paid < 1000
    assert found.epsilon(paid) <= BUDGET < found.epsilon(paid + 1)


def test_a_round_that_was_begun_costs_its_missing_blocks() -> None:
    found = costs(PLAN, chain_of(4))
    assert found.done == 1
    whole = epsilon_pld([BLOCK] * 6, DELTA)
    assert found.epsilon(1) == pytest.approx(whole, rel=1e-3)


def test_a_second_home_policy_is_refused_before_it_is_trained() -> None:
    made = chain_of(6, home=True)
    found = costs(AT_HOME, made)
    found.check(2)
    assert found.epsilon(0) == pytest.approx(made.epsilon(), rel=1e-3)
    again = found.done + found.rounds_paid(1000)
    assert again < costs(AT_HOME).rounds_paid(1000)
    found.check(again)
    with pytest.raises(PrivacyError):
        found.check(again + 1)


@pytest.mark.parametrize('plan', [PLAN, AT_HOME])
def test_page_prepare_and_check_agree(plan: Plan) -> None:
    paid = costs(plan).rounds_paid(MOST_ROUNDS)
    spent = PrivacySpent(
        'hospital_1', 'patient', chain_of(3).epsilon(), 0.0, DELTA, BUDGET, 3, False
    )
    assert Forecast(plan).pays_for(spent) == paid - 1
    assert costs(plan, chain_of(3)).rounds_paid(MOST_ROUNDS) == paid - 1
    assert f'pays for {paid} rounds' in budget_words(plan, None)
    check_plan(plan.changed({'rounds': {'rounds': paid}}), None)
    with pytest.raises(PrivacyError, match=f'pays for {paid}' if plan is PLAN else 'budget'):
        check_plan(plan.changed({'rounds': {'rounds': paid + 1}}), None)


@pytest.mark.parametrize('candidates', ['personal', 'personal, alone'])
def test_the_page_counts_a_home_policy_that_was_made(candidates: str) -> None:
    plan = AT_HOME.changed({'home': {'candidates': candidates, 'alone_epochs': 4}})
    made = planned_chain(plan.learner, plan.privacy, plan.home, SIZE, 2, home_made=True)
    assert made.head.entries == 2 * 3 + 2 + 4 * ('alone' in candidates) + 1
    spent = PrivacySpent(
        'hospital_1', 'patient', made.epsilon(), 0.0, DELTA, BUDGET, made.head.entries, False
    )
    paid = costs(plan, made).rounds_paid(MOST_ROUNDS)
    assert 0 < paid < MOST_ROUNDS
    assert Forecast(plan).pays_for(spent) == paid
    # Another home policy is part of what the further rounds cost.
    assert costs(plan, made).epsilon(1) > costs(PLAN, made).epsilon(1)
    # Nothing is guessed from an epsilon, or from entries, of something else.
    assert Forecast(plan).pays_for(replace(spent, epsilon=0.9 * made.epsilon())) is None
    assert Forecast(plan).pays_for(replace(spent, entries=made.head.entries - 1)) is None


def test_a_planned_ledger_is_the_one_that_a_hospital_has() -> None:
    for home in (False, True):
        planned = planned_chain(PLAN.learner, PLAN.privacy, AT_HOME.home, SIZE, 2, home_made=home)
        own = chain_of(6, home)
        assert planned.history() == own.history()
        assert [each.round for each in planned.entries] == [each.round for each in own.entries]


def test_an_account_counts_and_the_page_tells_nothing_of_it(tmp_path: Path) -> None:
    account = tmp_path / 'account.sqlite'
    with_account = PLAN.changed({'privacy': {'account': str(account)}})
    owner = Owner('', 'patient', DELTA, BUDGET, ACCOUNT)
    with Ledger(account, owner) as ledger:
        ledger.reserve(round=1, block=0, charge=OTHERS[0], inputs=b'x')
    paid = costs(PLAN, others=OTHERS).rounds_paid(1000)
    assert paid < costs(PLAN).rounds_paid(1000)
    assert f'pays for {paid} rounds' in budget_words(with_account, None)
    spent = PrivacySpent('hospital_1', 'patient', 0.0, 0.0, DELTA, BUDGET, 0, False)
    assert Forecast(with_account).pays_for(spent) is None
    assert Forecast(PLAN).pays_for(replace(spent, delta=DELTA / 2)) is None


@given(st.floats(0.0, 1e6), st.integers(0, 5))
def test_what_is_stated_is_never_below_the_truth(bound: float, digits: int) -> None:
    told = float(stated(bound, digits))
    assert bound <= told <= bound + 1.001 * 10**-digits
    for upper in (rounded_up(bound, digits), single_precision(bound)):
        assert upper >= bound
    assert rounded_up(bound, digits) == told
    single = single_precision(bound)
    assert float(np.float32(single)) == single and single <= bound * (1.0 + 2e-7) + 1e-44
    assert stated(5.3134) == '5.32' and stated(2.7) == '2.70' and stated(float('inf')) == 'inf'


def test_a_refused_charge_and_a_table_round_epsilon_up():
    told = str(BudgetExceededError(7.00001, 8.99999, 8.0))
    assert '7.0001 is spent' in told and 'make it 9.0, above' in told
    assert spent_words(5.3101) == '5.32' and spent_words(None) == 'inf'


SHOWN = re.compile(
    r'\{(?!\w*budget)[^{}/]*(?:epsilon|spent|claimed|cost)\w*(?:\["epsilon"\])?:\.\d[fg]\}'
)


ROUNDED = re.compile(r'\b(?:round|number|numbers)\([^)]*(?:epsilon|spent)|epsilon.*toFixed')
"""An epsilon that becomes a number with few digits; `bound` and `roundedUp` round up."""


def test_no_module_rounds_an_epsilon_to_the_nearest():
    found = []
    files = [*(ROOT / 'fdrl_ros').rglob('*.py'), *(ROOT / 'fdrl_ros/page/static').glob('*.js')]
    for path in sorted(files):
        for line in path.read_text('utf-8').splitlines():
            near = SHOWN.search(line) or ROUNDED.search(line)
            if near and 'epsilon_paper' not in line:
                found.append(f'{path.relative_to(ROOT)}: {line.strip()}')
    assert found == []
    assert ROUNDED.search("'epsilon': number(event.epsilon),")
