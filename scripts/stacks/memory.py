"""The most that the server's container may need: what its settings allow at the same time.

The numbers are estimates, on the safe side of what `make torture` measures.
"""

from bundle_door.settings import PROCESSES, count_processes
from scripts.recipes.layout import CPU, Share, in_one_step
from scripts.settings.settings import Settings

# Server, door and keeper at rest, with a few pipelines.
AT_REST_MB = 1500
# What each process of the network takes more when it computes its largest batches.
NETWORK_MB = 150
# Envoy's largest heap, and the bodies that the HTTP service takes, joined once.
DOOR_MB = 512 + 2 * 256
# Each further process of the HTTP service.
PROCESS_MB = 100
# The same bodies as Triton has them, and as they lie in the shared memory of its processes.
IN_HAND_MB = 2 * 512
# A process decodes one large picture at a time, which takes so much a pixel; and small ones.
BYTES_A_PIXEL, SMALL_MB = 16, 100


# Each Python process shares a region with Triton that grows with the tensors passed through it. The
# largest picture accepted as an array, 50 megapixels, takes 600 MB.
SHM_BASE_MB, SHM_INSTANCE_MB = 768, 64


def limit(settings: Settings) -> str:
    """As the user says, or what follows from the settings."""
    return settings.memory or f"{limit_mb(settings)}m"


def shm_size(settings: Settings) -> str:
    """Of it: the most that is shared."""
    instances = Share.preprocessing(settings).instances + Share.network(settings).instances
    return f"{SHM_BASE_MB + SHM_INSTANCE_MB * instances}m"


def limit_mb(settings: Settings) -> int:
    decoding = BYTES_A_PIXEL * settings.max_megapixels + SMALL_MB
    one_step = in_one_step(settings.steps, CPU)
    decoders = (Share.network if one_step else Share.preprocessing)(settings).instances
    processes = count_processes(settings[PROCESSES], settings.cores)
    remembering = Share.network(settings).instances + (0 if one_step else decoders)
    return round(
        AT_REST_MB
        + remembering * (settings.cache_mb or 0)
        + DOOR_MB
        + (processes - 1) * PROCESS_MB
        + IN_HAND_MB
        + decoders * decoding
        + Share.network(settings).instances * NETWORK_MB
    )
