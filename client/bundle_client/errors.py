"""What can go wrong, sorted by whose fault it is."""


class ClientError(Exception):
    """Says what happened (`cause`), what to do about it (`remedy`), and to which picture
    (`source`; empty where it concerns them all)."""

    def __init__(self, cause: str, remedy: str, source: str = "") -> None:
        super().__init__(cause, remedy, source)
        self.cause = cause
        self.remedy = remedy
        self.source = source

    def __str__(self) -> str:
        about = f"{self.source}: " if self.source else ""
        return f"{about}{self.cause}; {self.remedy}"


class SourceError(ClientError):
    """The picture could not be read, so the server was not asked."""


class PictureRefused(ClientError):
    """The server rejected the picture."""


class TextRefused(ClientError):
    """The server rejected the text."""


class SoundRefused(ClientError):
    """The server rejected the sound."""


class ModelUnavailable(ClientError):
    """The server runs, but not with this model, or the model does not take pictures."""


class ServerUnreachable(ClientError):
    """No connection to the server."""


class ServerFault(ClientError):
    """The server was reached and then failed, or did not answer in time."""


class ServerBusy(ServerFault):
    """The server takes no more for now, or not from this client; it was asked again in vain."""

    def __init__(self, cause: str, remedy: str, source: str = "", seconds: float = 0) -> None:
        super().__init__(cause, remedy, source)
        # That the server wants to be left alone.
        self.seconds = seconds


class KeyRefused(ClientError):
    """The server wants an API key, and this one is not valid."""


class NotInstalled(ClientError):
    """A package is missing, which an extra of this one brings."""


# The other pictures of a run would meet the same.
CONCERNS_ALL = (ModelUnavailable, ServerUnreachable, KeyRefused, NotInstalled)


def too_large(max_bytes: int) -> SourceError:
    return SourceError(f"larger than {max_bytes / 1e6:g} MB", "use a smaller file")
