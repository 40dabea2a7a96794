"""The program on a CUDA device that computes nothing."""
import pytest

from null_gpu.stand_in import NullGpu


def pytest_addoption(parser):
    parser.addoption("--count", type=int, default=70, help="of ways to train, with --full")
    parser.addoption("--seed", type=int, default=1)
    parser.addoption("--steps", type=int, default=1000, help="after the probe, with --full")


@pytest.fixture
def null_gpu(request, tmp_path):
    return NullGpu(request.config.getoption("--build"), tmp_path)


@pytest.fixture
def nvrtc(null_gpu):
    """The compiler of the program's own kernel, which draws dropout's masks: the models with dropout have graphs with it alone."""
    if any((null_gpu.build.parent / "stand_ins/lib").glob("libnvrtc.so.*")):
        pytest.skip("NVRTC is a stand-in here, which compiles no kernel")
