"""Checks of a version before anything is started with it."""

import errno
import os
import shlex

from scripts.base.errors import UserError
from scripts.recipes import configs
from scripts.recipes.layout import Engine
from scripts.repository import archive, live, model_folders
from scripts.repository.archive import Version
from scripts.stacks import state

STAYS = "the live version keeps serving"
# Of flavours that limit it.
MORE_ROOM = {
    "cpu": "give the server more memory (make up MEMORY=…)",
    "gpu": "give the server more memory (make up GPU_MEMORY=…)",
}


def describe_anyway(version: Version) -> str:
    which = f"{version.pipeline.option} VERSION={version.number}"
    return f"to roll it out anyway: make rollout{which} ANYWAY=1"


def require_sound(old: Version, new: Version, engine: Engine) -> None:
    """Its files are intact, and it fits the running pipeline."""
    if new.pipeline.recipe.is_decoupled:
        raise UserError(
            f"{new.title} is decoupled, and a rollout compares single answers",
            f"{STAYS}; to replace it without a comparison: {_describe_start(new)}",
        )
    if new.models.keys() != old.models.keys():
        raise UserError(
            f"{new.title} consists of other models ({', '.join(new.models)}) than the live "
            f"version ({', '.join(old.models)})",
            f"{STAYS}; start it with that version's settings: {_describe_start(new)}",
        )
    if new.one_step != old.one_step:
        raise UserError(
            f"{new.title} has STEPS={1 if new.one_step else 3}, and the live version has not",
            f"{STAYS}; another number of steps needs a restart: {_describe_start(new)}",
        )
    found = archive.hashes_of(new.folder / "models")
    for model, wanted in new.hashes.items():
        for name, digest in wanted.items():
            has = found.get(model, {}).get(name)
            if has != digest:
                what = "is not the file that was published" if has else "is missing"
                raise UserError(
                    f"{name} of {model} in {new.title} {what}",
                    f"{STAYS}; publish it again: make publish{new.pipeline.option}",
                )
    for model in (*new.models, new.pipeline.ensemble):
        model_folders.config_in_use(live.REPOSITORY, model, engine)
        configs.read_model(model)  # what make up would use
    require_same_shapes(old, new)


def require_writable(old: Version) -> None:
    """What is removed or noted at the end: an earlier command may have run as root."""
    models = (live.REPOSITORY / model for model in old.models)
    folders = (path for model in models for path in model.glob("**/"))
    for folder in (state.RUN, archive.home(old.pipeline), live.REPOSITORY, *folders):
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def require_same_shapes(old: Version, new: Version) -> None:
    """Both are loaded at once, with the same configs."""
    takes, serves = (_onnx(version, "input") for version in (new, old))
    if takes != serves:
        raise UserError(
            f"{new.title} takes pictures of {takes}, but the pipeline serves {serves}",
            f"{STAYS}; another size needs a restart: {_describe_start(new)}",
        )
    gives, served = (_onnx(version, "classes") for version in (new, old))
    if gives != served:
        raise UserError(
            f"{new.title} has {gives} classes, but the pipeline serves {served}",
            f"{STAYS}; another number takes its place without a comparison: {_describe_start(new)}",
        )


def _onnx(version: Version, name: str) -> object:
    """What is known of its network."""
    made = version.workspace
    return made.manifest.onnx.get(name) if made.onnx.is_dir() else None


def require_trained(old: Version, new: Version) -> None:
    if is_untrained(new) and not is_untrained(old):
        raise UserError(
            f"{new.title} has untrained weights, but the live version has trained ones",
            f"{STAYS}; {describe_anyway(new)}",
        )


def is_untrained(version: Version) -> bool:
    made = version.workspace
    return made.onnx.is_dir() and made.manifest.untrained


def _describe_start(version: Version) -> str:
    own = version.pipeline.recipe.settings
    words = {"MODEL": version.pipeline.mark}
    words |= {name: word for name, word in version.own_settings.items() if name in own}
    given = (f"{name}={shlex.quote(word)}" for name, word in words.items() if word)
    return " ".join([state.name_start() if version.pipeline.is_main else "make up", *given])


def require_room(needed: int, room: int | None, new: Version, flavour: str) -> None:
    """Enough memory for both versions during the switch."""
    if room is not None and needed > room:
        raise UserError(
            f"{new.title} needs {needed / 2**20:.0f} MiB beside the live version, but only "
            f"{room / 2**20:.0f} MiB are free",
            f"{STAYS}; {MORE_ROOM.get(flavour, 'end other programs')}, or use fewer processes",
        )
