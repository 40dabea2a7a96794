#include "tests/fuzz/memory_bound.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <system_error>

// Of the sanitizers' runtime (sanitizer/allocator_interface.h); not there in a build without them.
extern "C" {
__attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void*, size_t),
                                                                    void (*freed)(const volatile void*));
__attribute__((weak)) size_t __sanitizer_get_allocated_size(const volatile void* at);
}

namespace onebatch::fuzz {
namespace {

std::atomic<std::int64_t> now_bytes{0};
std::atomic<std::int64_t> most_bytes_seen{0};

void allocated(const volatile void* /*at*/, std::size_t bytes) {
  const std::int64_t now = now_bytes += static_cast<std::int64_t>(bytes);
  if (now > most_bytes_seen) most_bytes_seen = now;
}

void freed(const volatile void* at) {
  if (at != nullptr) now_bytes -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(at));
}

std::int64_t address_space_bytes() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

void limit_address_space(rlim_t bytes) {
  rlimit limit = {};
  ::getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = bytes;
  if (::setrlimit(RLIMIT_AS, &limit) != 0) throw std::system_error(errno, std::generic_category(), "setrlimit");
}

}  // namespace

bool MemoryBound::counts() {
  static const bool installed = __sanitizer_install_malloc_and_free_hooks != nullptr &&
                                __sanitizer_install_malloc_and_free_hooks(allocated, freed) > 0;
  return installed;
}

MemoryBound::MemoryBound(std::int64_t most_bytes) {
  if (!counts()) limit_address_space(static_cast<rlim_t>(address_space_bytes() + most_bytes));
  begin_bytes_ = now_bytes;
  most_bytes_seen = begin_bytes_;
}

MemoryBound::~MemoryBound() {
  if (!counts()) limit_address_space(RLIM_INFINITY);
}

std::int64_t MemoryBound::peak_bytes() const {
  return counts() ? most_bytes_seen - begin_bytes_ : 0;
}

}  // namespace onebatch::fuzz
