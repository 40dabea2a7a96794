// A CUDA program with one defect, by name: each must be seen on the stand-in. Without a name it has none.
#include "trainer/device/cuda_graphs.hpp"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <thread>

namespace {

const at::TensorOptions k_device = at::TensorOptions().device(at::kCUDA, 0);

// What LibTorch does not look at: an operator that reads device memory on the host.
void host_read() {
  const at::Tensor tensor = at::ones({4}, k_device);
  volatile float value = *tensor.const_data_ptr<float>();
  static_cast<void>(value);
}

// As a wait that looks at a stream leaves it.
void stale_error() {
  const at::Tensor tensor = at::ones({4}, k_device);
  static_cast<void>(cudaStreamQuery(nullptr));
  tensor.add(1.0);
}

// Pinned memory that is filled again while the copy of before is under way.
void missing_wait() {
  at::Tensor pinned = at::zeros({1 << 16}, at::TensorOptions().pinned_memory(true));
  at::Tensor there = at::empty({1 << 16}, k_device);
  there.copy_(pinned, true);
  pinned.fill_(1.0);
  c10::cuda::getCurrentCUDAStream().synchronize();
}

// The host takes what a copy has not brought yet: numbers that are none.
void early_read() {
  const at::Tensor there = at::ones({1 << 16}, k_device);
  at::Tensor pinned = at::empty({1 << 16}, at::TensorOptions().pinned_memory(true));
  pinned.copy_(there, true);
  if (pinned.sum().item<float>() != 0.0F) std::cerr << "defect: not a number was read\n";
}

// What has gone to pinned memory comes back: on the same stream, or on one that does not wait for it.
void there_and_back(bool on_one) {
  const at::Tensor there = at::ones({1 << 10}, k_device);
  const at::Tensor pinned = at::empty({1 << 10}, at::TensorOptions().pinned_memory(true));
  pinned.copy_(there, true);
  const at::Tensor again = at::empty_like(there);
  const auto stream = on_one ? c10::cuda::getCurrentCUDAStream() : c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(stream);
  again.record_stream(stream);
  again.copy_(pinned, true);
  stream.synchronize();
}

// One stream writes what another reads: with nothing between them, with an event, with a host that waits.
void two_streams(const std::string& between) {
  const at::Tensor there = at::zeros({1 << 10}, k_device);
  cudaEvent_t written = nullptr;
  cudaEventCreateWithFlags(&written, cudaEventDisableTiming);
  cudaEventRecord(written, c10::cuda::getCurrentCUDAStream());
  if (between == "host") c10::cuda::getCurrentCUDAStream().synchronize();
  const c10::cuda::CUDAStreamGuard other(c10::cuda::getStreamFromPool());
  if (between != "nothing" && between != "host") cudaStreamWaitEvent(other.current_stream(), written, 0);
  if (between != "freed") there.record_stream(other.current_stream());
  there.add(1.0);
  cudaEventDestroy(written);
}

// The half that is written is not the one that is read.
void two_halves() {
  const at::Tensor there = at::empty({2, 1 << 10}, k_device);
  c10::cuda::getCurrentCUDAStream().synchronize();
  there[0].zero_();
  const c10::cuda::CUDAStreamGuard other(c10::cuda::getStreamFromPool());
  there.record_stream(other.current_stream());
  there[1].zero_();
}

void other_device() {
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  c10::cuda::set_device(1);
  if (cudaEventRecord(event, nullptr) != cudaSuccess)
    std::cerr << "defect: " << cudaGetErrorString(cudaGetLastError()) << "\n";
}

// As a thread does that has not been told which device its caller is on.
void unset_device() {
  c10::cuda::set_device(1);
  cudaEvent_t recorded = nullptr;
  cudaEventCreateWithFlags(&recorded, cudaEventDisableTiming);
  cudaEventRecord(recorded, c10::cuda::getCurrentCUDAStream(1));
  std::thread([&] { cudaStreamWaitEvent(nullptr, recorded, 0); }).join();
  c10::cuda::set_device(0);
}

// BatchNorm's backward as the CPU takes it, without saved statistics, which exact BatchNorm once did on a GPU.
void output_sums() {
  const at::Tensor inputs = at::ones({4, 3, 2, 2}, k_device);
  const at::Tensor statistics = at::ones({3}, k_device);
  at::native_batch_norm_backward(inputs, inputs, {}, statistics, statistics, {}, {}, /*train=*/false, 1e-5,
                                 {false, true, true});
}

// What another thread does while this one captures a stream in the mode of its own calls.
cudaError_t beside_a_capture(const std::function<void(cudaStream_t)>& neighbour) {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  std::thread(neighbour, stream).join();
  cudaGraph_t graph = nullptr;
  return cudaStreamEndCapture(stream, &graph);
}

// As autograd's thread would that reads a number.
void captured_wait() {
  const cudaError_t ended =
      beside_a_capture([](cudaStream_t stream) { static_cast<void>(cudaStreamSynchronize(stream)); });
  if (ended != cudaSuccess) std::cerr << "defect: " << cudaGetErrorString(ended) << "\n";
}

// As a thread would that does not know of the stream: the kernel runs once, and in no replay.
void beside_capture() {
  const at::Tensor tensor = at::ones({4}, k_device);
  static_cast<void>(beside_a_capture([&](cudaStream_t) { tensor.add_(1.0); }));
}

// As a backward would whose nodes were made on the default stream.
void captured_default() {
  const cudaError_t ended = beside_a_capture([](cudaStream_t stream) {
    cudaEvent_t reached = nullptr;
    cudaEventCreateWithFlags(&reached, cudaEventDisableTiming);
    cudaEventRecord(reached, stream);
    static_cast<void>(cudaStreamWaitEvent(nullptr, reached, 0));
  });
  std::cerr << "defect: " << cudaGetErrorString(ended) << "\n";
}

// Graphs that were let go and are recorded again, while cuBLAS's workspace lies in what was their memory.
void graphs_anew() {
  const auto graphs = onebatch::create_cuda_graphs(k_device.device());
  const at::Tensor x = at::ones({8, 8}, k_device);
  for (int i = 0; i < 3; ++i) {
    const auto first = graphs->record([&](const auto& cut) {
      const at::Tensor product = x.matmul(x);
      cut();
      static_cast<void>(product.add(x));
    });
    const auto second = graphs->record([&](const auto&) { static_cast<void>(x.add(x)); });
    for (const auto* recorded : {&first, &second}) {
      for (const auto& graph : *recorded) graph->replay();
    }
    c10::cuda::getCurrentCUDAStream().synchronize();
  }
}

// What a communicator's thread may do at any time.
void neighbours_call() {
  const cudaError_t ended = beside_a_capture([](cudaStream_t) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, 1 << 20) != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess ||
        cudaFree(memory) != cudaSuccess)
      std::cerr << "null GPU: a call of another thread was refused\n";
  });
  if (ended != cudaSuccess) std::cerr << "null GPU: a call of another thread has ended the capture\n";
}

}  // namespace

int main(int count, char** words) {
  const std::string defect = count > 1 ? words[1] : "";
  try {
    if (defect == "host_read") host_read();
    if (defect == "stale_error") stale_error();
    if (defect == "missing_wait") missing_wait();
    if (defect == "early_read") early_read();
    if (defect.starts_with("there_and_back")) there_and_back(defect.ends_with("one"));
    if (defect == "other_device") other_device();
    if (defect == "unset_device") unset_device();
    if (defect == "output_sums") output_sums();
    if (defect.starts_with("two_streams")) two_streams(defect.substr(defect.find(' ') + 1));
    if (defect == "two_halves") two_halves();
    if (defect == "captured_wait") captured_wait();
    if (defect == "beside_capture") beside_capture();
    if (defect == "captured_default") captured_default();
    if (defect == "graphs_anew") graphs_anew();
    if (defect.empty()) neighbours_call();
    at::ones({1 << 10}, k_device).add(1.0).sum().item<float>();
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
