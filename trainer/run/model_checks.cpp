#include "trainer/run/model_checks.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/mix_bits.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/step/padding_check.hpp"

#include <ATen/Context.h>

#include <algorithm>

namespace onebatch {
namespace {

// Empty: nowhere.
std::string places_of(Trait trait, const Examination& examination) {
  std::string places;
  for (const Finding& finding : examination.findings) {
    if (finding.trait == trait) places += (places.empty() ? "" : "; ") + finding.place();
  }
  return places;
}

void say_what_depends_on_micro_batches(const Examination& examination, EventStream& events) {
  if (const std::string read = places_of(Trait::reads_data, examination); !read.empty())
    events.fallback("what the model makes of a sample whatever is in its micro-batch",
                    "as the model has it: a number or condition of the samples' values (" + read +
                        ") decides for all in a micro-batch");
  std::string layers;
  for (const Finding& finding : examination.findings) {
    if (finding.trait == Trait::validates_by_batch) layers += (layers.empty() ? "" : ", ") + finding.layer;
  }
  if (!layers.empty())
    events.fallback(
        "validation by running statistics, whatever the plan",
        "by those of each micro-batch: the BatchNorm " + layers + " has none of its own (track_running_stats = False)");
}

}  // namespace

Examination examine_for_all(const Configuration& configuration, const Dataset& data, comm::Communicator& control) {
  std::string text;
  agree_on_rank_0(control, [&] { text = examine(configuration, data).to_text(); });
  return Examination::from_text(comm::broadcast_text(control, text, 0));
}

void warn_of_unexamined(const Examination& examination, EventStream& events) {
  if (!examination.examined)
    events.warn("what the model keeps and draws in a forward is not known, since one on the host failed: " +
                examination.why_not);
}

void refuse_or_say(const Examination& examination, const Configuration& configuration, comm::Communicator& control,
                   EventStream& events) {
  const bool exact = configuration.batch_norm.mode == BatchNormMode::exact;
  std::string refused;
  for (const std::string& reason :
       reasons_not_to_train(examination, exact ? CountersRun::once_per_step : CountersRun::once_per_micro_batch))
    refused +=
        (refused.empty() ? "the model cannot be trained in micro-batches as in one large batch: " : "\n  ") + reason;
  if (!refused.empty()) throw AgreedError(ExitCode::user_error, refused);
  agree_on_rank_0(control, [&] { say_what_depends_on_micro_batches(examination, events); });
  const std::string drawn = places_of(Trait::draws_unkeyed, examination);
  if (drawn.empty()) return;
  at::manual_seed(mix_bits(configuration.run.seed ^ mix_bits(static_cast<std::uint64_t>(control.rank()) + 1)));
  agree_on_rank_0(control, [&] {
    events.fallback("everything random keyed by sample",
                    "drawn from each rank's own generator, so by another plan or other ranks otherwise: " + drawn +
                        " (dropout in all its forms is keyed)");
  });
}

void settle_padding(const Configuration& configuration, const Dataset& data, Replica& replica,
                    comm::Communicator& control, EventStream& events) {
  const auto lengths = data.lengths();
  if (lengths.empty() || std::ranges::min(lengths) == std::ranges::max(lengths)) return;
  int own = 0;
  agree_on_rank_0(control, [&] { own = padding_needed(configuration, data) == Padding::micro_batch ? 1 : 0; });
  control.broadcast(&own, sizeof(own), 0);
  if (own != 0) {
    replica.padding = Padding::micro_batch;
  } else {
    events.info(
        "data.lengths: what the model makes of a sample depends on its padding, so each is padded to the longest of "
        "its global batch, not of its micro-batch");
  }
}

void warn_of_short_parameters(const PrecisionConfiguration& precision, EventStream& events) {
  if (precision.master_weights) return;
  events.warn(std::string("16-bit parameters without master weights are likely to end in NaN: an update below ") +
              (precision.parameters == Precision::float16
                   ? "1/2048 of a weight is lost, a square below 6e-8 becomes 0 in Adam's second moment, which then "
                     "divides, and a sum over a batch ends at 65504"
                   : "1/256 of a weight is lost, in the sums of gradients and moments too") +
              ": write precision.master_weights = true, unless that is what is to be seen");
}

}  // namespace onebatch
