#include "trainer/models/loss.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/shape_text.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/models/class_dim.hpp"

#include <ATen/ops/argmax.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <c10/util/accumulate.h>

#include <algorithm>

namespace onebatch {
namespace {

using Shape = at::IntArrayRef;

std::vector<ClassLayout> layouts_that_fit(Shape outputs, Shape targets) {
  std::vector<ClassLayout> fitting;
  const std::size_t dims = targets.size();
  if (outputs.size() == dims + 1) {
    if (outputs.slice(0, dims) == targets) fitting.push_back(ClassLayout::last);
    if (dims > 1 && outputs[0] == targets[0] && outputs.slice(2) == targets.slice(1))
      fitting.push_back(ClassLayout::second);
  } else if (outputs.size() == 2 && outputs[0] == c10::multiply_integers(targets)) {
    fitting.push_back(ClassLayout::flat);
  }
  return fitting;
}

// And that the user has not ruled out.
std::vector<ClassLayout> layouts_that_fit(Shape outputs, Shape targets, const LossConfiguration& loss) {
  std::vector<ClassLayout> fitting = layouts_that_fit(outputs, targets);
  const std::string& said = k_class_dim(loss);
  if (said == "last") std::erase(fitting, ClassLayout::second);
  if (said == "second") std::erase(fitting, ClassLayout::last);
  return fitting;
}

// A sample of which nothing has a weight is one that was skipped.
double samples_that_count(const at::Tensor& targets, const at::Tensor& weights) {
  if (!weights.defined()) return static_cast<double>(targets.size(0));
  const at::Tensor counts = weights.ne(0);
  return (counts.dim() > 1 ? counts.flatten(1).any(1) : counts).sum().item<double>();
}

// Mixed samples: one row of outputs [N, classes] for two weighted labels [N, 2] each.
bool are_mixed(const at::Tensor& outputs, const at::Tensor& targets, const at::Tensor& weights) {
  return weights.defined() && outputs.dim() == 2 && targets.dim() == 2 && targets.size(1) == 2 &&
         outputs.size(0) == targets.size(0);
}

[[noreturn]] void refuse_shapes(Shape outputs, Shape targets) {
  throw UserError("the model returns " + shape_text(outputs) + " for targets " + shape_text(targets) +
                  ": cross-entropy needs outputs of the targets' shape with the classes last (or second)");
}

[[noreturn]] void refuse_ambiguity(Shape outputs, Shape targets) {
  throw UserError("the model returns " + shape_text(outputs) + " for targets " + shape_text(targets) +
                  ": there are as many classes as positions, so nothing tells whether the classes are last or second. "
                  "Write loss.class_dim = \"last\" (language models, as Hugging Face's) or \"second\" (as PyTorch's "
                  "cross_entropy takes them)");
}

}  // namespace

std::string wrong_label(std::int64_t label, std::int64_t num_classes) {
  if (label < 0)
    return fmt::format(
        "labels are counted from 0; write loss.ignore_index = {} where it is to count for nothing, or mend the data",
        label);
  if (label >= k_most_classes) return "there are 2^31 classes at most; mend the data";
  return fmt::format("there are only {} classes, 0 … {}; write model.num_classes = {} or more, or mend the data",
                     num_classes, num_classes - 1, label + 1);
}

Loss::Loss(const LossConfiguration& configuration, std::int64_t num_classes)
    : configuration_(configuration), kind_(&chosen_kind<LossKind>(configuration)), num_classes_(num_classes) {
  const auto given = static_cast<std::int64_t>(configuration_.class_weights.size());
  if (given != 0 && given != num_classes) {
    throw UserError(fmt::format("loss.class_weights has {} weights, but there are {} classes: write one per class",
                                given, num_classes));
  }
  if (given != 0) class_weights_ = at::tensor(configuration.class_weights, at::kDouble);
}

void Loss::settle(const std::vector<SeenShapes>& seen) {
  std::vector<ClassLayout> fitting = {ClassLayout::last, ClassLayout::second, ClassLayout::flat};
  for (const SeenShapes& one : seen) {
    const auto fits = layouts_that_fit(one.outputs, one.targets, configuration_);
    std::erase_if(fitting,
                  [&](ClassLayout layout) { return std::find(fits.begin(), fits.end(), layout) == fits.end(); });
    if (fitting.empty()) refuse_shapes(one.outputs, one.targets);
  }
  if (fitting.size() > 1) refuse_ambiguity(seen.at(0).outputs, seen.at(0).targets);
  layout_ = fitting.front();
}

std::string Loss::class_dim() const {
  if (!layout_) return k_class_dim(configuration_);
  return *layout_ == ClassLayout::second ? "second" : "last";
}

Loss::ByLabel Loss::by_label(const at::Tensor& outputs, const at::Tensor& targets) const {
  std::vector<ClassLayout> fitting = layouts_that_fit(outputs.sizes(), targets.sizes(), configuration_);
  if (layout_) std::erase_if(fitting, [&](ClassLayout layout) { return layout != *layout_; });
  if (fitting.empty()) refuse_shapes(outputs.sizes(), targets.sizes());
  if (fitting.size() > 1) refuse_ambiguity(outputs.sizes(), targets.sizes());
  const at::Tensor moved = fitting.front() == ClassLayout::second ? outputs.movedim(1, -1) : outputs;
  const at::Tensor rows = moved.dim() == 2 ? moved : moved.flatten(0, -2);
  if (rows.size(1) < num_classes_)
    throw UserError(
        fmt::format("the model returns {} outputs per label, but there are {} classes: use a model of more outputs, or "
                    "mend the data's labels",
                    rows.size(1), num_classes_));
  if (const auto given = std::ssize(configuration_.class_weights); given != 0 && given != rows.size(1))
    throw UserError(
        fmt::format("the model returns {0} outputs per label and loss.class_weights has {1}: write "
                    "model.num_classes = {0} and a weight for each",
                    rows.size(1), given));
  return {rows, targets.dim() == 1 ? targets : targets.flatten()};
}

void Loss::place(c10::Device device, at::ScalarType type) {
  if (!class_weights_.defined() || (device.is_cpu() && type == class_weights_.scalar_type())) return;
  placed_class_weights_ = class_weights_.to(device, type);
}

std::vector<NamedTensor> Loss::constants() const {
  std::vector<NamedTensor> constants;
  if (class_weights_.defined()) constants.push_back({"loss.class_weights", class_weights_});
  if (placed_class_weights_.defined())
    constants.push_back({"loss.class_weights as the outputs", placed_class_weights_});
  return constants;
}

double Loss::weight(const at::Tensor& targets, const at::Tensor& weights) const {
  if (is_classification()) return classification_weight(targets, weights);
  if (weights.defined() && configuration_.normalize_by == NormalizeBy::tokens)
    return weights.sum(at::kDouble).item<double>();
  return samples_that_count(targets, weights);
}

double Loss::classification_weight(const at::Tensor& targets, const at::Tensor& weights) const {
  if (targets.scalar_type() != at::kLong)
    throw UserError(
        "loss.kind = \"cross_entropy\" needs whole numbers as targets: write loss.kind = \"mse\", or other data");
  const at::Tensor own = weights.defined() ? weights.to(at::kDouble).contiguous() : weights;
  const double* own_weight = own.defined() ? own.const_data_ptr<double>() : nullptr;
  const std::int64_t* label = targets.const_data_ptr<std::int64_t>();
  const std::int64_t samples = targets.size(0);
  const std::int64_t labels = samples > 0 ? targets.numel() / samples : 0;  // of each
  double sum = 0.0;
  double counted_samples = 0.0;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    bool counts = false;
    for (std::int64_t i = sample * labels; i < (sample + 1) * labels; ++i) {
      if (label[i] == configuration_.ignore_index) continue;
      if (label[i] < 0 || label[i] >= num_classes_) {
        throw UserError(fmt::format("the data holds the label {}: {}", label[i], wrong_label(label[i], num_classes_)));
      }
      counts = true;
      const double of_class =
          configuration_.class_weights.empty() ? 1.0 : configuration_.class_weights[static_cast<std::size_t>(label[i])];
      sum += of_class * (own_weight != nullptr ? own_weight[i] : 1.0);
    }
    counted_samples += counts ? 1.0 : 0.0;
  }
  return configuration_.normalize_by == NormalizeBy::tokens ? sum : counted_samples;
}

at::Tensor Loss::sum(const at::Tensor& outputs, const at::Tensor& targets, const at::Tensor& weights) const {
  LossTensors tensors{outputs, targets, weights, {}, num_classes_};
  if (is_classification()) {
    const bool mixed = are_mixed(outputs, targets, weights);
    const auto [rows, labels] =
        mixed ? by_label(outputs.unsqueeze(1).expand({-1, 2, -1}).flatten(0, 1), targets.flatten())
              : by_label(outputs, targets);
    tensors.outputs = rows;
    tensors.targets = labels;
    if (weights.defined()) tensors.weights = weights.flatten();
    tensors.class_weights = class_weights_of(outputs);
  }
  return kind_->sum(tensors, configuration_);
}

at::Tensor Loss::class_weights_of(const at::Tensor& outputs) const {
  const at::Tensor& placed = placed_class_weights_;
  if (placed.defined() && placed.device() == outputs.device() && placed.scalar_type() == outputs.scalar_type())
    return placed;
  return class_weights_.defined() ? class_weights_.to(outputs.device(), outputs.scalar_type()) : class_weights_;
}

Loss::Correct Loss::count_correct(const at::Tensor& outputs, const at::Tensor& targets) const {
  const auto [rows, labels] = by_label(outputs, targets);
  const at::Tensor counted = labels.ne(configuration_.ignore_index);
  const at::Tensor hit = rows.argmax(1).eq(labels).logical_and(counted);
  return {hit.sum().item<double>(), counted.sum().item<double>()};
}

}  // namespace onebatch
