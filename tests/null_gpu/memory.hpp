// Memory of the devices: addresses that nobody may read or write. And pinned memory of the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace null_gpu {

struct Place {
  int device;
  char* begin;
  std::size_t bytes;
};

/// The block that the address lies in; none: not a device's.
std::optional<Place> place_of(const void* address);
bool is_pinned(const void* address);
/// Takes bytes of a device, or fails. Nothing that an address belongs to: libraries' own memory.
bool take(int device, std::int64_t bytes);
void give_back(int device, std::int64_t bytes);

/// Addresses that belong to a device from now on; and all such blocks that begin in a range no longer do.
void add_block(char* address, int device, std::size_t bytes);
void remove_blocks(char* address, std::size_t bytes);

/// What the host last copied to the first bytes of a small block, and collectives made of it. Kernels do not change it:
/// they compute nothing.
constexpr std::size_t k_most_remembered = 4096;
char* remembered(const void* address, std::size_t bytes);

}  // namespace null_gpu
