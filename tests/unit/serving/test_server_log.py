from bundle_serving.process.server_log import explain_end, first_error

LOG = """I1120 12:27:37.262297 107 server.cc:674] "loading: resnet50_onnx:1"
E1120 12:27:38.1 107 backend_model.cc:692] "ERROR: Failed to create instance: no model.onnx"
E1120 12:27:38.2 107 model_lifecycle.cc:654] "failed to load 'resnet50_onnx' version 1: Internal"
E1120 12:27:38.3 107 model_repository_manager.cc:703] "Invalid argument: ensemble depends on it"
"""


def test_the_error_of_loading_is_the_one_to_show() -> None:
    assert first_error(LOG) == "failed to load 'resnet50_onnx' version 1: Internal"


def test_plain_refusals_are_found() -> None:
    assert first_error("error: creating server: port 8000\n") == "error: creating server: port 8000"


def test_no_error_is_no_text() -> None:
    assert first_error(LOG.splitlines()[0]) == ""


def test_what_a_server_without_a_gpu_says_is_no_error() -> None:
    log = (
        'E1120 12:27:38.3 107 cuda.cc:1] "CudaDriverHelper has not been initialized."\n'
        "failed to start HTTP service: Unavailable - Socket '127.0.0.1:8000' already in use\n"
    )
    assert first_error(f"Error: Failed to initialize NVML\n{log}").startswith("failed to start")


def test_without_an_error_it_is_told_what_was_said_last() -> None:
    assert explain_end(LOG) == first_error(LOG)
    assert explain_end("loading\nthe server had exited (SIGABRT)\n") == (
        "it last said: the server had exited (SIGABRT)"
    )
    assert explain_end("") == "it last said: nothing"
