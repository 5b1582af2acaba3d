"""Similar pictures"""

from scripts.settings.setting import Part, path_or, port

embeddings = path_or(
    ("default", "random"),
    "The weights of `make similar`, a mobilenet_v2; values as for WEIGHTS.",
    Part.EXTRA,
)
embeddings_port = port(8010, "The HTTP port of the service that `make similar` uses.", Part.EXTRA)
