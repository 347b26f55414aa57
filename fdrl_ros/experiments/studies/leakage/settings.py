# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Settings of the leakage study, and its regimes, fixed before anything was measured."""

from dataclasses import asdict, dataclass, replace
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.privacy.accountant.accountant import Charge
from fdrl_ros.privacy.accountant.calibration import noise_multiplier_for
from fdrl_ros.settings import named_among, setting, Settings
from fdrl_ros.worlds.paper.law import DISCOUNT

UNCLIPPED = 1e6
"""A clipping norm that no gradient reaches."""

DELTA = 1e-3
"""Delta of every epsilon: below one over the records of a hospital."""


@dataclass(frozen=True)
class Regime:
    """
    A way to train in the paper's world, fixed beforehand.

    :param what: it is, for tables.
    :param records: expected members of a hospital, n; as many candidates do not take part.
    :param batch: expected members of a step, L; of all hospitals together when centralised.
    :param rounds: T, of ``epochs`` local epochs each; E.
    :param central_epochs: of the centralised baseline.
    :param noise: s, standard deviation on the averaged gradient; 0 for none.
    :param central_noise: that of the centralised baseline; None: the same.
    :param epsilon: that the noise is calibrated to in place of ``noise``; infinite for none.
    :param clip_norm: C.
    :param proximal: lambda of FDRL Eq. 3, for hospitals.
    :param learning_rate: of Adam.
    """

    what: str
    records: int = 100
    batch: int = 25
    rounds: int = 50
    epochs: int = 5
    central_epochs: int = 250
    noise: float = 0.0
    central_noise: float | None = None
    epsilon: float = math.inf
    clip_norm: float = 0.4
    proximal: float = 0.01
    learning_rate: float = 0.004

    @property
    def rate(self) -> float:
        """Return q = L / n, the same for hospitals and centralised."""
        return self.batch / self.records

    def steps(self, central: bool) -> int:
        """Return all steps that a record may join."""
        epochs = self.central_epochs if central else self.rounds * self.epochs
        return epochs * math.ceil(1.0 / self.rate)

    def learner(self, central: bool) -> LearnerSettings:
        """Return how a hospital learns, or the centralised baseline."""
        return LearnerSettings(
            discount=DISCOUNT,
            learning_rate=self.learning_rate,
            epochs=self.epochs,
            transitions_per_patient=1,
            proximal=0.0 if central else self.proximal,
            optimizer='adam',
            loss='squared',
        )

    def privacy(self, central: bool, hospitals: int) -> PrivacySettings:
        """Return clipping, noise and batch of a hospital, or of the centralised baseline."""
        batch = self.batch * (hospitals if central else 1)
        noise = self.noise
        if central and self.central_noise is not None:
            noise = self.central_noise
        sigma = noise * batch / self.clip_norm
        if math.isfinite(self.epsilon):
            phases = [(self.rate, self.steps(central))]
            sigma = noise_multiplier_for(epsilon=self.epsilon, delta=DELTA, phases=phases)
        return PrivacySettings(
            budget=math.inf,
            delta=DELTA,
            clip_norm=self.clip_norm,
            noise_multiplier=sigma,
            batch=batch,
        )

    def charge(self, central: bool, hospitals: int) -> Charge:
        """Return what the accountant charges a record for all of it."""
        sigma = self.privacy(central, hospitals).noise_multiplier
        return Charge(sigma, self.rate, self.steps(central))


_FEW = {'records': 10, 'batch': 10, 'epochs': 20, 'central_epochs': 1000}

PAPER = 'paper'
"""Name of the paper's own regime."""

REGIMES = {
    PAPER: Regime(
        "the paper's: 100 records a hospital, 50 rounds of 5 epochs, centralised 15 epochs",
        central_epochs=15,
        noise=0.1,
        central_noise=0.1,
    ),
    'matched': Regime('as many steps centralised as federated, clipping, no noise'),
    'memorising': Regime(
        'few records, many epochs, no clipping, no noise, proximal 0',
        clip_norm=UNCLIPPED,
        proximal=0.0,
        **_FEW,
    ),
    'private': Regime(
        'as memorising, with clipping and noise for epsilon 8',
        epsilon=8.0,
        proximal=0.0,
        **_FEW,
    ),
}
"""Fixed in code, so that no regime is chosen by what it shows."""


@dataclass(frozen=True)
class AttackSettings(Settings):
    """How often shadow models are trained, and what is changed of the regimes."""

    regimes: str = setting(
        ', '.join(REGIMES), 'which regimes, separated by commas: ' + ', '.join(REGIMES)
    )
    models: int = setting(
        129, 'models of a seed; each is attacked with all others as shadows', limits=(4, 100000)
    )
    seed: int = setting(1, 'first seed, of records, start, coins and noise', limits=(0, 10**6))
    seeds: int = setting(10, 'seeds, from the first on', limits=(1, 1000))
    hospitals: int = setting(3, 'hospitals', limits=(3, 100))
    heterogeneity: float = setting(0.5, 'H: how far the hospitals are apart', limits=(0.0, 1.0))
    noise: float = setting(
        -1.0,
        "s in place of each regime's noise, not of the paper's baseline; -1: the regime's own",
        limits=(-1.0, 100.0),
    )
    observed: int = setting(
        10, 'rounds whose aggregate and updates are attacked, evenly spaced', limits=(1, 1000)
    )
    resamples: int = setting(100, 'bootstrap resamples of models', limits=(10, 100000))
    workers: int = setting(2, 'processes that work at once', limits=(1, 64))

    def __post_init__(self) -> None:
        """Refuse regimes that there are not, and a noise between -1 and 0."""
        super().__post_init__()
        for name in self.names:
            if name not in REGIMES:
                raise SettingError('regimes', name, named_among(name, 'regimes', REGIMES))
        if not self.names:
            raise SettingError('regimes', self.regimes, 'at least one')
        if -1.0 < self.noise < 0.0:
            raise SettingError('noise', self.noise, 'at least 0, or -1')

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the regimes, each once."""
        named = (each.strip() for each in self.regimes.split(','))
        return tuple(dict.fromkeys(each for each in named if each))

    def regime(self, name: str) -> Regime:
        """Return a regime with the noise that was asked for."""
        found = REGIMES[name]
        return found if self.noise < 0.0 else replace(found, noise=self.noise, epsilon=math.inf)

    def relevant(self, name: str) -> dict[str, object]:
        """Return what the results of a regime depend on, but for the seed."""
        own = ('models', 'hospitals', 'heterogeneity', 'observed', 'resamples')
        return {'regime': asdict(self.regime(name)), **{each: getattr(self, each) for each in own}}

    def quick(self) -> 'AttackSettings':
        """Return settings for a look of a minute: few models and seeds, no claim."""
        return replace(self, models=16, seeds=2, observed=3, resamples=50)
