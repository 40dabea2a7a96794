#include "trainer/device/cuda_graphs.hpp"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <torch/version.h>

#include <memory>
#include <utility>
#include <vector>

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

  std::vector<std::unique_ptr<DeviceGraph>> record(const std::function<void(const Cut&)>& work) override {
    // The default stream cannot be captured. What is recorded waits for nothing that lies there: it is replayed behind
    // all of it.
    const c10::cuda::CUDAStreamGuard on_a_stream_of_its_own(stream_);
    release();
    used_ = true;
    std::vector<std::unique_ptr<DeviceGraph>> made;
    CudaGraph* now = nullptr;
    const auto begin = [&] {
      auto graph = std::make_unique<CudaGraph>();
      graph->of_the_pool = alive_;
      now = graph.get();
      made.push_back(std::move(graph));
      // In the default mode a call of another thread, as the communicator's, would end the capture.
      now->graph.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    };
    try {
      begin();
      work([&] {
        now->graph.capture_end();
        begin();
      });
      now->graph.capture_end();
    } catch (...) {
      abandon(now->graph);
      throw;
    }
    return made;
  }

  // With its last graph a pool is over for LibTorch's allocators, while cuBLAS's workspaces still lie in it.
  void release() override {
    if (alive_.use_count() > 1 || !used_) return;
    at::cuda::clearCublasWorkspaces();
    pool_ = at::cuda::graph_pool_handle();
    used_ = false;
  }

 private:
  // LibTorch's allocators go on handing out the pool's memory where a capture does not end well: later tensors would
  // lie in it.
  void abandon(at::cuda::CUDAGraph& graph) {
    try {
      graph.capture_end();
    } catch (const std::exception&) {
      end_pool();
    }
    static_cast<void>(cudaGetLastError());  // else the next launch takes it for its own
    end_for_the_generator();
  }

  // LibTorch's generator takes a capture that did not end well for one that goes on, and refuses to draw, until another
  // has ended.
  static void end_for_the_generator() {
    try {
      const at::Tensor any = at::zeros({1}, at::TensorOptions().device(at::kCUDA));
      at::cuda::CUDAGraph graph;
      graph.capture_begin(at::cuda::graph_pool_handle(), cudaStreamCaptureModeThreadLocal);
      any.zero_();
      graph.capture_end();
    } catch (const std::exception&) {  // the device is lost, as whoever computes on it next is told
      static_cast<void>(cudaGetLastError());
    }
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
