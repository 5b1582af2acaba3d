"""What `make prove` runs, and what each claim in docs/gpu.md is confirmed by."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from scripts.base.paths import ROOT

PICTURE = "build/mug.jpg"
OURS = "proved_network"  # which no user's pipeline is called
LABELLED = "build/labelled"  # the same, in the folder of its label
# What a pipeline of sounds is warmed up with.
SOUND = "".join(
    str(path.relative_to(ROOT)) for path in ROOT.glob("kinds/*/model_repository/*/warmup/bell.wav")
)


@dataclass(frozen=True)
class Step:
    name: str
    does: str  # the make target, or a program for sh, in which `bundle up` is make up
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """Confirmed if the step succeeded and printed a line like this; a line like the other says that
    it does not apply."""

    claim: str  # as in docs/gpu.md
    step: str
    sign: str
    not_here: str = ""


# Whether a rollout loses requests is asked, and not how fast a machine is that others may use too.
UNHURRIED = {"MAX_P99_RATIO": "20"}
ASKED = {"IMG": PICTURE, "JSON": "1"}

# Of the server's container, as it is for the processes in it.
AS_WHOM = """\
curl --silent "http://localhost:$HTTP_PORT/v2" |
    sed -E 's/.*"version": ?"([^"]*)".*/Triton \\1/'
echo
docker exec "$SERVER" sh -c 'echo "user $(id -u), / is mounted \
$(grep " / " /proc/mounts | cut -d " " -f 4 | cut -c 1-2)"'"""

TREES = """\
python -m scripts.bootstrap tables
python -c 'import xgboost, numpy as np; rows = np.random.default_rng(0).normal(size=(300, 3))
data = xgboost.DMatrix(rows, rows.argmax(1))
trees = xgboost.train({"objective": "multi:softprob", "num_class": 3}, data, 5)
trees.save_model("build/trees.json")'
NAME=proved_trees FROM=build/trees.json ARCH= WEIGHTS= SAMPLES= bundle add-model"""

FUNCTION = """\
NEW=build/proved_function.py bundle add-callable
FILE=build/proved_function.py bundle add-callable"""

# What a GPU holds grows while its kernels are first used.
LOAD = """\
used() {
    docker exec "$SERVER" nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits |
        sort -n | tail -n 1
}
python -m benchmark.soak --minutes 1
before="$(used)"
python -m benchmark.soak --minutes "${MINUTES:-5}"
after="$(used)"
echo "GPU memory: $before, then $after MiB"
[ "$after" -le "$((before + before / 20))" ]
echo "GPU memory is held" """

SHARED = 'python -m benchmark.several_gpus --minutes "${MINUTES:-5}"'

# With a kill each half minute, of one kind after the other.
HARM = 'python -m benchmark.soak --harm --every 30 --minutes "${MINUTES:-5}"'

# What make up says then has the machine's address in it.
DOOR = """\
key="$(ADD=prover bundle keys | awk 'END { print $NF }')"
BIND=0.0.0.0 bundle up > build/door.log 2>&1 || { tail -n 1 build/door.log; exit 1; }
ask() {
    printf 'header = "Authorization: Bearer %s"' "$2" |
        curl --config - --silent --http1.1 --output /dev/null --write-out '%{http_code}' \
            --cacert build/tls/cert.pem --data-binary "@$1" "https://localhost:$HTTP_PORT/classify"
}
refused="$(ask build/mug.jpg none)"
echo "without a key $refused, with one $(ask build/mug.jpg "$key")"
echo "no picture: $(ask Makefile "$key")"
bundle up"""

# Without cupy the scores are copied to the host, and the log says so.
SCORES = """\
POSTPROCESS=gpu bundle up
bundle logs | grep -o "scores on .*" | tee build/scores
grep -q "^scores on GPU" build/scores"""

COMPOSE = """\
[ "$MAIN" = resnet50 ] || { echo "Compose alone would want FROM="; exit 1; }
bundle down
compose() {
    docker compose -f compose.yaml -f compose.gpu.yaml \
        ${COMPOSE_OVERRIDE:+-f "$COMPOSE_OVERRIDE"} "$@"
}
compose up --wait --quiet-pull
curl --silent --data-binary @build/mug.jpg "http://localhost:$HTTP_PORT/classify"
echo
compose down --volumes"""

RESTORED = """\
bundle up
TO=build/saved.tar bundle backup
bundle down
rm -r build/versions build/live
FROM=build/saved.tar YES=1 bundle restore
unset ARCH WEIGHTS  # of the main pipeline, which keeps what it has
bundle upgrade
bundle up
IMG=build/mug.jpg JSON=1 bundle classify"""

# What lies in the repository is a link to what is kept.
CORRUPTED = """\
plan="$(ls -d "build/live/$NETWORK"/*/model.plan)"
head -c "$(($(wc -c < "$plan") / 2))" "$plan" > build/cut.plan
mv build/cut.plan "$plan"
if TRITON_MODEL="$NETWORK" bundle load; then exit 1; fi
IMG=build/mug.jpg JSON=1 bundle classify"""

STEPS = (
    Step("up", "up"),
    Step("status", "status"),
    Step("user", AS_WHOM),
    Step("classify", "classify", ASKED),
    Step("bench", "bench", {"QUICK": "1"}),
    Step("texts", "sentiment", {"TEXT": "What a day!", "SENTIMENT": "minilm"}),
    Step("places", "classify", ASKED | {"MODEL": "places"}),
    Step("cascade", "classify", ASKED | {"MODEL": "cascade"}),
    Step("detection", "detect", ASKED),
    Step("segmentation", "segment", ASKED),
    Step("sounds", "classify", {"MODEL": "sounds", "SOUND": SOUND, "JSON": "1"}),
    Step("video", "watch", {"VIDEO": PICTURE, "JSON": "1"}),
    Step("trees", TREES),
    Step("function", FUNCTION),
    Step("network", "add-model", {"NAME": OURS, "ARCH": "squeezenet1_1", "WEIGHTS": "random"}),
    Step("eval", "eval", {"MODEL": OURS, "EVAL": LABELLED}),
    Step("publish", "publish", {"OPT_BATCH": "16"}),  # a plan of its own, with the same answers
    Step("rollout", "rollout", UNHURRIED),
    Step("rollback", "rollback", UNHURRIED),
    Step("load", LOAD),
    Step("shared load", SHARED),
    Step("harm", HARM),
    Step("corrupted", CORRUPTED),
    Step("door", DOOR),
    Step("scores on the GPU", SCORES),
    Step("dali", "up", {"PREPROCESS": "dali"}),
    Step("compose", COMPOSE),
    Step("restore", RESTORED),
    Step("tune", "tune", {"MINUTES": "1", "STOP": "1"}),  # the last, for it may change .env
    Step("down", "down"),
)

# A network of the user's own is taken as it is, and that may be float32.
FLOAT32 = r"built in .* 0 of 0 layers in half"
LENT = "which is not served here"  # by the main pipeline of the project
UNSEEN = "cannot be seen from here"  # of processes in a container, but by root
AGREES = r"\bnetwork: .*equal on"
LABELS = r'^\{.*"labels"'
ROWS = (
    Row("NVIDIA's images hold the programs that the flow calls", "up", r"&&&& PASSED .*\[TensorRT"),
    Row(
        "TensorRT builds the network of pictures from fp16",
        "up",
        r"built in .* [1-9]\d* layers in half",
        FLOAT32,
    ),
    Row("Its layer information names the types", "up", r" [1-9]\d* of \d+ layers in half", FLOAT32),
    Row("fp16 arithmetic stays within the bounds", "up", r"- network: top-1"),
    Row("The server answers", "status", r"^ready · "),
    Row("The server runs as a plain user, read-only", "user", r"^user [1-9]\d*, / is mounted ro"),
    Row("The door and the keeper run in NVIDIA's image", "classify", LABELS),
    Row("perf_analyzer measures from the sdk image", "bench", r"- report: "),
    Row("TensorRT builds the classifier of texts", "texts", r"- network: top-1"),
    Row("TensorRT builds places", "places", AGREES),
    Row("TensorRT builds the cascade's small network", "cascade", AGREES, LENT),
    Row("TensorRT builds the detector", "detection", AGREES),
    Row("TensorRT builds segmentation", "segmentation", AGREES),
    Row("TensorRT builds the network of sounds", "sounds", AGREES),
    Row("Videos are watched", "video", LABELS, LENT),
    Row("The FIL backend runs trees", "trees", r"- network: equal on"),
    Row("A function of the user's own answers", "function", r'^\{"words"'),
    Row("A network of the user's own is added", "network", r"- network: top-1"),
    Row("How right it is can be measured", "eval", r"\bright\b"),
    Row(
        "`make publish` builds a version with another plan",
        "publish",
        r"built in .* half precision",
    ),
    Row("A rollout on a GPU loses no request", "rollout", r"\b0 of [\d,]+ requests failed"),
    Row("GPU memory does not grow under load", "load", r"^GPU memory is held"),
    Row(
        "Several GPUs share minutes of load",
        "shared load",
        r"every GPU computed to the end",
        r"one GPU serves",
    ),
    Row("A killed server comes back under load", "harm", r"a process was killed: server", UNSEEN),
    Row(
        "A killed step comes back under load",
        "harm",
        r"was killed: (?!server|door|envoy|keeper)",
        UNSEEN,
    ),
    Row("A corrupted plan is refused, and the live one serves", "corrupted", LABELS),
    Row("The door asks for TLS and a key", "door", "^without a key 401, with one 200"),
    Row("A hostile request is refused", "door", "^no picture: 400$"),
    Row("Several GPUs serve together", "up", r"containers see \d+ x ", "containers see "),
    Row("cupy compiles, and GPU memory is shared", "scores on the GPU", r"- ensemble: top-1"),
    Row(
        "cupy computes on the GPU, and says whose it is",
        "scores on the GPU",
        r"^scores on GPU \d+ by /",
    ),
    Row("DALI decodes on the GPU", "dali", r"- ensemble: top-1"),
    Row("Docker Compose alone serves", "compose", LABELS, "would want FROM="),
    Row("A backup is restored and upgraded", "restore", LABELS),
    Row("Settings are searched", "tune", r": [1-9][\d.]* answers per second .* the best so far"),
)
