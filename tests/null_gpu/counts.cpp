#include "counts.hpp"

#include "settings.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace null_gpu {
namespace {

constexpr int k_frames = 40;

bool asked = false;  // by a CUDA function

void write_stops();

void write_counts() {
  static bool written = false;
  if (!asked || settings().counts.empty() || std::exchange(written, true)) return;
  std::FILE* file = std::fopen(settings().counts.c_str(), "a");
  if (file == nullptr) return;
  const Counts& c = counts();
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  std::string line =
      "{\"rank\": " + std::string(rank == nullptr ? "0" : rank) + ", \"process\": " + std::to_string(getpid());
  const auto add = [&](const char* name, const std::atomic<long>& value) {
    line += ", \"" + std::string(name) + "\": " + std::to_string(value.load());
  };
  add("kernels", c.kernels);
  add("replayed_kernels", c.replayed_kernels);
  add("graph_launches", c.graph_launches);
  add("captures", c.captures);
  add("blas", c.blas);
  add("cudnn", c.cudnn);
  add("nccl", c.nccl);
  add("to_host", c.to_host);
  add("to_device", c.to_device);
  add("on_device", c.on_device);
  add("memsets", c.memsets);
  add("host_stops", c.host_stops);
  add("waits_behind", c.waits_behind);
  add("allocations", c.allocations);
  add("first_allocation_of_a_capture", c.first_allocation_of_a_capture);
  add("frees", c.frees);
  add("pinned_allocations", c.pinned_allocations);
  add("virtual_pieces", c.virtual_pieces);
  add("events", c.events);
  add("overwritten_sources", c.overwritten_sources);
  add("peak_bytes", c.peak_bytes);
  std::fprintf(file, "%s}\n", line.c_str());
  std::fclose(file);
  write_stops();
}

using Place = std::vector<void*>;  // return addresses, innermost first

std::mutex& mutex_of_stops() {
  static std::mutex* const mutex = new std::mutex();
  return *mutex;
}

std::map<Place, long>& stops_by_place() {
  static auto* const stops = new std::map<Place, long>();
  return *stops;
}

std::string name_of(void* address) {
  Dl_info found{};
  if (dladdr(address, &found) == 0 || found.dli_fname == nullptr) return "?";
  if (found.dli_sname == nullptr) {
    std::array<char, 32> offset{};
    std::snprintf(offset.data(), offset.size(), "+%#tx",
                  static_cast<char*>(address) - static_cast<char*>(found.dli_fbase));
    return found.dli_fname + std::string(offset.data());
  }
  int status = 0;
  char* const plain = abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, &status);
  std::string name = status == 0 ? plain : found.dli_sname;
  std::free(plain);
  return name.substr(0, name.find('('));
}

void write_stops() {
  if (settings().stops.empty()) return;
  const std::scoped_lock lock(mutex_of_stops());
  std::vector<std::pair<long, Place>> sorted;
  for (const auto& [place, count] : stops_by_place()) sorted.emplace_back(count, place);
  std::sort(sorted.rbegin(), sorted.rend());
  std::FILE* file = std::fopen(settings().stops.c_str(), "a");
  if (file == nullptr) return;
  for (const auto& [count, place] : sorted) {
    std::fprintf(file, "%ld times\n", count);
    for (void* address : place) std::fprintf(file, "    %s\n", name_of(address).c_str());
  }
  std::fclose(file);
}

struct AtExit {
  AtExit() {
    asked = true;
    std::atexit(write_counts);
  }
};

}  // namespace

Counts& counts() {
  static Counts* const all = new Counts();
  static const AtExit at_exit;
  return *all;
}

void count_host_stop() {
  ++counts().host_stops;
  if (settings().stops.empty()) return;
  Place place(k_frames);
  place.resize(static_cast<std::size_t>(backtrace(place.data(), k_frames)));
  const std::scoped_lock lock(mutex_of_stops());
  ++stops_by_place()[std::move(place)];
}

void report(const std::string& defect) {
  static std::mutex mutex;
  static std::set<std::string>* const said = new std::set<std::string>();
  const std::scoped_lock lock(mutex);
  if (said->insert(defect).second) std::fprintf(stderr, "null GPU: %s\n", defect.c_str());
}

}  // namespace null_gpu

extern "C" {

// A program that ends in a hurry leaves its counts, too.
[[noreturn]] void _exit(int code) {
  null_gpu::write_counts();
  syscall(SYS_exit_group, code);
  __builtin_unreachable();
}

[[noreturn]] void _Exit(int code) {
  _exit(code);
}

}  // extern "C"
