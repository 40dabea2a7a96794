"""The program on a CUDA device that computes nothing."""
import pytest

from null_gpu.stand_in import NullGpu


@pytest.fixture
def null_gpu(request, tmp_path):
    return NullGpu(request.config.getoption("--build"), tmp_path)


@pytest.fixture
def nvrtc(null_gpu):
    """The compiler of the program's own kernel, which draws dropout's masks: the models with dropout have graphs with it alone."""
    if any((null_gpu.build.parent / "stand_ins/lib").glob("libnvrtc.so.*")):
        pytest.skip("NVRTC is a stand-in here, which compiles no kernel")
