#include "trainer/replica/called_from.hpp"

#include "trainer/graph/examiner.hpp"
#include "trainer/graph/watched_calls.hpp"
#include "trainer/io/named_tensors.hpp"

#include <ATen/core/grad_mode.h>

namespace onebatch {
namespace {

// "upsample_bilinear2d" of "aten::upsample_bilinear2d".
std::string bare(const std::string& name) {
  const std::size_t colons = name.rfind(':');
  return colons == std::string::npos ? name : name.substr(colons + 1);
}

}  // namespace

std::string called_from(const std::string& kernel, Replica& replica, const Dataset& data,
                        std::span<const std::int64_t> samples) {
  const at::NoGradGuard no_grad;
  const SavedTensors before(replica.model->buffers());
  const Batch batch = replica.load(data, samples).batch;
  Examiner examiner(*replica.model, batch.tensors());
  std::string found;
  std::size_t length = 0;
  const auto record = [&](const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    examiner.record(op, stack);
    const std::string name = bare(op.operator_name().name);
    if (!kernel.starts_with(name) || name.size() <= length) return;
    const auto made = torch::jit::last(*stack, op.schema().returns().size());
    if (made.empty() || !made.front().isTensor()) return;
    const Examiner::Place place = examiner.maker_of(made.front().toTensor());
    found = place.op + (place.layer.empty() ? "" : ", after " + place.layer);
    length = name.size();
  };
  try {
    watch_calls(record, [&] { replica.forward(batch, {replica.seed, 0, samples}); });
  } catch (const std::exception&) {
    // What it was looked for in fails here too: what was seen until then is known.
  }
  before.restore();
  return found;
}

}  // namespace onebatch
