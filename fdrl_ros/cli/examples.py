# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Examples at the end of each command's help: a line belongs to the command that it calls."""

from collections.abc import Sequence
import re

import click

EXAMPLES = """
fdrl run --plan quick                        # a first look: hospitals, then a robot
fdrl run --release --rounds 3                # what `make run` does, with fewer rounds
fdrl train --plan quick                      # the federation alone, without ROS
fdrl train --task cartpole --plan quick      # another world
fdrl evaluate runs/latest
fdrl evaluate runs/latest/policies/global_1.npz --episodes episodes
fdrl watch                                   # the page of the latest run
fdrl watch --foxglove                        # and all topics, for Foxglove or Lichtblick
fdrl report runs/latest
fdrl draw pictures --procedures suture
fdrl play runs/latest --policy global
fdrl policies list
fdrl policies show global
fdrl policies pin global 1                   # round 1, until `unpin`
fdrl policies unpin global
fdrl policies lock global
fdrl policies unlock
fdrl policies veto hospital_2
fdrl policies allow hospital_2
fdrl policies take-over
fdrl policies hand-back --operator operator
fdrl policies export runs/latest/policies/global_1.npz policy.onnx
fdrl privacy show runs/latest | less
fdrl privacy verify runs/latest
fdrl privacy heads runs/latest > heads.txt
fdrl privacy verify runs/latest --seen heads.txt
fdrl privacy calibrate --epsilon 4 --rounds 5
fdrl tasks                                   # what can be trained on, and by what
fdrl tasks try cartpole
fdrl tasks mark runs/latest/policies/global_1.npz --task surgery
fdrl launch federation --show-args
fdrl launch federation directory:=fed rounds:=3
fdrl prepare fed --plan quick
fdrl prepare fed --records hospital_1=records.npz
fdrl export fed hospital_1 --to for_hospital_1
fdrl join for_hospital_1
fdrl link init fed --router router.example
fdrl link router for_router --listen tls/0.0.0.0:7447
fdrl link join for_hospital_1 --router tls/router.example:7447
fdrl keys init fed/keys --hospital a=120 --hospital b=90 --hospital c=80
fdrl keys show fed
fdrl keys admit fed hospital_4=100
fdrl keys make fed hospital_4
fdrl keys revoke fed hospital_2
fdrl keys rotate fed hospital_1
fdrl keys renew fed --valid-days 365
fdrl keys passphrase fed --new-passphrase-file passphrase.txt
fdrl operator pause
fdrl operator resume
fdrl operator stop
fdrl operator roll-back 1
fdrl operator withdraw hospital_2
fdrl operator admit hospital_4
fdrl operator forgive hospital_2
fdrl journal show runs/latest --party aggregator --last 5
fdrl journal verify runs/latest --quick
fdrl security init fed --robots robot_1
fdrl security check fed
fdrl security update fed --robots robot_1,robot_2
fdrl security rotate fed hospital_1
fdrl security revoke fed hospital_2
fdrl security restore fed hospital_2
fdrl migrate runs/latest --dry-run
fdrl topic list
fdrl topic echo /robot_1/risk --once
fdrl topic hz /robot_1/measured_cp
fdrl node list
fdrl record bag --operations 1
fdrl record --play bag --foxglove            # shows a bag, publishes nothing
fdrl selector compare --seeds 2
fdrl selector coverage runs/latest
fdrl selector replay bag --policies runs/latest
fdrl shield verify
fdrl shield attack --steps 1000
fdrl shield cost
fdrl urdf > robot.urdf
fdrl experiment --plan quick --seeds 3
fdrl experiment --plan mastery --quick       # shows the form in 3 minutes
fdrl utility --plan quick
fdrl heterogeneity --plan quick
fdrl hospitals --counts 3,10                 # what more hospitals bring
fdrl measures --seeds 1
fdrl audit --plan quick
fdrl attack --quick
fdrl reproduce fdrl --quick
fdrl reproduce dp-dqn --quick
fdrl reproduce fedst --quick
fdrl sepsis --quick
fdrl dataset record episodes.h5 --count 4
fdrl dataset demonstrate demonstrations --count 4
fdrl dataset show episodes.h5
fdrl dataset replay episodes.h5 --episode 0
fdrl dataset convert episodes.h5 bag
fdrl dataset export episodes.h5 surgery-expert-v0 --to minari
fdrl dataset export episodes.h5 lerobot_episodes --to lerobot
fdrl dataset from-csv visits.csv records.npz --task cartpole
fdrl video make video --site A --clips 2 --frames 20
fdrl video show video
fdrl video check video
fdrl video prompts prompts.json
fdrl version
"""


def examples() -> list[tuple[list[str], str]]:
    """Return the words of each example, without its remark, and the line."""
    lines = EXAMPLES.strip().splitlines()
    return [(line.partition(' # ')[0].split(), line) for line in lines]


def add_examples(command: click.Command, path: Sequence[str]) -> None:
    """
    Put its examples, at most two, at the end of the help of a command and of those below it.

    :param path: words by which it is called, after `fdrl`.
    """
    whole = ['fdrl', *path]
    lines = [
        re.sub(' +# ', '  # ', line) for words, line in examples() if words[: len(whole)] == whole
    ][:2]
    if lines:
        title = 'Example:' if len(lines) == 1 else 'Examples:'
        command.epilog = '\n'.join(['\b', title, *(f'  {line}' for line in lines)])
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            add_examples(below, [*path, name])
