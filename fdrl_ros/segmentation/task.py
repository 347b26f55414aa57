# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Labelling the parts of instruments in video as a task: hospitals are the made-up sites A to D.

One patient is one clip, one step is one frame. An observation holds the frame, three before it and
the site's text vector; an action is the part in each pixel.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from fdrl_ros.errors import SettingError, TaskError
from fdrl_ros.resources import resource
from fdrl_ros.segmentation import scenes
from fdrl_ros.segmentation.clip import Clip, HISTORY, history
from fdrl_ros.segmentation.metrics import evaluate, PartScores
from fdrl_ros.segmentation.observation import observation_size, packed, STEP
from fdrl_ros.segmentation.scenes import site_clip
from fdrl_ros.segmentation.text import FILE, text_vectors
from fdrl_ros.segmentation.training.settings import ServerSettings
from fdrl_ros.settings import setting, Settings
from fdrl_ros.surgery.render.parts import PARTS
from fdrl_ros.tasks import Choice, Hospitals, Task, TaskSpec
from fdrl_ros.tasks import Episode as AnyEpisode
from fdrl_ros.tasks.task import SimpleEpisode, SPLITS
import gymnasium
import numpy as np
from numpy.typing import NDArray

SITES = 'ABCD'
"""Hospital i is the site of number i."""

PUBLIC = 'synthetic'
"""Site of the public patients."""

UNSEEN = 2**30
"""Number of the first clip that is tested on."""

_SERQ = ServerSettings(steps=20, frames=40)

TUNED = 'encoder.*.q', 'head'
"""Tensors that private training tunes: few, so that their noise is small."""

FROZEN = (
    'encoder.patch_embed, encoder.*.downsample, encoder.*.norm*, encoder.*.k, encoder.*.v, '
    'encoder.*.proj, encoder.*.sr, encoder.*.mlp, fusion, temporal, channels'
)
"""All others, as `learner.frozen` names them."""

Frames = NDArray[np.uint8]


@dataclass(frozen=True)
class VideoSettings(Settings):
    """What clips are, when one is labelled well, and how the key authority trains (SERQ)."""

    pixels: int = setting(64, 'sides of a frame, a multiple of 32', limits=(32, 1024))
    frames: int = setting(8, 'frames of a clip', limits=(1, 10_000))
    rate: float = setting(5.0, 'frames a second', limits=(0.1, 240.0), unit='Hz')
    success: float = setting(
        0.7, 'mean Dice from which on a clip counts as labelled well', limits=(0.0, 1.0)
    )
    serq: bool = setting(
        True, 'whether the key authority trains on synthetic frames after each sum'
    )
    serq_steps: int = setting(
        _SERQ.steps, 'of each of its two models in a round (paper: 100)', limits=(1, 100_000)
    )
    serq_rate: float = setting(_SERQ.rate, 'learning rate of its Adam', limits=(1e-7, 1.0))
    serq_frames: int = setting(_SERQ.frames, 'synthetic frames that it has', limits=(1, 100_000))

    def __post_init__(self) -> None:
        """Refuse frames that no segmenter takes."""
        super().__post_init__()
        if self.pixels % 32:
            raise SettingError('pixels', self.pixels, 'a multiple of 32')

    @property
    def server(self) -> ServerSettings:
        """The settings of SERQ."""
        return ServerSettings(steps=self.serq_steps, rate=self.serq_rate, frames=self.serq_frames)


@dataclass(frozen=True)
class Video:
    """
    One clip, before it is drawn.

    :param name: pseudonym.
    :param site: one of `fdrl_ros.segmentation.scenes.SITES` by name.
    :param seed: of all clips.
    :param number: of this one.
    """

    name: str
    site: str
    seed: int
    number: int


@dataclass(frozen=True)
class Videos:
    """Clips of one hospital, or public ones; see :class:`fdrl_ros.tasks.task.Population`."""

    hospital: int
    seed: int
    public: bool = False

    def patient(self, index: int, split: str = 'train') -> Video:
        """Return clip number `index`, always the same one."""
        site = PUBLIC if self.public else SITES[self.hospital]
        whose = 'public' if self.public else f'hospital_{self.hospital + 1}'
        number = index + UNSEEN * SPLITS.index(split)
        return Video(f'{whose}/{split}/{index}', site, self.seed, number)


@lru_cache(maxsize=4)
def clip_of(patient: Video, world: VideoSettings) -> Clip:
    """Draw the clip of a patient."""
    size = {'frames': world.frames, 'size': world.pixels}
    return site_clip(patient.site, patient.seed, patient.number, rate=world.rate, **size)


@cache
def _text(site: str) -> NDArray[np.float32]:
    return text_vectors()[site]


@dataclass(frozen=True, eq=False)
class LabelledClip(SimpleEpisode[Video]):
    """
    An episode.

    :param scores: Dice of each frame and part.
    """

    scores: PartScores


class VideoEnv(gymnasium.Env[Frames, Frames]):
    """Shows one frame after the other; the reward of a label picture is its mean Dice."""

    metadata: dict[str, Any] = {'render_modes': []}

    def __init__(self, world: VideoSettings) -> None:
        self.world = world
        size = (observation_size(world.pixels),)
        self.observation_space = gymnasium.spaces.Box(0, 255, size, np.uint8)
        self.action_space = gymnasium.spaces.MultiDiscrete(
            np.full(world.pixels**2, len(PARTS)), dtype=np.uint8
        )
        self._begin(Videos(0, 0, public=True).patient(0))

    def _begin(self, patient: Video) -> None:
        self._patient, self._frame = patient, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Frames, dict[str, Any]]:
        """
        Begin a clip.

        :param options: `patient`, a :class:`Video`; without it a public one of number `seed`.
        """
        super().reset(seed=seed)
        public = Videos(0, 0, public=True).patient(seed or 0)
        self._begin((options or {}).get('patient', public))
        return self._seen(), {}

    def step(self, action: Frames) -> tuple[Frames, float, bool, bool, dict[str, Any]]:
        """
        Take the labels of the newest frame and show the next one; after the last it stays.

        :param action: a part's number in each pixel, any shape of so many.
        :returns: among others `scores`, :class:`PartScores` of the frame.
        :raises TaskError: if there are not as many labels as pixels.
        """
        labels = clip_of(self._patient, self.world).labels[self._frame]
        found = np.asarray(action)
        if found.size != labels.size:
            raise TaskError(f'{found.size} labels: expected one for each of {labels.size} pixels')
        scores = evaluate(found.reshape(1, *labels.shape), labels[None])
        over = self._frame + 1 == self.world.frames
        self._frame += not over
        return self._seen(), _reward(scores), over, False, {'scores': scores}

    def _seen(self) -> Frames:
        frames = clip_of(self._patient, self.world).frames[history(self._frame)]
        return packed(frames, _text(self._patient.site))


def _reward(scores: PartScores) -> float:
    """Return the mean Dice of the parts in a frame; 1 if there is none and none was labelled."""
    dice = scores.overall('dice')
    return 1.0 if np.isnan(dice) else dice


class InstrumentsTask(Task[Video, VideoSettings]):
    """Label shaft, wrist and jaw of instruments in surgical video."""

    name = 'instruments'
    summary = 'parts of instruments in made-up surgical video; hospitals are its sites A to D'
    world = VideoSettings
    defaults = {
        'collection': {'patients': 24, 'exploration': 0.0, 'variation': 0.0},
        'pretraining': {'patients': 40, 'steps': 400, 'batch': 4, 'learning_rate': 0.001},
        'learner': {
            **{'kind': 'torch', 'network': 'fdrl_ros.segmentation.network.module:Tiny'},
            'algorithm': 'fdrl_ros.segmentation.network.losses:CrossEntropyAndDice',
            **{'learning_rate': 0.001, 'epochs': 4},
            **{'transitions_per_patient': 2, 'proximal': 0.0, 'frozen': FROZEN},
        },
        # The least noise, rounded up, by which all rounds keep budget 8.
        'privacy': {'batch': 8, 'delta': 1e-2, 'noise_multiplier': 1.01},
        'rounds': {'rounds': 3},
        'validation': {'patients': 8},
        'evaluation': {'patients': 24, 'round_patients': 12, 'state_patients': 4},
    }
    measures = {'dice': 'mean Dice'}

    def spec(self, world: VideoSettings) -> TaskSpec:
        """Return the bytes of an observation, and the parts at each pixel."""
        size = observation_size(world.pixels)
        return TaskSpec((size,), 'uint8', actions=PARTS, places=world.pixels**2)

    def frames(self, world: VideoSettings) -> int:
        """Return how many frames an observation holds."""
        return HISTORY

    def make_env(self, world: VideoSettings) -> VideoEnv:
        """Return a new env; :meth:`operate` names the clips."""
        return VideoEnv(world)

    def population(
        self, chosen: Hospitals, hospital: int | None, heterogeneity: float | None = None
    ) -> Videos:
        """Return the clips of a hospital, or public ones; sites differ as they do, whatever H."""
        return Videos(hospital or 0, chosen.seed, public=hospital is None)

    def operate(
        self, env: gymnasium.Env, choose: Choice, patient: Video, rng: np.random.Generator
    ) -> LabelledClip:
        """
        Let somebody label a clip.

        :raises TypeError: if the env is not of this task.
        """
        if not isinstance(env, VideoEnv):
            raise TypeError(f'{env}: expected a VideoEnv')
        seen, _ = env.reset(options={'patient': patient})
        states, actions, rewards, dice, over = [seen], [], [], [], False
        while not over:
            actions.append(np.asarray(choose(seen)).reshape(-1))
            seen, reward, over, _, info = env.step(actions[-1])
            states.append(seen)
            rewards.append(float(reward))
            dice.append(info['scores'].measures['dice'])
        scores = PartScores(PARTS[1:], {'dice': np.concatenate(dice)})
        return LabelledClip(
            patient,
            np.array(states),
            np.array(actions, np.uint8),
            np.array(rewards, np.float32),
            not scores.overall('dice') < env.world.success,  # also where no part ever was
            True,
            scores,
        )

    def guide(self, patient: Video, world: VideoSettings) -> Choice:
        """Return who knows the true labels of each frame of the clip."""
        clip, size = clip_of(patient, world), 3 * world.pixels**2
        newest = slice((HISTORY - 1) * size, HISTORY * size)
        pairs = zip(clip.frames, clip.labels, strict=True)
        known = {frame.tobytes(): labels.reshape(-1) for frame, labels in pairs}
        return lambda seen: known[seen[newest].tobytes()]

    def measure(
        self, episode: AnyEpisode[Video], world: VideoSettings
    ) -> Mapping[str, float | str]:
        """
        Return the mean Dice of the parts, and that of each; NaN where a part was in no frame.

        :raises TypeError: if the episode is not of this task.
        """
        if not isinstance(episode, LabelledClip):
            raise TypeError(f'{episode}: expected a labelled clip')
        scores = episode.scores
        each = zip(scores.parts, scores.mean('dice').tolist(), strict=True)
        return {'dice': scores.overall('dice')} | {f'dice_{part}': dice for part, dice in each}

    def server_step(self, world: VideoSettings) -> str:
        """Return SERQ, unless the world does without."""
        return 'fdrl_ros.segmentation.training.plan_serq:PlanSerq' if world.serq else ''

    def check(self, chosen: Hospitals) -> None:
        """Refuse more hospitals than there are sites, and procedures."""
        if chosen.hospitals > len(SITES):
            expected = f'at most {len(SITES)}: task instruments has the sites {", ".join(SITES)}'
            raise SettingError('hospitals', chosen.hospitals, expected)
        if chosen.procedures:
            raise SettingError('procedures', chosen.procedures, 'none: task instruments has none')

    def constants(self) -> bytes:
        """Return the styles of the sites, and what texts are as bytes."""
        return repr((dict(scenes.SITES), STEP)).encode() + resource(FILE).read_bytes()
