"""The repository on S3"""

from scripts.settings.setting import Part, path, port, text

repository = text(
    "",
    """Where the server loads from: s3://bucket/path on AWS,
    s3://https://host:port/bucket/path elsewhere. Empty: the folder build/live. See
    extensions/s3/README.md.""",
    Part.SERVER,
)
s3_server_credentials = path(
    """A file like ~/.aws/credentials with a read-only key for the server. Empty: the server
    gets yours.""",
    Part.SERVER,
)
s3_port = port(
    9000, "The port of the S3 server that `make s3-up` starts on this machine.", Part.COMMAND
)
