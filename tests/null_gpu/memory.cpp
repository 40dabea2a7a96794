#include "memory.hpp"

#include "counts.hpp"
#include "device.hpp"
#include "session.hpp"
#include "settings.hpp"
#include "streams.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

namespace null_gpu {
namespace {

constexpr std::size_t k_page = 4096;

struct Block {
  int device;
  std::size_t bytes;
  std::unique_ptr<char[]> content;  // of a small one
};

struct All {
  std::mutex mutex;
  std::map<char*, Block> blocks;
  std::map<char*, std::size_t> pinned;
  std::int64_t pinned_bytes = 0;
  std::int64_t allocations = 0;  // asked for
  std::int64_t own[k_most_devices] = {};
};

// Left where it is when the process ends, when others still free.
All& all() {
  static All* const made = new All();
  return *made;
}

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + k_page - 1) / k_page * k_page;
}

// Of a process that ends: another may go on.
struct AtExit {
  ~AtExit() {
    for (int slot = 0; slot < k_most_devices; ++slot) session().used[slot] -= all().own[slot];
  }
} at_exit;

template <typename Map>
auto containing(Map& map, const void* address) {
  auto* wanted = const_cast<char*>(static_cast<const char*>(address));
  auto after = map.upper_bound(wanted);
  return after == map.begin() ? map.end() : std::prev(after);
}

}  // namespace

bool take(int device, std::int64_t bytes) {
  const Device& simulated = settings().devices[static_cast<std::size_t>(device)];
  std::atomic<std::int64_t>& used = session().used[slot_of(device)];
  const std::int64_t before = used.fetch_add(bytes);
  if (before + bytes + simulated.reserved > simulated.memory) {
    used -= bytes;
    return false;
  }
  all().own[slot_of(device)] += bytes;
  long peak = counts().peak_bytes.load();
  while (peak < before + bytes && !counts().peak_bytes.compare_exchange_weak(peak, static_cast<long>(before + bytes))) {
  }
  return true;
}

void give_back(int device, std::int64_t bytes) {
  session().used[slot_of(device)] -= bytes;
  all().own[slot_of(device)] -= bytes;
}

void add_block(char* address, int device, std::size_t bytes) {
  const std::scoped_lock lock(all().mutex);
  all().blocks[address] = {device, bytes, nullptr};
}

void remove_blocks(char* address, std::size_t bytes) {
  const std::scoped_lock lock(all().mutex);
  all().blocks.erase(all().blocks.lower_bound(address), all().blocks.lower_bound(address + bytes));
}

std::optional<Place> place_of(const void* address) {
  const std::scoped_lock lock(all().mutex);
  const auto found = containing(all().blocks, address);
  if (found == all().blocks.end() || static_cast<const char*>(address) >= found->first + found->second.bytes)
    return std::nullopt;
  return Place{found->second.device, found->first, found->second.bytes};
}

bool is_pinned(const void* address) {
  const std::scoped_lock lock(all().mutex);
  const auto found = containing(all().pinned, address);
  return found != all().pinned.end() && static_cast<const char*>(address) < found->first + found->second;
}

char* remembered(const void* address, std::size_t bytes) {
  const std::scoped_lock lock(all().mutex);
  const auto found = containing(all().blocks, address);
  if (found == all().blocks.end() || found->second.content == nullptr) return nullptr;
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(address) - found->first);
  return offset + bytes > found->second.bytes ? nullptr : found->second.content.get() + offset;
}

}  // namespace null_gpu

using namespace null_gpu;

extern "C" {

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  if (breaks_capture()) return fail(cudaErrorStreamCaptureUnsupported);
  // Before the lock: work on a stream takes both the other way round.
  const bool captured = current_capture() != nullptr;
  const std::scoped_lock lock(all().mutex);
  ++all().allocations;
  if (counts().first_allocation_of_a_capture == 0 && captured)
    counts().first_allocation_of_a_capture = static_cast<long>(all().allocations);
  if (all().allocations == settings().fail_allocation) return fail(cudaErrorMemoryAllocation);
  const int device = current_device();
  if (!take(device, static_cast<std::int64_t>(bytes))) return fail(cudaErrorMemoryAllocation);
  void* memory = mmap(nullptr, whole_pages(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    give_back(device, static_cast<std::int64_t>(bytes));
    return fail(cudaErrorMemoryAllocation);
  }
  all().blocks[static_cast<char*>(memory)] = {device, bytes,
                                              bytes <= k_most_remembered ? std::make_unique<char[]>(bytes) : nullptr};
  ++counts().allocations;
  *address = memory;
  return cudaSuccess;
}

// Waits for the device, as the real one does.
cudaError_t cudaFree(void* address) {
  if (address == nullptr) return cudaSuccess;
  const std::optional<Place> place = place_of(address);
  if (!place || place->begin != address) return fail(cudaErrorInvalidValue);
  if (breaks_capture()) return fail(cudaErrorStreamCaptureUnsupported);
  count_host_stop();
  ++counts().frees;
  synchronize_device(place->device);
  forget(place->begin, place->bytes);
  const std::scoped_lock lock(all().mutex);
  all().blocks.erase(place->begin);
  give_back(place->device, static_cast<std::int64_t>(place->bytes));
  munmap(address, whole_pages(place->bytes));
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const Device& simulated = settings().devices[static_cast<std::size_t>(current_device())];
  const std::int64_t left = simulated.memory - simulated.reserved - session().used[slot_of(current_device())].load();
  *free = static_cast<std::size_t>(left < 0 ? 0 : left);
  *total = static_cast<std::size_t>(simulated.memory);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned) {
  const std::scoped_lock lock(all().mutex);
  const auto wanted = static_cast<std::int64_t>(bytes);
  if (settings().host_memory > 0 && all().pinned_bytes + wanted > settings().host_memory)
    return fail(cudaErrorMemoryAllocation);
  void* memory = nullptr;
  if (posix_memalign(&memory, k_page, bytes == 0 ? 1 : bytes) != 0) return fail(cudaErrorMemoryAllocation);
  all().pinned[static_cast<char*>(memory)] = bytes;
  all().pinned_bytes += wanted;
  ++counts().pinned_allocations;
  *address = memory;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* address) {
  const std::scoped_lock lock(all().mutex);
  const auto found = all().pinned.find(static_cast<char*>(address));
  if (found == all().pinned.end()) return fail(cudaErrorInvalidValue);
  all().pinned_bytes -= static_cast<std::int64_t>(found->second);
  all().pinned.erase(found);
  std::free(address);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* address, std::size_t bytes, unsigned) {
  const std::scoped_lock lock(all().mutex);
  all().pinned[static_cast<char*>(address)] = bytes;
  all().pinned_bytes += static_cast<std::int64_t>(bytes);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* address) {
  const std::scoped_lock lock(all().mutex);
  const auto found = all().pinned.find(static_cast<char*>(address));
  if (found == all().pinned.end()) return fail(cudaErrorHostMemoryNotRegistered);
  all().pinned_bytes -= static_cast<std::int64_t>(found->second);
  all().pinned.erase(found);
  return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  std::memset(attributes, 0, sizeof(*attributes));
  attributes->type = cudaMemoryTypeUnregistered;
  if (const std::optional<Place> place = place_of(address)) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = place->device;
    attributes->devicePointer = const_cast<void*>(address);
  } else if (is_pinned(address)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->device = current_device();
    attributes->hostPointer = attributes->devicePointer = const_cast<void*>(address);
  }
  return cudaSuccess;
}

}  // extern "C"
