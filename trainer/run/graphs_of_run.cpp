#include "trainer/run/graphs_of_run.hpp"

#include "trainer/events/own_fallback.hpp"
#include "trainer/models/compiled_program.hpp"
#include "trainer/models/sample_dropout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

namespace onebatch {
namespace {

constexpr const char* k_asked = "run.cuda_graphs = true";

// Empty: nothing is against them.
std::string not_for_the_run(const MicroBatchRunner& runner) {
  if (!runner.replica().device.device().is_cuda()) return "the device is no GPU";
  if (runner.apart() != nullptr && runs_native_code(*runner.replica().model))
    return "native code waits in its BatchNorms for the other micro-batches";
  if (runner.replica().gradients.reproducible() != nullptr)
    return "run.deterministic = \"bitwise\" sums gradients as they arrive";
  return "";
}

// Of these no tensor lives from one forward to the next but parameters and buffers: a graph would go on reading it
// where it lay. Whoever brings a kind of C++ knows it of theirs, and asks for graphs.
bool keeps_nothing(const Configuration& configuration) {
  const auto is_one_of = [](const std::string& kind, std::initializer_list<const char*> kinds) {
    return std::ranges::find(kinds, kind) != kinds.end();
  };
  return is_one_of(configuration.model.kind, {"mlp", "resnet", "torchscript", "exported"}) &&
         is_one_of(configuration.loss.kind, {"cross_entropy", "mse", "model"});
}

// A graph repeats kernels: what else a forward does happens once.
std::string not_for_the_model(const Configuration& configuration, const Examination& examination) {
  if (configuration.run.cuda_graphs == Switch::automatic && !keeps_nothing(configuration))
    return "a kind of one's own may keep tensors between forwards: write run.cuda_graphs = true where it does not";
  if (!examination.examined) return "nothing is known of what its forward draws and keeps: " + examination.why_not;
  for (const Finding& finding : examination.findings) {
    if (finding.trait != Trait::validates_by_batch)
      return "its forward draws, keeps or reads more than a graph repeats: " +
             (finding.place().empty() ? finding.tensor : finding.place());
  }
  return "";
}

}  // namespace

std::unique_ptr<StepGraphs> graphs_of_run(const Configuration& configuration, const MicroBatchRunner& runner,
                                          const Examination& examination, comm::Communicator& control,
                                          EventStream& events) {
  const Switch asked = configuration.run.cuda_graphs;
  if (asked == Switch::off) return nullptr;
  std::string against = not_for_the_run(runner);
  const bool of_the_model = against.empty();
  if (of_the_model) against = not_for_the_model(configuration, examination);
  if (asked == Switch::on) {
    own_fallback(events, control, k_asked, against.empty() ? "" : "kernel by kernel, since " + against);
  } else if (of_the_model && !against.empty()) {
    events.info("micro-batches run kernel by kernel, not as CUDA graphs, since " + against);
  }
  if (!against.empty()) return nullptr;
  return std::make_unique<StepGraphs>(runner.replica(), runner.replica().device.create_graphs());
}

void say_news(StepGraphs* graphs, Switch asked, comm::Communicator& control, EventStream& events) {
  const std::string host_draws = take_host_draws();
  own_fallback(events, control, "dropout's masks drawn on the GPU",
               host_draws.empty() ? "" : "drawn on the host and copied there, since " + host_draws);
  const StepGraphs::News mine = graphs != nullptr ? graphs->take_news() : StepGraphs::News();
  for (const std::string& recorded : comm::all_gather_text(control, mine.recorded)) {
    if (recorded.empty()) continue;
    events.info(recorded);
    if (graphs != nullptr) graphs->recorded_is_said();
    break;
  }
  if (asked == Switch::on)
    return own_fallback(events, control, k_asked,
                        mine.given_up.empty() ? "" : "kernel by kernel, since " + mine.given_up);
  const auto given_up = comm::all_gather_text(control, mine.given_up);
  for (std::size_t rank = 0; rank < given_up.size(); ++rank) {
    if (given_up[rank].empty()) continue;
    events.info("micro-batches run kernel by kernel, not as CUDA graphs" +
                (rank == 0 ? std::string() : fmt::format(" on rank {}", rank)) + ", since " + given_up[rank]);
    break;
  }
}

}  // namespace onebatch
