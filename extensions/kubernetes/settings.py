"""A cluster"""

from scripts.settings.setting import Part, text, whole_or_none

namespace = text(
    "default", "The namespace of a Kubernetes cluster for `make cluster-up`.", Part.COMMAND
)
context = text(
    "", "The context of kubectl's configuration. Empty: the current one, then.", Part.COMMAND
)
s3_role = text(
    "",
    """The role whose keys pods get for the token of their service account, instead of a key to S3:
    arn:aws:iam::123456789012:role/reads-models.""",
    Part.COMMAND,
)
max_replicas = whole_or_none(
    """How many pods `REPLICAS` may ask of a cluster, where nodes come when they are needed. Empty:
    as many as its nodes have room for, or 100 where you may not see them.""",
    Part.COMMAND,
)
