"""Asks a pipeline; starts the server if none is running.

    make classify IMG=photo.jpg              one picture, or several in quotes, a folder, a URL
    make classify IMG=photos JSON=1          one line of JSON per picture
    make classify MODEL=places IMG=…         another pipeline: places, cascade, your own
    make classify MODEL=sounds SOUND=bell.wav    one sound, or several in quotes, a folder, a URL
    make sentiment TEXT="What a day!"        the main one if it takes texts, or MODEL=sentiment
    make watch VIDEO=clip.mp4                frames of a video, likewise; and detect, segment
    make ask MODEL=mine INPUTS='{"text": "What a day!"}'    a function; without INPUTS, its example
    make ask MODEL=flowers IN=rows.csv       a model of tables; without IN, a row of zeros

TOP=3 shows fewer labels, boxes or classes, OUT= writes what was found to a file, and LIVE=1 watches
a file at its own speed.

A running server is asked as it runs, whatever settings are given here: make up changes them.
"""

import os
import sys

from scripts.recipes import pipelines
from scripts.recipes.asking import about_pictures, find_asked
from scripts.recipes.pipelines import Pipeline
from scripts.server import ask
from scripts.server.running import ensure_served
from scripts.settings import arguments


def main() -> int:
    pipeline = find_pipeline(*sys.argv[1:])
    if pipeline.name == pipelines.DEFAULT:  # known without its recipe, whose kind is slow to import
        named = find_asked("IMG", f"classify{pipeline.option}", os.environ)
        return about_pictures(
            ask.server_of(ensure_served(pipeline)), pipeline.ensemble, named, os.environ
        )
    asked = find_asked(pipeline.recipe.asked_about, f"classify{pipeline.option}", os.environ)
    pipeline.recipe.require_asked(asked, os.environ)
    return pipeline.recipe.ask(ask.server_of(ensure_served(pipeline)), asked, os.environ)


def find_pipeline(usual: str = "") -> Pipeline:
    """The one that MODEL= names; else of a command for one kind, the main one or the usual one."""
    asked = pipelines.find_asked_pipeline()
    if not usual or arguments.load().model:
        return asked
    named = pipelines.find_pipeline(usual)
    return asked if type(asked.recipe) is type(named.recipe) else named
