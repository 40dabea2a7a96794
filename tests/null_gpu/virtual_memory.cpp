// The driver's calls by which LibTorch's allocator takes a device's memory piece by piece and puts it behind one range
// of addresses (expandable segments).
#include "counts.hpp"
#include "memory.hpp"

#include <cuda.h>
#include <sys/mman.h>

#include <map>
#include <mutex>

namespace {

struct Piece {
  int device;
  std::size_t bytes;
};

struct All {
  std::mutex mutex;
  std::map<CUmemGenericAllocationHandle, Piece> pieces;
  CUmemGenericAllocationHandle last = 0;
};

All& all() {
  static All* const made = new All();
  return *made;
}

char* pointer(CUdeviceptr address) {
  return reinterpret_cast<char*>(address);
}

}  // namespace

using namespace null_gpu;

extern "C" {

CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
  void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  return munmap(pointer(address), bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long) {
  const int device = properties->location.id;
  if (!take(device, static_cast<std::int64_t>(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::scoped_lock lock(all().mutex);
  *handle = ++all().last;
  all().pieces[*handle] = {device, bytes};
  ++counts().virtual_pieces;
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const std::scoped_lock lock(all().mutex);
  const auto found = all().pieces.find(handle);
  if (found == all().pieces.end()) return CUDA_ERROR_INVALID_VALUE;
  give_back(found->second.device, static_cast<std::int64_t>(found->second.bytes));
  all().pieces.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
  const std::scoped_lock lock(all().mutex);
  const auto found = all().pieces.find(handle);
  if (found == all().pieces.end() || found->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  add_block(pointer(address), found->second.device, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) {
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  remove_blocks(pointer(address), bytes);
  return CUDA_SUCCESS;
}

}  // extern "C"
