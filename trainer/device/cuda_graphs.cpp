#include "trainer/device/cuda_graphs.hpp"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <torch/version.h>

#include <memory>

namespace onebatch {
namespace {

class CudaGraph final : public DeviceGraph {
 public:
  void replay() override { graph.replay(); }

  at::cuda::CUDAGraph graph;
  std::shared_ptr<const int> of_the_pool;
};

class CudaGraphs final : public DeviceGraphs {
 public:
  explicit CudaGraphs(c10::DeviceIndex device)
      : device_(device),
        pool_(at::cuda::graph_pool_handle()),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device)) {}

  std::unique_ptr<DeviceGraph> record(const std::function<void()>& work) override {
    // The default stream cannot be captured. What is recorded waits for nothing that lies there: it is replayed behind
    // all of it.
    const c10::cuda::CUDAStreamGuard on_a_stream_of_its_own(stream_);
    if (alive_.use_count() == 1 && used_) begin_another_pool();
    used_ = true;
    auto made = std::make_unique<CudaGraph>();
    made->of_the_pool = alive_;
    try {
      // In the default mode a call of another thread, as the communicator's, would end the capture.
      made->graph.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
      work();
      made->graph.capture_end();
    } catch (...) {
      abandon(made->graph);
      throw;
    }
    return made;
  }

 private:
  // With its last graph a pool is over for LibTorch's allocators, while cuBLAS's workspaces still lie in it.
  void begin_another_pool() {
    at::cuda::clearCublasWorkspaces();
    pool_ = at::cuda::graph_pool_handle();
  }

  // LibTorch's allocators go on handing out the pool's memory where a capture does not end well: later tensors would
  // lie in it.
  void abandon(at::cuda::CUDAGraph& graph) {
    try {
      graph.capture_end();
    } catch (const std::exception&) {
      end_pool();
    }
    static_cast<void>(cudaGetLastError());  // else the next launch takes it for its own
  }

  void end_pool() {
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device_, pool_);
      c10::cuda::CUDACachingAllocator::releasePool(device_, pool_);
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR > 207  // before, pinned memory has no pools
      at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool_);
      at::getHostAllocator(at::kCUDA)->release_pool(pool_);
#endif
    } catch (const std::exception&) {  // it has ended: what failed came afterwards
    }
  }

  c10::DeviceIndex device_;
  decltype(at::cuda::graph_pool_handle()) pool_;
  bool used_ = false;
  std::shared_ptr<const int> alive_ = std::make_shared<const int>(0);  // one more of it for each graph
  c10::cuda::CUDAStream stream_;
};

}  // namespace

std::unique_ptr<DeviceGraphs> create_cuda_graphs(c10::Device device) {
  return std::make_unique<CudaGraphs>(device.index());
}

}  // namespace onebatch
