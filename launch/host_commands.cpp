#include "launch/host_commands.hpp"

#include "comm/all_reduce_bench.hpp"
#include "launch/standard_streams.hpp"
#include "trainer/device/build_and_host.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <nlohmann/json.hpp>

#include <thread>

namespace onebatch::launch {
namespace {

std::string all_reduce_header() {
  return fmt::format("{:>12} {:>12} {:>12} {:>16} {:>10} {:>10} {:>8}", "bytes", "µs", "MPI µs", "MPI bucketed µs",
                     "algbw GB/s", "busbw GB/s", "times");
}

std::string all_reduce_line(const comm::AllReduceTiming& t) {
  return fmt::format("{:>12} {:>12.1f} {:>12.1f} {:>16.1f} {:>10.2f} {:>10.2f} {:>8.2f}", t.bytes, t.seconds * 1e6,
                     t.mpi_seconds * 1e6, t.mpi_best_bucket_seconds * 1e6, t.algbw, t.busbw, t.times_mpi_best_bucket);
}

// Known once memory was asked for.
void warn_of_copies(const comm::World& world) {
  if (!world.why_not_shared().empty())
    print_error(fmt::format("onebatch: warning: without shared memory: {}\n", world.why_not_shared()));
}

}  // namespace

std::string describe_host(const comm::World& world) {
  if (world.rank() != 0) return {};
  nlohmann::ordered_json document = nlohmann::ordered_json::object();
  for (const std::string& line : describe_build_and_host()) {
    print_out(fmt::format("{}\n", line));
    document[line.substr(0, line.find(": "))] = line.substr(line.find(": ") + 2);
  }
  print_out(fmt::format("ranks: {}\n", world.size()));
  document["ranks"] = world.size();
  return document.dump(2);
}

std::string bench_all_reduce(double most_bytes, comm::World& world) {
  const bool first = world.rank() == 0;
  nlohmann::ordered_json document = {{"ranks", world.size()}, {"sizes", nlohmann::ordered_json::array()}};
  if (first) print_out(fmt::format("{}\n", all_reduce_header()));
  comm::bench_all_reduce(world, static_cast<std::size_t>(most_bytes), [&](const comm::AllReduceTiming& t) {
    if (first && document["sizes"].empty()) warn_of_copies(world);
    if (first) print_out(fmt::format("{}\n", all_reduce_line(t)));
    document["sizes"].push_back({{"bytes", t.bytes},
                                 {"seconds", t.seconds},
                                 {"mpi_seconds", t.mpi_seconds},
                                 {"mpi_best_bucket_seconds", t.mpi_best_bucket_seconds},
                                 {"algbw", t.algbw},
                                 {"busbw", t.busbw},
                                 {"times_mpi_best_bucket", t.times_mpi_best_bucket}});
  });
  return document.dump(2);
}

void warn_of_binding(const comm::World& world) {
  cpu_set_t cores;
  if (world.size() > 2 || world.launcher().launcher != "mpirun" || sched_getaffinity(0, sizeof(cores), &cores) != 0)
    return;
  const auto all = static_cast<int>(std::thread::hardware_concurrency());
  if (CPU_COUNT(&cores) == 1 && all > world.size())
    print_error(fmt::format(
        "onebatch: warning: mpirun has bound each rank to 1 of {} cores; start it as mpirun --bind-to none …\n", all));
}

}  // namespace onebatch::launch
