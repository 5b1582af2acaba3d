"""Stops the server and removes everything that was built: versions, images, the environment.

make clean
"""

from scripts.base import console, files, lock
from scripts.base.paths import DOTENV, ROOT, VENV
from scripts.recipes import folders
from scripts.settings import dotenv_file
from scripts.settings.settings import Settings
from scripts.stacks import containers, flavour, images


def main() -> None:
    with lock.one_at_a_time():
        flavour.stop_server()
        older: list[str] = []
        for name in flavour.possible():
            stack = flavour.stack(name, Settings.load())
            if isinstance(stack, containers.DockerStack):
                stack.remove_all()
                older += stack.images.find_of_folder_name()
        for wheel in images.WHEELS.glob("*.whl"):
            wheel.unlink()
        files.empty(ROOT / "build")
        dotenv_file.write_for_compose()
    if older:
        console.note(
            "kept, as another folder of this name may use them: images of the older project name "
            f"{dotenv_file.folder_name()}; docker image rm {' '.join(older)}"
        )
    own = folders.own().folder
    stay = [f"your own pipelines in {own}"] if own.is_dir() else []
    stay += ["your settings in .env"] if DOTENV.exists() else []
    stay += ["the download caches of pip, uv and Docker"]
    console.note(f"kept: {', '.join(stay)}")
    files.remove_own(VENV)
    console.note("clean: removed images, versions, keys and the environment")
