// What all that a run leaves takes of the thread that trains, for each step: JSON lines, tables, event files, the line
// for programs of [[log.sinks]]. bench/outputs.py has the same from outside, over the steps of whole runs.
#include "trainer/events/csv_writer.hpp"
#include "trainer/events/event_json.hpp"
#include "trainer/events/step_writer.hpp"
#include "trainer/events/tensorboard_writer.hpp"

#include <benchmark/benchmark.h>

namespace onebatch {
namespace {

event::StepDone step_on(std::size_t num_ranks) {
  event::StepDone done;
  done.record.loss = 2.302585092994046;
  done.record.lr = 0.001234567;
  done.record.grad_norm = 1.2345678901234;
  done.record.step_seconds = 0.1234567;
  done.record.compute_seconds.resize(num_ranks, 0.1187654321);
  done.record.data_wait_seconds.resize(num_ranks, 7.1396e-05);
  done.record.memory_peak_bytes.resize(num_ranks, 13436036);
  done.samples.resize(256, 123456);
  return done;
}

void tell_a_step(benchmark::State& state) {
  const auto folder = std::filesystem::temp_directory_path() / "onebatch-outputs-bench";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::vector<Listener> listeners = {
      write_steps(folder / "metrics.jsonl", folder / "samples.jsonl"),
      write_csv(folder / "metrics.csv", folder / "validation.csv"), write_tensorboard(folder / "tensorboard"),
      [](const Event& event) { benchmark::DoNotOptimize(to_json_line(event, 1)); }};
  for (const Listener& listener : listeners) listener(event::TrainingBegins{0, 1000000});
  event::StepDone done = step_on(static_cast<std::size_t>(state.range(0)));
  for ([[maybe_unused]] auto turn : state) {
    ++done.record.step;
    const Event event = done;
    for (const Listener& listener : listeners) listener(event);
  }
  std::filesystem::remove_all(folder);
}
BENCHMARK(tell_a_step)->Arg(1)->Arg(2)->Arg(8)->Arg(64)->Iterations(5000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace onebatch

BENCHMARK_MAIN();
