"""A network of the user's own on a swarm of one engine, whose servers read a folder."""

import os

import pytest

from extensions.swarm.tests import swarm_nodes
from extensions.swarm.tests.end_to_end.test_swarm import PHOTO, Swarm, load_image
from tests.networks import draw_network
from tests.plugin import require_docker
from tests.project import Project, free_ports

pytestmark = pytest.mark.rare


def test_a_network_of_ones_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    require_docker()
    if os.geteuid():
        pytest.skip("network namespaces need root")
    tmp_path = tmp_path_factory.mktemp("own")  # a socket's path has at most 107 bytes
    names = ("HTTP_PORT", "GRPC_PORT", "METRICS_PORT")
    ports = dict(zip(names, map(str, free_ports(3)), strict=True))
    nothing = {"SAMPLES": "", "ARCH": "", "WEIGHTS": "", "START_TIMEOUT": "900"}
    project = Project.copy(tmp_path / "bundle", **nothing, **ports)
    project.settings["COMPOSE_PROJECT_NAME"] = f"own-{project.path.name}"
    (tmp_path / "photo.jpg").write_bytes(PHOTO)
    photo = f"IMG={tmp_path}/photo.jpg"
    try:
        with swarm_nodes.of(1, tmp_path / "nodes") as nodes:
            load_image(project, nodes[0])
            swarm_nodes.join(nodes)
            swarm = Swarm(project, nodes)
            swarm.made("keys", "ADD=ann")
            swarm.made("swarm-up", f"FROM={draw_network(tmp_path / 'birds.onnx')}", "REPLICAS=1")
            said = [swarm.made("classify", photo), swarm.made("status"), swarm.made("models")]
            assert "class" in said[0] and "birds" in said[1] and "birds" in said[2]
            second = draw_network(tmp_path / "second.onnx", seed=1)
            said.append(swarm.made("publish", f"WEIGHTS={second}"))
            rolled = {"ANYWAY": "1", "WATCH_SECONDS": "1", "MAX_P99_RATIO": "1000"}
            with swarm.asked():
                said.append(swarm.made("rollout", **rolled))
                said.append(swarm.made("rollback", **rolled))
            assert "version 2 is live; 0 of" in said[-2] and "version 1 is live" in said[-1]
            said.append(swarm.made("swarm-up", "REPLICAS=2"))  # it is the main one without FROM
            assert swarm.made("status").count("server.") == 2
            assert "resnet50" not in "".join(said)
            swarm.made("swarm-down")
    finally:
        project.make("clean", FLAVOUR="cpu")
