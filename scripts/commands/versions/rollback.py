"""Returns to the previous version, with the same checks as a rollout.

make rollback [MODEL=birds]
"""

from scripts.base import lock
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.repository import history
from scripts.rollout import rollout


def main() -> None:
    with lock.one_at_a_time():
        pipeline = pipelines.find_asked_pipeline()
        running = rollout.find_running_server(pipeline)
        previous = history.find_previous(history.read(pipeline))
        if previous is None:
            raise UserError(
                f"no version was live before {running.version.title}",
                f"choose one: make rollout{pipeline.option} VERSION=…",
            )
        rollout.switch_to(previous, "rollback", running, judge_labels=False)
