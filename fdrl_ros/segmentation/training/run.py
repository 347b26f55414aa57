# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Train segmenters by one of the compared methods; federated ones over the real protocol."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
import time

from fdrl_ros.crypto.he.schemes import EncryptionSettings
from fdrl_ros.errors import SettingError, TrainingStopped
from fdrl_ros.federation.hospital.hospital import Hospital
from fdrl_ros.federation.key_authority.server_step import (
    fed_avg,
    RoundSum,
    ServerStep,
    Stepped,
)
from fdrl_ros.federation.local_driver import LocalFederation
from fdrl_ros.federation.protocol.message import MaskedUpdate, Message
from fdrl_ros.federation.virtual import PlainLearner, VirtualFederation
from fdrl_ros.learner.torch.flat_weights import flat, layout_of, load
from fdrl_ros.segmentation.clip import Clip
from fdrl_ros.segmentation.network.losses import segmentation_loss
from fdrl_ros.segmentation.network.personal import personal_tensors
from fdrl_ros.segmentation.network.segmenter import Segmenter
from fdrl_ros.segmentation.network.sizes import SegmenterSettings
from fdrl_ros.segmentation.training.batches import Sampler
from fdrl_ros.segmentation.training.checkpoint import Checkpoint
from fdrl_ros.segmentation.training.methods import Method
from fdrl_ros.segmentation.training.serq import Serq
from fdrl_ros.segmentation.training.settings import Schedule
from fdrl_ros.segmentation.training.site_training import SiteTraining, update_limit
import numpy as np
from numpy.typing import NDArray
import torch

Weights = NDArray[np.float32]
Step = Callable[[Weights, int], Weights]
"""From weights and the number of the round to the weights after it."""

Told = Callable[[int, str], None]
"""Told how many training steps are done, and where."""


START = 'start'
GLOBAL = 'global'
"""Names of models in a checkpoint beside those of the sites."""


@dataclass(frozen=True, eq=False)
class VideoSites:
    """
    Who has which clips.

    :param training: of each site of the federation.
    :param synthetic: of the key authority.
    :param vectors: of each prompt, by the kind of prompt and the site.
    """

    training: Mapping[str, Sequence[Clip]]
    synthetic: Sequence[Clip]
    vectors: Mapping[str, Mapping[str, Weights]]


@dataclass(frozen=True, eq=False)
class Trained:
    """
    What a method made.

    :param settings: of the segmenter.
    :param weights: of each site's model, shape (n_parameters,).
    :param unseen: models for a site outside, by the name of the way they are made.
    :param upload: bytes that a site encrypted and sent in a round, and what FedST's Table IX
        counts: four for each shared weight. Both 0 where nothing is sent.
    :param seconds: of training, in sites and at the server.
    """

    settings: SegmenterSettings
    weights: Mapping[str, Weights]
    unseen: Mapping[str, Weights]
    upload: tuple[float, int]
    seconds: tuple[float, float]

    def segmenter(self, name: str) -> Segmenter:
        """Return the model of a site, or one for a site outside, ready to be used."""
        segmenter = Segmenter(self.settings)
        load(segmenter, layout_of(segmenter), {**self.unseen, **self.weights}[name])
        return segmenter.eval()


class MeasuredDriver(LocalFederation):
    """An in-process driver that counts the bytes of encrypted updates."""

    def __init__(self) -> None:
        super().__init__({})
        self._sent: Counter[int] = Counter()

    def post(self, message: Message) -> None:
        """Count and deliver a message."""
        if isinstance(message, MaskedUpdate):
            self._sent[message.envelope.round] += len(message.ciphertext)
        super().post(message)

    def sent(self, rounds: int | None = None) -> int:
        """Return how many bytes were sent, in all or in the first rounds."""
        return sum(each for round, each in self._sent.items() if rounds is None or round <= rounds)


class _Site(PlainLearner):
    """
    A hospital of a federation that goes on after rounds that another one played.

    :param played: how many those were: later rounds draw as if this one had played them too.
    """

    def __init__(self, step: Step, played: int, seed: int) -> None:
        super().__init__(step, n_units=1, seed=seed)
        self._played = played

    def rounding(self, round: int, size: int) -> np.ndarray:
        """Return uniforms in (0, 1)."""
        return super().rounding(self._played + round, size)


def architecture(method: Method, size: str, text: int) -> SegmenterSettings:
    """Return what a method's segmenter is made of."""
    return SegmenterSettings(size, method.temporal, method.channels, text)


def pretrained(
    settings: SegmenterSettings,
    sites: VideoSites,
    schedule: Schedule,
    seed: int,
    told: Told,
    device: str = 'cpu',
) -> Weights:
    """
    Train a segmenter on single synthetic frames, as everybody's start.

    :returns: shape (n_parameters,); encoder, fusion and head are the same for all settings of a
        size, temporal module and channel selection as they were drawn.
    """
    plain = replace(settings, temporal=False, channels=False)
    segmenter = Segmenter(plain, np.random.default_rng([seed, 10])).to(device)
    rng = np.random.default_rng([seed, 11])
    sampler = Sampler(sites.synthetic, schedule.site, 1)
    optimiser = torch.optim.AdamW(segmenter.parameters(), lr=schedule.site.rate)
    segmenter.train()
    for step in range(schedule.pretraining):
        batch = sampler.draw(rng).to(torch.device(device))
        logits = segmenter.plain(segmenter.features(batch.frames[:, -1]))
        loss = segmentation_loss(logits, batch.labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        told(step + 1, 'synthetic')
    whole = Segmenter(settings, np.random.default_rng([seed, 13]))
    whole.load_state_dict(segmenter.state_dict(), strict=False)
    return flat(whole, layout_of(whole))


def steps_of(method: Method, sites: int, schedule: Schedule) -> int:
    """Return how many steps :func:`train` takes, for progress."""
    server = schedule.rounds * 2 * schedule.server.steps if method.serq else 0
    return schedule.pretraining + schedule.rounds * schedule.site.steps * sites + server


def train(
    method: Method,
    size: str,
    sites: VideoSites,
    schedule: Schedule,
    seed: int,
    told: Told,
    checkpoint: Path | None = None,
    device: str = 'cpu',
) -> Trained:
    """
    Train by a method.

    All methods begin with the same pre-trained encoder, fusion and head, and all sites together
    take the same number of steps in each.

    :param told: may raise to stop.
    :param checkpoint: file that keeps how far it came, written after each round. A call with the
        same arguments goes on from there, and returns what one call without a break would.
    :param device: of PyTorch, which trains. On a GPU the same arguments give the same result but
        for rounding.
    :raises SettingError: if a prompt is to tell sites apart where all clips are one site.
    :raises StoreError: if the checkpoint is damaged, or cannot be written.
    """
    if method.where == 'pooled' and method.channels:
        raise SettingError('prompt', method.prompt, 'none where all clips are one site')
    length = len(next(iter(sites.vectors['text'].values())))
    settings = architecture(method, size, length)
    kept = None if checkpoint is None else Checkpoint.read(checkpoint)
    if kept is None:
        start = pretrained(settings, sites, schedule, seed, told, device)
        kept = Checkpoint(0, {START: start})
        if checkpoint is not None:
            kept.write(checkpoint)
    run = _Run(method, settings, sites, schedule, seed, told, kept, checkpoint, device)
    match method.where:
        case 'alone':
            return run.alone()
        case 'pooled':
            return run.pooled()
        case _:
            return run.federated()


class _Run:
    """
    One training by a method.

    :param kept: where it begins.
    :param checkpoint: file that gets how far it came after each round; None keeps nothing.
    """

    def __init__(
        self,
        method: Method,
        settings: SegmenterSettings,
        sites: VideoSites,
        schedule: Schedule,
        seed: int,
        told: Told,
        kept: Checkpoint,
        checkpoint: Path | None,
        device: str,
    ) -> None:
        self._method, self._settings, self._sites = method, settings, sites
        self._schedule, self._seed, self._told = schedule, seed, told
        self._kept, self._checkpoint, self._device = kept, checkpoint, device
        self._start = kept.weights[START]
        self._done = schedule.pretraining + kept.rounds * self._steps_of_a_round
        self._driver: MeasuredDriver | None = None
        self._stopped: TrainingStopped | None = None
        self._begun, self._at_server = time.perf_counter(), 0.0
        self._state = kept.state
        self._results: dict[int, dict[str, Weights]] = {}

    @property
    def _steps_of_a_round(self) -> int:
        """Training steps of a round as a checkpoint counts rounds."""
        if self._method.where in ('alone', 'pooled'):
            return self._schedule.site.steps
        server = 2 * self._schedule.server.steps if self._method.serq else 0
        return self._schedule.site.steps * len(self._sites.training) + server

    def alone(self) -> Trained:
        """Let each site train for itself."""
        models, rounds = {}, self._schedule.rounds
        for before, name in enumerate(self._sites.training):
            models[name] = self._kept.weights.get(name, self._start)
            step = self._step(name)
            for round in range(1, rounds + 1):
                if before * rounds + round > self._kept.rounds:
                    models[name] = step(models[name], round)
                    self._keep(before * rounds + round, models)
        return self._trained(models, dict(models))

    def pooled(self) -> Trained:
        """Train one model on the clips of all sites, with as many steps as they take together."""
        names, step = list(self._sites.training), self._step('')
        weights = self._kept.weights.get(GLOBAL, self._start)
        for round in range(self._kept.rounds + 1, self._schedule.rounds * len(names) + 1):
            weights = step(weights, round)
            self._keep(round, {GLOBAL: weights})
        return self._trained(dict.fromkeys(names, weights), {'own': weights})

    def federated(self) -> Trained:
        """Train over the protocol, with masks and encryption."""
        method, names, played = self._method, list(self._sites.training), self._kept.rounds
        model = Segmenter(self._settings)
        personal, layout = tuple(personal_tensors(model, method.personal)), layout_of(model)
        hospitals = {f'site_{name.lower()}': name for name in names}
        kept_here = np.ones(layout.n_parameters, dtype=bool)
        kept_here[layout.shared(personal)] = False
        driver = MeasuredDriver()
        federation = VirtualFederation(
            {
                hospital: _Site(self._later(name, kept_here), played, self._seed + number)
                for number, (hospital, name) in enumerate(hospitals.items())
            },
            self._kept.weights.get(GLOBAL, self._start),
            layout,
            personal=personal,
            step=self._serq() if method.serq else fed_avg,
            driver=driver,
            encryption=replace(EncryptionSettings(), limit=update_limit(self._schedule.site)),
        )
        self._driver = driver
        try:
            for round in range(1, self._schedule.rounds - played + 1):
                weights = federation.play()
                if played + round < self._schedule.rounds:
                    sent = self._kept.sent + driver.sent(round)
                    models = {**self._results[round], GLOBAL: weights}
                    self._keep(played + round, models, sent)
        finally:
            if self._stopped is not None:  # to the federation it is one hospital's business
                raise self._stopped
        models = {}
        for hospital, name in hospitals.items():
            party = federation.parties[hospital]
            assert isinstance(party, Hospital)
            own = party.with_own_layers()
            models[name] = weights if own is None else own
        unseen = {'server': weights}
        if personal:
            # The paper averages what is personal for a site outside: the server would see it.
            together = np.stack([models[name] for name in names]).astype(np.float64)
            unseen['average'] = together.mean(axis=0).astype(np.float32)
        upload = (self._kept.sent + driver.sent()) / (self._schedule.rounds * len(names))
        return self._trained(models, unseen, (upload, 4 * int(layout.shared(personal).size)))

    def _later(self, name: str, kept_here: NDArray[np.bool_]) -> Step:
        """
        Return the step of a site that goes on after the rounds of the checkpoint.

        :param kept_here: which weights are personal, shape (n_parameters,).
        """
        step, played, kept = self._step(name), self._kept.rounds, self._kept.weights.get(name)

        def trained(weights: Weights, round: int) -> Weights:
            if round == 1 and kept is not None:  # a new federation has the server's there
                weights = np.where(kept_here, kept, weights)
            after = step(weights, played + round)
            self._results.setdefault(round, {})[name] = after
            self._results.pop(round - 2, None)
            return after

        return trained

    def _step(self, name: str) -> Step:
        """Return the step of a site, or of all clips together without a name."""
        sites, prompt = self._sites, self._method.prompt or 'text'
        number = [*sites.training, ''].index(name)
        clips = sites.training[name] if name else [c for e in sites.training.values() for c in e]
        vectors = sites.vectors[prompt]
        step = SiteTraining(
            clips,
            Segmenter(self._settings).to(self._device),
            vectors[name] if name else next(iter(vectors.values())),
            self._schedule.site,
            (self._seed, 12, number),
        )

        def trained(weights: Weights, round: int) -> Weights:
            after = step(weights, round)
            self._advance(self._schedule.site.steps, name or 'all sites')
            return after

        return trained

    def _serq(self) -> ServerStep:
        """Return the step of the server."""
        server, played = self._schedule.server, self._kept.rounds
        model, pretrained = (Segmenter(self._settings).to(self._device) for _ in range(2))
        serq = Serq((model, pretrained), self._start, self._sites.synthetic, server, self._seed)

        def stepped(given: RoundSum) -> Stepped:
            before = time.perf_counter()
            state = self._kept.state if given.round == 1 else given.state
            found = serq(replace(given, round=played + given.round, state=state))
            self._state = found.state
            self._at_server += time.perf_counter() - before
            self._advance(2 * server.steps, 'server')
            return found

        return stepped

    def _advance(self, steps: int, who: str) -> None:
        self._done += steps
        try:
            self._told(self._done, who)
        except TrainingStopped as stopped:
            self._stopped = stopped
            if self._driver is not None:
                self._driver.stop()
            raise

    def _keep(self, rounds: int, models: Mapping[str, Weights], sent: int = 0) -> None:
        """Write how far it came, if somebody wants to go on from there."""
        if self._checkpoint is not None:
            weights = {**models, START: self._start}
            kept = Checkpoint(rounds, weights, self._state, sent, self._seconds)
            kept.write(self._checkpoint)

    @property
    def _seconds(self) -> tuple[float, float]:
        """Time of training until now, in sites and at the server, s."""
        sites, server = self._kept.seconds
        here = time.perf_counter() - self._begun - self._at_server
        return sites + here, server + self._at_server

    def _trained(
        self,
        models: Mapping[str, Weights],
        unseen: Mapping[str, Weights],
        upload: tuple[float, int] = (0.0, 0),
    ) -> Trained:
        return Trained(self._settings, models, unseen, upload, self._seconds)
