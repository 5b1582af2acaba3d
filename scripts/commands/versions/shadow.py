"""Tries a version on copies of real requests, without anyone noticing.

    make shadow VERSION=3              copies of one request in ten, for five minutes
    make shadow VERSION=3 SHARE=100 MINUTES=60
    make shadow MODEL=birds            another pipeline

The live version answers, and once its answer has gone out, the candidate is asked the same: one
copy at a time, and never while requests wait for a processor. Nothing else changes.
"""

from scripts.base import lock
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.rollout import rollout, shadow
from scripts.settings import arguments


def main() -> None:
    asked = arguments.load()
    with lock.one_at_a_time():
        running = rollout.find_running_server(pipelines.find_asked_pipeline())
        target = rollout.choose_version(running, asked.version)
        if target == running.version.number:
            raise UserError(
                f"{running.version.describe()} is the live one",
                f"make another with make publish{running.version.pipeline.option}",
            )
        shadow.try_unseen(
            target, running, asked.share or 10, 60 * asked.minutes, may_end_early=True
        )
