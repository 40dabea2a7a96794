// The program with one rank that fails: ONEBATCH_FAULT="rank place number kind file". A place is a fault point's, or an
// operation that the watchdog guards (all_reduce, with _ for a space; the number says which of that name), where it
// fails inside. Kind is kill, stop, throw, loop, overflow (of its stack), segv (in a thread of its own), ahead,
// memory (from then on its device has half as much for activations as the last step took) or full (once, as a GPU whose
// memory ends). It writes the moment of the
// fault (seconds since the epoch) to the file. ONEBATCH_SLOW_COPY, ONEBATCH_SLOW_WRITE: so many seconds pass before a
// checkpoint is copied, or written, beside the steps; ONEBATCH_SLOW_READER: and before each training sample is read.
// ONEBATCH_LATE: a step's figures are read late on a CPU too. ONEBATCH_FAULT_SKIPS: so many times the place is passed
// before it fails, as the micro-batches of a step pass "model".
#include "trainer/base/fault_point.hpp"
#include "trainer/device/memory_budget.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace onebatch {
namespace {

struct Fault {
  int rank = -1;
  std::string place;
  std::int64_t number = 0;
  std::string kind;
  std::string file;
};

Fault read_fault() {
  Fault fault;
  const char* text = std::getenv("ONEBATCH_FAULT");
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (text == nullptr) return fault;
  std::istringstream(text) >> fault.rank >> fault.place >> fault.number >> fault.kind >> fault.file;
  if (fault.rank != (rank == nullptr ? 0 : std::atoi(rank))) fault.place.clear();
  return fault;
}

[[gnu::noinline]] void loops_for_ever() {
  for (volatile bool on = true; on;) {
  }
}

[[gnu::noinline]] int recurs_for_ever(int depth) {
  volatile char room[1024] = {};
  return room[0] + (depth > 0 ? recurs_for_ever(depth + 1) : 0) + room[1];
}

[[gnu::noinline]] void crashes_in_a_worker() {
  volatile int* volatile nowhere = nullptr;
  *nowhere = 1;
}

}  // namespace

std::int64_t fault_point(const char* place, std::int64_t number) {
  static const Fault fault = read_fault();
  for (const auto& [slow_place, name] :
       {std::pair("copy", "ONEBATCH_SLOW_COPY"), std::pair("write", "ONEBATCH_SLOW_WRITE"),
        std::pair("reader", "ONEBATCH_SLOW_READER")}) {
    if (const char* slow = std::getenv(name); slow != nullptr && std::strcmp(place, slow_place) == 0)
      std::this_thread::sleep_for(std::chrono::duration<double>(std::atof(slow)));
  }
  if (std::strcmp(place, "late") == 0) return std::getenv("ONEBATCH_LATE") != nullptr ? 1 : 0;
  if (fault.place != place || number < fault.number) return 0;
  static std::atomic<int> skips{std::getenv("ONEBATCH_FAULT_SKIPS") ? std::atoi(std::getenv("ONEBATCH_FAULT_SKIPS"))
                                                                    : 0};
  if (skips.fetch_sub(1) > 0) return 0;
  if (fault.kind == "ahead") return 1;
  if (fault.kind == "memory") {
    static bool done = false;
    MemoryBudget& budget = MemoryBudget::install();
    if (!done) budget.set_limit_bytes(budget.current_bytes() + (budget.peak_bytes() - budget.current_bytes()) / 2);
    done = true;
    return 0;
  }
  if (fault.kind == "full") {
    static bool done = false;
    if (!std::exchange(done, true)) throw std::runtime_error("CUDA out of memory: a fault");
    return 0;
  }
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  static bool happened = false;  // one that is stopped goes on for a moment when the launcher ends it
  if (!std::exchange(happened, true)) std::ofstream(fault.file) << std::fixed << now << std::endl;
  if (fault.kind == "kill") std::raise(SIGKILL);
  if (fault.kind == "stop") std::raise(SIGSTOP);
  if (fault.kind == "loop") loops_for_ever();
  if (fault.kind == "overflow") recurs_for_ever(1);
  if (fault.kind == "segv") std::thread(crashes_in_a_worker).join();
  if (fault.kind == "throw") throw std::runtime_error("this was planned by a test (" + std::string(place) + ")");
  return 0;
}

}  // namespace onebatch

// The linker puts these in the place of the guard's constructor (--wrap), which every operation that may wait for
// others goes through.
extern "C" {
void real_guard(void* guard, void* watchdog, const char* operation,
                std::size_t bytes) __asm__("__real__ZN8onebatch4comm8Watchdog5GuardC1ERS1_PKcm");
void wrapped_guard(void* guard, void* watchdog, const char* operation,
                   std::size_t bytes) __asm__("__wrap__ZN8onebatch4comm8Watchdog5GuardC1ERS1_PKcm");

void wrapped_guard(void* guard, void* watchdog, const char* operation, std::size_t bytes) {
  real_guard(guard, watchdog, operation, bytes);
  static const onebatch::Fault fault = onebatch::read_fault();
  static std::atomic<std::int64_t> count{0};
  std::string place = operation;
  std::replace(place.begin(), place.end(), ' ', '_');
  if (fault.place == place && ++count == fault.number) onebatch::fault_point(place.c_str(), fault.number);
}
}
