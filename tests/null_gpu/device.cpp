#include "device.hpp"

#include "counts.hpp"
#include "settings.hpp"
#include "streams.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <utility>

namespace null_gpu {
namespace {

thread_local int current = 0;
thread_local cudaError_t last = cudaSuccess;

constexpr int k_multiprocessors = 108;
constexpr int k_shared_bytes = 48 << 10;
constexpr int k_most_shared_bytes = 227 << 10;

const Device* device_at(int number) {
  const auto& devices = settings().devices;
  return number < 0 || static_cast<std::size_t>(number) >= devices.size() ? nullptr
                                                                          : &devices[static_cast<std::size_t>(number)];
}

void fill(cudaDeviceProp& p, const Device& device) {
  std::memset(&p, 0, sizeof(p));
  std::snprintf(p.name, sizeof(p.name), "%s", device.name.c_str());
  std::memset(p.uuid.bytes, device.slot + 1, sizeof(p.uuid.bytes));
  p.totalGlobalMem = static_cast<std::size_t>(device.memory);
  p.major = device.major;
  p.minor = device.minor;
  p.pciBusID = device.bus;
  p.sharedMemPerBlock = k_shared_bytes;
  p.sharedMemPerBlockOptin = k_most_shared_bytes;
  p.sharedMemPerMultiprocessor = k_most_shared_bytes + 1024;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.memPitch = 1U << 31;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 2147483647;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.totalConstMem = 65536;
  p.multiProcessorCount = k_multiprocessors;
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxBlocksPerMultiProcessor = 32;
  p.l2CacheSize = 50 << 20;
  p.concurrentKernels = p.unifiedAddressing = p.canMapHostMemory = p.cooperativeLaunch = 1;
}

int attribute(cudaDeviceAttr name, const cudaDeviceProp& p) {
  switch (name) {
    case cudaDevAttrComputeCapabilityMajor: return p.major;
    case cudaDevAttrComputeCapabilityMinor: return p.minor;
    case cudaDevAttrMultiProcessorCount: return p.multiProcessorCount;
    case cudaDevAttrMaxThreadsPerBlock: return p.maxThreadsPerBlock;
    case cudaDevAttrWarpSize: return p.warpSize;
    case cudaDevAttrMaxSharedMemoryPerBlock: return static_cast<int>(p.sharedMemPerBlock);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return static_cast<int>(p.sharedMemPerBlockOptin);
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return static_cast<int>(p.sharedMemPerMultiprocessor);
    case cudaDevAttrMaxThreadsPerMultiProcessor: return p.maxThreadsPerMultiProcessor;
    case cudaDevAttrMaxGridDimX: return p.maxGridSize[0];
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: return p.maxGridSize[1];
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: return p.maxThreadsDim[0];
    case cudaDevAttrMaxBlockDimZ: return p.maxThreadsDim[2];
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: return p.regsPerBlock;
    default: return 0;
  }
}

const char* words(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureWrongThread:
      return "attempt to terminate a thread-local capture sequence from another thread";
    case cudaErrorCapturedEvent: return "operation not permitted on an event last recorded in a capturing stream";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    default: return "null GPU error";
  }
}

}  // namespace

void* load_driver() {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  return driver;
}

int current_device() {
  return current;
}

int slot_of(int device) {
  return settings().devices.at(static_cast<std::size_t>(device)).slot;
}

cudaError_t fail(cudaError_t error) {
  last = error;
  return error;
}

}  // namespace null_gpu

using namespace null_gpu;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  load_driver();
  if (settings().driver / 1000 < CUDART_VERSION / 1000) return fail(cudaErrorInsufficientDriver);
  if (settings().devices.empty()) return fail(cudaErrorNoDevice);
  *count = static_cast<int>(settings().devices.size());
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device_at(device) == nullptr) return fail(cudaErrorInvalidDevice);
  current = device;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = settings().driver;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int number) {
  const Device* device = device_at(number);
  if (device == nullptr) return fail(cudaErrorInvalidDevice);
  fill(*properties, *device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr name, int number) {
  const Device* device = device_at(number);
  if (device == nullptr) return fail(cudaErrorInvalidDevice);
  cudaDeviceProp properties;
  fill(properties, *device);
  *value = attribute(name, properties);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int number) {
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0",
                settings().devices.at(static_cast<std::size_t>(number)).bus);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = settings().peer_access ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  return settings().peer_access ? cudaSuccess : fail(cudaErrorPeerAccessUnsupported);
}

cudaError_t cudaGetLastError() {
  return std::exchange(last, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  return last;
}

const char* cudaGetErrorString(cudaError_t error) {
  return words(error);
}

const char* cudaGetErrorName(cudaError_t error) {
  return words(error);
}

}  // extern "C"
