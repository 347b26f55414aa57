# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What of a federation's directory goes to which host, and who is on the host that has it."""

from collections.abc import Sequence
from pathlib import Path
import shutil

from fdrl_ros.crypto.keys.keystore import KEY_FILE, ROOT_FILE, ROSTER_FILE
from fdrl_ros.crypto.keys.roster import SERVERS
from fdrl_ros.crypto.keys.transaction import reading
from fdrl_ros.deployment.bringup import BringupSettings, hospital_graph, NodeSpec, server_graph
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.link.credentials import copy_links, ends_here, ROUTER
from fdrl_ros.deployment.security.enclaves import copy_enclaves, guests_of
from fdrl_ros.errors import RosterError, StoreError
from fdrl_ros.runtime.durable import make_private_directory


def export(layout: Layout, names: Sequence[str], target: Path) -> None:
    """
    Copy what the host of some parties needs, and nothing of the others.

    Plan, public starting policy, roster and the root's public key are for everybody. Of each
    party come its key, if it is here, its directory with records, ledger and state, its enclaves
    of DDS Security, and its link; of the `router` its link.

    :param target: a directory that is not there yet.
    :raises RosterError: if the root did not sign the roster, or a party is not in it.
    :raises StoreError: if something is missing, or cannot be written.
    """
    known = [*(each.name for each in layout.roster().members), *guests_of(layout.keys)]
    known += [ROUTER] if ROUTER in ends_here(layout.keys) else []
    for name in names:
        if name not in known:
            raise RosterError(f'{name} is not in the roster: expected one of {", ".join(known)}')
    if target.exists():
        raise StoreError(f'{target} is there already: take another directory')
    part = target.with_name(f'{target.name}.part')
    made = Layout(part)
    try:
        shutil.rmtree(part, ignore_errors=True)
        for directory in (part, made.keys, made.log):
            make_private_directory(directory)
        with reading(layout.keys):
            graph = (layout.graph,) if layout.graph.exists() else ()
            for file in (layout.plan, layout.pretrained, *graph):
                shutil.copy2(file, part)
            for public in (ROSTER_FILE, ROOT_FILE):
                shutil.copy2(layout.keys / public, made.keys)
            for name in names:
                for before, after in (
                    (layout.keys / name, made.keys / name),
                    (layout.party(name), made.party(name)),
                ):
                    if before.exists():
                        shutil.copytree(before, after)
            copy_enclaves(layout.keys, names, made.keys)
            copy_links(layout.keys, names, made.keys)
        part.rename(target)
    except (OSError, shutil.Error) as error:
        raise StoreError(f'cannot copy {layout.directory} to {target}: {error}') from error


def parties_here(layout: Layout) -> tuple[str, ...]:
    """
    Return the parties whose keys lie in the directory: servers, then hospitals.

    :raises RosterError: if the root did not sign the roster.
    """
    with reading(layout.keys):
        names = (*SERVERS, *(each.name for each in layout.roster().hospitals))
        return tuple(name for name in names if (layout.keys / name / KEY_FILE).exists())


def host_graph(settings: BringupSettings, names: Sequence[str]) -> tuple[NodeSpec, ...]:
    """Return the nodes of some parties."""
    servers = {spec.name: spec for spec in server_graph(settings)}
    return tuple(servers.get(name) or hospital_graph(settings, name)[0] for name in names)
