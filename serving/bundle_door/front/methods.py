"""What may be asked over gRPC, by whom, and how it is answered where no Triton does."""

TRITON = "/inference.GRPCInferenceService/"
INFER = f"{TRITON}ModelInfer"
STREAM = f"{TRITON}ModelStreamInfer"
LOAD = f"{TRITON}RepositoryModelLoad"
HEALTH_METHOD = "/grpc.health.v1.Health/Check"
OPEN_METHODS = [
    f"{TRITON}{name}" for name in (
        "ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelStatistics",
    )
]  # fmt: skip
# What is asked before a model is.
ABOUT_A_MODEL = [f"{TRITON}{name}" for name in ("ModelMetadata", "ModelConfig")]
ADMIN_METHODS = [
    f"{TRITON}{name}" for name in (
        "RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload",
        "SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister",
        "CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister",
        "TraceSetting", "LogSettings",
    )
]  # fmt: skip
INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE = "3", "4", "8", "14"
