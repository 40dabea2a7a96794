#include "trainer/verify/mixing_operator.hpp"

#include "trainer/device/generators.hpp"
#include "trainer/graph/watched_calls.hpp"

#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <unordered_map>

namespace onebatch {
namespace {

constexpr double k_same = 1e-5;  // relative; rounding is below it

struct Seen {
  std::string place;
  std::vector<at::Tensor> results;
  bool draws = false;
};

std::vector<Seen> calls_of(ReferenceModel& model, const Group& samples, std::int64_t step) {
  std::unordered_map<const c10::TensorImpl*, std::string> names;
  for (const auto& tensors : {model.model().parameters(), model.model().buffers()}) {
    for (const auto& [name, tensor] : tensors)
      names.emplace(tensor.unsafeGetTensorImpl(), name.substr(0, name.rfind('.')));
  }
  std::vector<Seen> seen;
  std::string last;
  const auto record = [&](const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    for_each_tensor(torch::jit::last(*stack, op.schema().arguments().size()), [&](const at::Tensor& tensor) {
      if (const auto name = names.find(tensor.unsafeGetTensorImpl()); name != names.end()) last = name->second;
    });
    const at::Tensor generator = host_generator_state();
    op.callBoxed(stack);
    Seen call{op.operator_name().name + (last.empty() ? " at the model's beginning" : ", after " + last),
              {},
              !host_generator_state().equal(generator)};
    const bool is_made_up =
        op.operator_name().name.starts_with("aten::empty") || op.operator_name().name.starts_with("aten::new_empty");
    for_each_tensor(torch::jit::last(*stack, op.schema().returns().size()), [&](const at::Tensor& tensor) {
      if (!is_made_up && !tensor.is_sparse() && tensor.layout() == at::kStrided)
        call.results.push_back(tensor.detach().clone());
    });
    seen.push_back(std::move(call));
  };
  watch_calls(record, [&] { model.forward(samples, step); });
  return seen;
}

// The part of `whole` that one sample has, by the one dimension that is `times` as long; undefined where there is none
// such.
at::Tensor first_part(const at::Tensor& whole, const at::Tensor& alone, std::int64_t times) {
  if (whole.dim() != alone.dim()) return {};
  std::int64_t longer = -1;
  for (std::int64_t d = 0; d < whole.dim(); ++d) {
    if (whole.size(d) == alone.size(d)) continue;
    if (longer >= 0 || whole.size(d) != times * alone.size(d)) return {};
    longer = d;
  }
  return longer < 0 ? whole : whole.narrow(longer, 0, alone.size(longer));
}

bool are_alike(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_floating_point() && !a.is_complex()) return a.equal(b);
  const at::Tensor x = as_numbers(a);
  const at::Tensor y = as_numbers(b);
  if (x.equal(y)) return true;
  const double error = at::linalg_vector_norm(x.sub(y)).item<double>();
  const double size = at::linalg_vector_norm(y).item<double>();
  return error <= k_same * size || !std::isfinite(error);
}

}  // namespace

std::string first_drawing_operator(ReferenceModel& model, const Group& samples, std::int64_t step) {
  for (const Seen& call : calls_of(model, samples, step)) {
    if (call.draws) return call.place;
  }
  return {};
}

std::string first_mixing_operator(ReferenceModel& model, const Group& samples, std::int64_t step) {
  const auto times = static_cast<std::int64_t>(samples.size());
  const std::vector<Seen> alone = calls_of(model, {samples.front()}, step);
  const std::vector<Seen> together = calls_of(model, samples, step);
  for (std::size_t i = 0; i < std::min(alone.size(), together.size()); ++i) {
    if (alone[i].place != together[i].place) return together[i].place + " (another way through the code)";
    for (std::size_t k = 0; k < std::min(alone[i].results.size(), together[i].results.size()); ++k) {
      const at::Tensor part = first_part(together[i].results[k], alone[i].results[k], times);
      if (part.defined() && !are_alike(part, alone[i].results[k])) return together[i].place;
    }
  }
  return {};
}

at::ScalarType shortest_type(ReferenceModel& model, const Group& samples, std::int64_t step) {
  at::ScalarType shortest = at::kDouble;
  for (const Seen& call : calls_of(model, samples, step)) {
    for (const at::Tensor& result : call.results) {
      if ((result.is_floating_point() || result.is_complex()) &&
          unit_roundoff(result.scalar_type()) > unit_roundoff(shortest))
        shortest = result.scalar_type();
    }
  }
  return shortest;
}

double roundoff_inside(const ReferenceParts& parts, const Weights& weights) {
  const Group few = {0, std::min<std::int64_t>(1, parts.data.size() - 1)};
  try {
    ReferenceModel model(parts, {c10::Device(c10::kCPU), at::kDouble, BatchNorms::frozen}, weights);
    return std::min(k_float32_roundoff, unit_roundoff(shortest_type(model, few, 0)));
  } catch (const std::exception&) {
    return unit_roundoff(at::kDouble);  // whatever it was stops the reference too, where it matters
  }
}

}  // namespace onebatch
