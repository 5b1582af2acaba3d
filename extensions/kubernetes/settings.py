"""A cluster"""

from scripts.settings.setting import Part, text

namespace = text(
    "default",
    "The namespace of a Kubernetes cluster for `make cluster-up` and `make kubernetes`.",
    Part.COMMAND,
)
context = text(
    "",
    "The context of kubectl's configuration. Empty: the one that is current at `make cluster-up`.",
    Part.COMMAND,
)
s3_role = text(
    "",
    """The role whose keys pods get for the token of their service account, instead of a key to S3:
    arn:aws:iam::123456789012:role/reads-models.""",
    Part.COMMAND,
)
