# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Planted bugs: what each breaks, the patch, and who must catch it.

`fdrl audit` catches what changes the releases; a named test catches what no release shows, such as
the order of charging and drawing, masks, and who may see what.
"""

from dataclasses import dataclass

LEARNER = 'fdrl_ros.learner'
PRIVACY = 'fdrl_ros.privacy'


@dataclass(frozen=True)
class Mutant:
    """
    A bug.

    ``area`` and ``breaks``: what, in words. ``module``: which has it, or a file of C. ``edits``:
    text there that occurs once, and what takes its place. ``shows``: what the audit command says
    of it, or ``test``: which test fails. ``flags`` of the command, beside the usual ones.
    """

    area: str
    breaks: str
    module: str
    edits: tuple[tuple[str, str], ...]
    shows: str = ''
    test: str = ''
    flags: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """Return where the source is, below the checkout."""
        return self.module if self.compiled else f'{self.module.replace(".", "/")}.py'

    @property
    def compiled(self) -> bool:
        """Whether it is in the compiled arithmetic."""
        return self.module.endswith('.c')

    def applied(self, source: str) -> str:
        """Return the module's text with the bug."""
        for old, new in self.edits:
            assert source.count(old) == 1, f'{self.module}: {source.count(old)} times {old!r}'
            source = source.replace(old, new)
        return source


PRIORITISED = (
    *('--learner-replay', 'prioritised_poisson', '--learner-algorithm', 'double_dqn'),
    *('--pretraining-labels', 'done'),
)
RELEASE = 'return self.add_noise(clipped, self.noise(round, step))'
GAUSSIAN = "return self._source.gaussian('gradient', round, step, self.dqn.size)"
SUM = 'return made.clipped_sum(units, transitions, clip_norm)'

MUTANTS = {
    'everyone joins': Mutant(
        'sampling',
        'all units join each step, charged at q = L / n',
        f'{PRIVACY}.mechanism',
        (('    if q == 1.0:\n        return np.arange', '    if q:\n        return np.arange'),),
        shows='coins: rate',
    ),
    'same coins every round': Mutant(
        'sampling',
        'the coins of a step are those of that step in round 1',
        f'{LEARNER}.records.sampling',
        (
            (
                'poisson_sample(count, mechanism.rate, source, round, step)',
                'poisson_sample(count, mechanism.rate, source, 1, step)',
            ),
        ),
        shows='coins: again',
    ),
    'batches of a fixed size': Mutant(
        'sampling',
        'L different units join each step, charged as independent coins',
        f'{LEARNER}.records.sampling',
        (
            (
                'poisson_sample(count, mechanism.rate, source, round, step)',
                "np.sort(np.argsort(source.uniform('any', round, step, count))[:batch])",
            ),
        ),
        shows='coins: sizes',
    ),
    'a walk through all patients': Mutant(
        'sampling',
        'each unit joins once an epoch, charged as independent coins',
        f'{LEARNER}.records.sampling',
        (
            (
                'poisson_sample(count, mechanism.rate, source, round, step)',
                "np.sort(np.argsort(source.uniform('any', round, step // 4, count))"
                '[step % 4 * batch : (step % 4 + 1) * batch])',
            ),
        ),
        shows='coins: units',
    ),
    'private priorities charged as Poisson': Mutant(
        'sampling',
        'amplification is claimed for coins that follow private errors',
        f'{PRIVACY}.mechanism',
        (("return charge if sampling == 'poisson' else", 'return charge if sampling else'),),
        shows='coins: ',
        flags=PRIORITISED,
    ),
    'priorities over their sum': Mutant(
        'sampling',
        "each unit's priority moves the coins of all others",
        f'{LEARNER}.records.sampling',
        (
            (
                'scale = mechanism.rate / self._learner.expected_priority',
                'scale = mechanism.rate / priorities.mean()',
            ),
        ),
        shows='coins: rate',
        flags=PRIORITISED,
    ),
    'one coin for two units': Mutant(
        'sampling',
        'neighbouring units share a coin',
        f'{PRIVACY}.mechanism',
        (
            (
                'return np.flatnonzero(coins < probabilities)',
                'return np.flatnonzero(np.repeat(coins[::2], 2)[: len(coins)] < probabilities)',
            ),
        ),
        shows='coins: lags',
        flags=PRIORITISED,
    ),
    'clipping at ten times C': Mutant(
        'clipping',
        'a unit moves the sum by 10 C',
        f'{PRIVACY}.mechanism',
        (('return clip_norm * _WITHIN', 'return 10.0 * clip_norm'),),
        shows='is claimed',
    ),
    'clipping a tenth too wide': Mutant(
        'clipping',
        'a unit moves the sum by 1.1 C',
        f'{PRIVACY}.mechanism',
        (('return clip_norm * _WITHIN', 'return 1.1 * clip_norm'),),
        shows='clipping: shift',
    ),
    'clipping per layer': Mutant(
        'layers',
        "each layer's gradient is clipped to C, so a unit moves the sum by more",
        f'{LEARNER}.gradient',
        (
            (
                SUM,
                'kept, total = [each.outputs.copy() for each in made.layers], 0.0\n'
                '            for number in range(len(kept)):\n'
                '                for place, each in enumerate(made.layers):\n'
                '                    each.outputs[:] = kept[place] if place == number else 0.0\n'
                '                total += made.clipped_sum(units, transitions, clip_norm)\n'
                '            return total',
            ),
        ),
        shows='clipping: shift',
    ),
    'a norm without the head': Mutant(
        'layers',
        'the compiled norm of a gradient leaves the last layer out',
        'native/clipping.c',
        (
            (
                'square += (double)dot(area, at, at)',
                'if (l < net->shared) square += (double)dot(area, at, at)',
            ),
        ),
        shows='clipping: shift',
    ),
    'a unit that is not finite': Mutant(
        'clipping',
        'a gradient that is not finite is added, so all see who has it',
        'native/clipping.c',
        (('  if (!isfinite(square)) { return 0.0; }\n', ''),),
        test='test/unit/learner/test_gradient.py'
        '::test_a_unit_that_is_not_finite_adds_nothing_and_stops_nobody',
    ),
    'clipping after the sum': Mutant(
        'clipping',
        'the sum of all is clipped, not each unit',
        f'{LEARNER}.gradient',
        (
            (
                SUM,
                'total = made.summed()\n'
                '            return total * min(1.0, clip_norm / np.linalg.norm(total))',
            ),
        ),
        shows='clipping: shift',
    ),
    'clipping each transition': Mutant(
        'clipping',
        "each of a patient's transitions is clipped, so a patient moves the sum by several C",
        f'{LEARNER}.gradient',
        ((SUM, 'return made.clipped_sum(units * transitions, 1, clip_norm)'),),
        shows='clipping: shift',
    ),
    'half the noise': Mutant(
        'noise',
        'sigma is half of what is charged',
        f'{PRIVACY}.mechanism',
        (
            (
                'noise_multiplier * clip_norm / grid, grid',
                '0.5 * noise_multiplier * clip_norm / grid, grid',
            ),
        ),
        shows='is claimed',
    ),
    'noise a twentieth too small': Mutant(
        'noise',
        'sigma is 0.95 of what is charged',
        f'{PRIVACY}.mechanism',
        (
            (
                'noise_multiplier * clip_norm / grid, grid',
                '0.95 * noise_multiplier * clip_norm / grid, grid',
            ),
        ),
        shows='noise: size',
    ),
    'uniform noise': Mutant(
        'noise',
        'noise of the right variance that is bounded',
        f'{PRIVACY}.noise',
        (
            (
                'return kernels.gaussian(stream)[:size]',
                'return 12.0**0.5 * (to_unit(stream)[:size] - 0.5)',
            ),
        ),
        shows='noise: shape',
    ),
    'weights without noise': Mutant(
        'layers',
        'the last 64 weights get no noise',
        f'{LEARNER}.trainer',
        ((GAUSSIAN, f'{GAUSSIAN} * (np.arange(self.dqn.size) < self.dqn.size - 64)'),),
        shows='noise: weights',
    ),
    'noise of the first half twice': Mutant(
        'reuse',
        'half of the weights have the noise of the other half',
        f'{LEARNER}.trainer',
        ((GAUSSIAN, f'{GAUSSIAN}[np.arange(self.dqn.size) % (self.dqn.size // 2)]'),),
        shows='noise: lags',
    ),
    'cosine for sine': Mutant(
        'reuse',
        'the compiled noise has the same draws for both halves of the weights',
        'native/noise.c',
        (
            (
                '*(doubles *)second = radius * sine;',
                '*(doubles *)second = radius * cosine + 0.0 * sine;',
            ),
        ),
        shows='noise: lags',
    ),
    'same noise every round': Mutant(
        'reuse',
        'the noise of a step is that of the step in round 1: a difference of rounds has none',
        f'{LEARNER}.trainer',
        ((GAUSSIAN, GAUSSIAN.replace('round, step', '1, step')),),
        shows='noise: fresh',
    ),
    'some noise in common': Mutant(
        'reuse',
        'a tenth of the variance is the same in all steps: it cancels in differences',
        f'{LEARNER}.trainer',
        (
            (
                GAUSSIAN,
                "own, all = (self._source.gaussian('gradient', *at, self.dqn.size) for at in "
                '((round, step), (0, 0)))\n        return 0.9**0.5 * own + 0.1**0.5 * all',
            ),
        ),
        shows='noise: ',
    ),
    'same noise in all hospitals': Mutant(
        'reuse',
        'a seeded hospital draws what all others draw',
        'fdrl_ros.deployment.parties.hospital',
        (("f'{plan.federation.seed} {name}'", "f'{plan.federation.seed}'"),),
        shows='noise: hospitals',
    ),
    'noise that follows the batch': Mutant(
        'noise',
        'the release is divided by how many joined, which it thereby tells',
        f'{LEARNER}.trainer',
        ((RELEASE, f'{RELEASE} * (self.privacy.batch / max(1, len(draw.units)))'),),
        shows='noise: ',
    ),
    'a clean gradient behind the noise': Mutant(
        'noise',
        'from step 3 of a round on the sum is released without noise too',
        f'{LEARNER}.trainer',
        (
            (
                RELEASE,
                RELEASE.replace('return', 'noised =')
                + '\n        return noised + (clipped / self.privacy.batch if step >= 3 else 0.0)',
            ),
        ),
        shows='clipping: shift',
    ),
    'a clean gradient in the weights': Mutant(
        'noise',
        'from step 3 of a round on a private gradient without noise moves the weights',
        f'{LEARNER}.trainer',
        (
            (
                '            if learner.proximal:\n',
                '            if step >= 3:\n'
                '                whole = SampledUnits(np.arange(self.mechanism.n_records))\n'
                '                clean = self.batch(whole, round, step)\n'
                '                gradient += 1e-3 * self.dqn.mean(current, target, clean)\n'
                '            if learner.proximal:\n',
            ),
        ),
        shows='follow from the releases',
    ),
    'a step that nobody charged': Mutant(
        'accounting',
        'each block is charged one step less than it runs',
        f'{LEARNER}.trainer',
        (
            (
                'charge = self.mechanism.charge(self.steps_per_block)',
                'charge = self.mechanism.charge(self.steps_per_block - 1)',
            ),
        ),
        shows='the ledger counts',
    ),
    'epsilon of the newest block': Mutant(
        'accounting',
        'the ledger states what the last block cost, not all',
        f'{PRIVACY}.ledger.ledger',
        (
            (
                '            return self.chain.epsilon()\n',
                '            last = self.chain.history()[-1]._replace(steps=1)\n'
                '            return epsilon_pld([last], self.owner.delta)\n',
            ),
        ),
        shows='is claimed',
    ),
    'composition that forgets': Mutant(
        'accounting',
        'unsampled steps add up to nine tenths of their cost',
        f'{PRIVACY}.accountant.accountant',
        (('gaussian_epsilon(tally.mu, delta)', 'gaussian_epsilon(0.9 * tally.mu, delta)'),),
        test='test/unit/privacy/test_accountant.py::test_unsampled_steps_compose_as_one_gaussian',
    ),
    'noise that groups do not halve': Mutant(
        'accounting',
        'a transition in several records is charged as if it were in one',
        f'{LEARNER}.privacy_cost',
        (('noise /= 2.0 if group > 1 else 1.0', 'noise /= 1.0'),),
        test='test/unit/learner/test_sampling.py'
        '::test_returns_of_n_steps_make_a_transition_unit_a_group_of_n',
    ),
    'a block for other gradients': Mutant(
        'reuse',
        'a reserved block may be drawn again for other records: two releases, one noise',
        f'{PRIVACY}.ledger.ledger',
        (
            (
                'if (earlier.charge, earlier.inputs) != (entry.charge, entry.inputs):',
                'if earlier.charge != entry.charge:',
            ),
        ),
        test='test/unit/privacy/test_ledger.py::test_a_block_is_never_reserved_for_something_else',
    ),
    'noise that is not erased': Mutant(
        'reuse',
        'the key of a round that is over stays in the file',
        f'{PRIVACY}.noise_key',
        (
            (
                'self._write(link + 1, self._hashed(link + 1), self._alone, self._ledger)',
                'self._write(link, self._hashed(link), self._alone, self._ledger)',
            ),
        ),
        test='test/unit/privacy/test_noise_key.py'
        '::test_what_is_over_can_be_drawn_by_nobody_who_has_the_directory',
    ),
    'noise before the charge': Mutant(
        'order',
        'noise of a block is drawn before the block is in the ledger',
        f'{LEARNER}.trainer',
        (
            (
                '        self._source.check_drawable(state.round)\n',
                '        self._source.check_drawable(state.round)\n'
                '        self.noise(state.round, state.steps)\n',
            ),
        ),
        test='test/unit/learner/test_order.py'
        '::test_every_block_is_reserved_before_anything_of_it_is_drawn',
    ),
    'a late answer is taken': Mutant(
        'late rounds',
        'the aggregator takes what was sent in an attempt that is over',
        'fdrl_ros.federation.aggregator.aggregator',
        (('if attempt != self.state.record.id:', 'if attempt > self.state.record.id:'),),
        test='test/protocol/test_fuzz.py::test_10_000_bad_messages_are_refused_and_change_nothing',
    ),
    'a second decryption': Mutant(
        'late rounds',
        'the key authority decrypts another sum of a round that is over',
        'fdrl_ros.federation.key_authority.key_authority',
        (
            (
                'if message.envelope.round != self.round + 1:',
                'if message.envelope.round > self.round + 1:',
            ),
            (
                'if message.envelope.round == self.round:\n            # The answer',
                'if False:\n            # The answer',
            ),
        ),
        test='test/protocol/test_refusals.py::test_there_is_no_second_decryption_of_a_round',
    ),
    'pair masks alone': Mutant(
        'masks',
        'a hospital adds no mask of its own: who restores its pair masks has its update',
        'fdrl_ros.crypto.masking.masks',
        (('    terms.append((secrets.self_seed, True))\n', ''),),
        test='test/unit/crypto/test_masking.py::test_masks_of_all_members_cancel',
    ),
    'masks of half the range': Mutant(
        'masks',
        'masks are uniform below half of the modulus only: large numbers show through',
        'fdrl_ros.crypto.masking.masks',
        (
            (
                '            return words[:size]',
                '            return words[:size] % np.uint64(modulus // 2)',
            ),
        ),
        test='test/unit/crypto/test_masking.py'
        '::test_rejection_is_what_makes_the_remainder_uniform',
    ),
    'masks that no round changes': Mutant(
        'masks',
        'pair masks do not depend on the round: a difference of rounds has none',
        'fdrl_ros.crypto.masking.masks',
        (('self.federation, self.round, self.attempt\n', 'self.federation, 0, 0\n'),),
        test='test/unit/crypto/test_masking.py'
        '::test_stream_changes_with_everything_that_it_is_bound_to',
    ),
    'rounding to the nearest': Mutant(
        'quantisation',
        'rounding is not random: small updates are lost or doubled',
        'fdrl_ros.crypto.he.quantisation',
        (('(uniforms < scaled - lower)', '(scaled - lower > 0.5)'),),
        test='test/unit/crypto/test_quantisation.py::test_rounding_has_no_bias',
    ),
    'values beyond the limit': Mutant(
        'quantisation',
        'values are not clipped to the limit: one hospital moves a sum without bound',
        'fdrl_ros.crypto.he.quantisation',
        (('np.clip(values, -self.limit, self.limit)', 'values'),),
        test='test/unit/crypto/test_quantisation.py'
        '::test_limits_and_what_lies_beyond_become_the_extremes',
    ),
    'personal layers that travel': Mutant(
        'layers',
        'layers that a hospital keeps to itself are in its updates',
        'fdrl_ros.policy.layout',
        (('kept = self._outside(personal)', 'kept = self._outside(())'),),
        test='test/protocol/test_home.py'
        '::test_layers_that_a_hospital_kept_come_with_the_shared_ones',
    ),
}
