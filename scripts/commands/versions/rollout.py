"""Switches from the live version to the last published one with no downtime.

    make rollout              check it on a separate server, try it beside the live one, switch
    make rollout VERSION=3    switch to version 3
    make rollout CANARY=10    first send it 10% of the requests for a while
    make rollout SHADOW=10m   first ask it copies of all requests for ten minutes, unseen; SHARE=10:
                              of 10% of them
    make rollout MODEL=birds  for another pipeline

    make rollout EVAL=val     judge it by labelled data; later ones are judged by it too

    make rollout ANYWAY=1     even if it is untrained, or hardly agrees with the live version

Errors, wrong answers, a p99 above MAX_P99_RATIO times the live version's, or labels that agree with
the live version's on fewer than MIN_AGREEMENT percent of the pictures roll it back automatically;
so do answers that are right less often than the live version's by more than MAX_DROP points.
"""

from scripts.base import console, lock
from scripts.recipes import pipelines
from scripts.rollout import rollout, shadow
from scripts.settings import arguments


def main() -> None:
    asked = arguments.load()
    with lock.one_at_a_time():
        running = rollout.find_running_server(pipelines.find_asked_pipeline())
        target = rollout.choose_version(running, asked.version)
        if target == running.version.number:
            console.note(
                f"{running.version.describe()} is already live; make a new one with make publish"
                f"{running.version.pipeline.option}"
            )
            return
        if asked.shadow:
            seen = shadow.try_unseen(
                target, running, asked.share or 100, asked.shadow, may_end_early=False
            )
            least = 0 if asked.anyway else running.settings.min_agreement
            if reason := seen.find_objection(least):
                raise rollout.Refused(target, reason)
        rollout.switch_to(target, "rollout", running, asked.canary, judge_labels=not asked.anyway)
