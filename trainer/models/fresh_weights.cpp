#include "trainer/models/fresh_weights.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/mix_bits.hpp"
#include "trainer/base/name_patterns.hpp"
#include "trainer/base/shape_text.hpp"
#include "trainer/io/checksum.hpp"
#include "trainer/models/layer_calls.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace onebatch {
namespace {

struct Fresh {
  bool operator==(const Fresh&) const = default;

  enum class Kind { uniform, normal, constant } kind = Kind::constant;
  double number = 0.0;  // the bound, the deviation or the value
  std::optional<std::int64_t> zero_row = std::nullopt;
};

Fresh constant(double value) {
  return {Fresh::Kind::constant, value};
}

Fresh uniform(double bound) {
  return {Fresh::Kind::uniform, bound};
}

// PyTorch's _calculate_fan_in_and_fan_out, also of transposed convolutions.
Fresh by_fan_in(const at::Tensor& weight) {
  const std::int64_t fan_in = weight.numel() / std::max<std::int64_t>(weight.size(0), 1);
  return uniform(fan_in > 0 ? 1.0 / std::sqrt(static_cast<double>(fan_in)) : 0.0);
}

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [&](const char* one) { return name == std::string("aten::") + one; });
}

// Of Linear and convolutions: the bias by its weight.
std::optional<Fresh> of_weight(const LayerCall& call, const ReadTensor& read, const char* weight, const char* bias,
                               bool transposed) {
  const ReadTensor* found = call.find(weight);
  if (found == nullptr || found->transposed != transposed || found->tensor.dim() < 2) return std::nullopt;
  if (read.argument != weight && read.argument != bias) return std::nullopt;
  if (call.name == "aten::bilinear") return uniform(1.0 / std::sqrt(static_cast<double>(found->tensor.size(1))));
  return by_fan_in(found->tensor);
}

std::optional<Fresh> of_norm(const ReadTensor& read) {
  if (read.argument == "weight" || read.argument == "running_var") return constant(1.0);
  if (read.argument == "bias" || read.argument == "running_mean") return constant(0.0);
  return std::nullopt;
}

// Of LSTM, GRU and RNN, whose first matrix has a row for each gate of each hidden number.
std::optional<Fresh> of_recurrent(const LayerCall& call, const ReadTensor& read, std::int64_t gates) {
  const auto is_weight = [](const ReadTensor& one) {
    return one.argument == "params" || one.argument.starts_with("w_") || one.argument.starts_with("b_");
  };
  const auto first = std::ranges::find_if(
      call.reads, [&](const ReadTensor& one) { return is_weight(one) && one.tensor.dim() == 2 && !one.transposed; });
  if (!is_weight(read) || first == call.reads.end() || first->tensor.size(0) == 0) return std::nullopt;
  return uniform(1.0 / std::sqrt(static_cast<double>(first->tensor.size(0)) / static_cast<double>(gates)));
}

// What the layer begins the tensor with that it reads there; none: the operator is of no layer of PyTorch.
std::optional<Fresh> fresh_in(const LayerCall& call, const ReadTensor& read) {
  const std::string& name = call.name;
  if (is_one_of(name, {"linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
                       "conv_transpose3d", "convolution", "_convolution", "bilinear"}))
    return of_weight(call, read, "weight", "bias", false);
  if (is_one_of(name, {"addmm"})) return of_weight(call, read, "mat2", "self", true);
  if (is_one_of(name, {"mm"})) return of_weight(call, read, "mat2", "", true);
  if (is_one_of(name, {"matmul"})) return of_weight(call, read, "other", "", true);
  if (is_one_of(name, {"embedding", "embedding_bag", "_embedding_bag"}) && read.argument == "weight")
    return Fresh{Fresh::Kind::normal, 1.0, call.padding_index};
  if (is_one_of(name, {"batch_norm", "native_batch_norm", "_batch_norm_impl_index", "layer_norm", "native_layer_norm",
                       "group_norm", "native_group_norm", "instance_norm", "rms_norm"}))
    return of_norm(read);
  if (is_one_of(name, {"prelu", "_prelu_kernel"}) && read.argument == "weight") return constant(0.25);
  if (is_one_of(name, {"lstm", "lstm_cell"})) return of_recurrent(call, read, 4);
  if (is_one_of(name, {"gru", "gru_cell"})) return of_recurrent(call, read, 3);
  if (is_one_of(name, {"rnn_tanh", "rnn_relu", "rnn_tanh_cell", "rnn_relu_cell"})) return of_recurrent(call, read, 1);
  return std::nullopt;
}

std::string last_part(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

class Rules {
 public:
  explicit Rules(const Model& model, std::vector<LayerCall> calls) : calls_(std::move(calls)) {
    for (const NamedTensor& one : state_of(model)) names_.insert(one.name);
    for (const std::string& name : model.running_statistics()) statistics_.insert(name);
  }

  // None: `why` says so.
  std::optional<Fresh> of(const NamedTensor& one, std::string& why) const {
    if (const auto known = of_attention(one)) return known;
    if (statistics_.contains(one.name)) {
      const auto read = read_of(one, why);
      return read ? read : constant(last_part(one.name) == "running_var" ? 1.0 : 0.0);
    }
    return read_of(one, why);
  }

 private:
  // MultiheadAttention's are read as if they were Linear's.
  std::optional<Fresh> of_attention(const NamedTensor& one) const {
    static constexpr std::array k_projections = {"in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"};
    const std::string own = last_part(one.name);
    if (std::ranges::find(k_projections, own) != k_projections.end() && one.tensor.dim() == 2)  // xavier_uniform
      return uniform(std::sqrt(6.0 / static_cast<double>(one.tensor.size(0) + one.tensor.size(1))));
    if (own == "in_proj_bias") return constant(0.0);
    const std::string outer = one.name.substr(0, one.name.rfind("out_proj.bias"));
    const bool has_projections = names_.contains(outer + "in_proj_weight") || names_.contains(outer + "q_proj_weight");
    if (one.name.ends_with("out_proj.bias") && has_projections) return constant(0.0);
    return std::nullopt;
  }

  std::optional<Fresh> read_of(const NamedTensor& one, std::string& why) const {
    std::optional<Fresh> found;
    std::vector<std::string> readers;
    for (const LayerCall& call : calls_) {
      for (const ReadTensor& read : call.reads) {
        if (!read.tensor.is_same(one.tensor)) continue;
        const auto fresh = fresh_in(call, read);
        if (std::ranges::find(readers, call.name) == readers.end()) readers.push_back(call.name);
        if (!fresh || fresh == found) continue;
        if (found) {
          why = "it is of layers that begin it differently (" + listed(readers) + ")";
          return std::nullopt;
        }
        found = fresh;
      }
    }
    why = readers.empty() ? "no operator is seen to read it" : "it is read by " + listed(readers);
    return found;
  }

  std::vector<LayerCall> calls_;
  std::set<std::string> names_;
  std::set<std::string> statistics_;
};

double between_0_and_1(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

// The same numbers on every rank, in whatever type and order in memory the tensor is.
void draw(const at::Tensor& tensor, const std::string& name, const Fresh& fresh, std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  if (fresh.kind == Fresh::Kind::constant) {
    tensor.fill_(fresh.number);
    return;
  }
  const std::uint64_t key = mix_bits(mix_bits(seed) ^ checksum_of_bytes(std::as_bytes(std::span(name))).low);
  const at::Tensor drawn = at::empty(tensor.sizes(), at::TensorOptions().dtype(at::kDouble));
  auto* numbers = drawn.mutable_data_ptr<double>();
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(drawn.numel()); ++i) {
    const double one = between_0_and_1(mix_bits(key + 2 * i));
    // Box and Muller's.
    numbers[i] = fresh.kind == Fresh::Kind::uniform
                     ? fresh.number * (2.0 * one - 1.0)
                     : fresh.number * std::sqrt(-2.0 * std::log1p(-one)) *
                           std::cos(2.0 * std::numbers::pi * between_0_and_1(mix_bits(key + 2 * i + 1)));
  }
  if (fresh.zero_row && *fresh.zero_row >= 0 && *fresh.zero_row < drawn.size(0)) drawn[*fresh.zero_row].zero_();
  tensor.copy_(drawn);
}

}  // namespace

void reinitialize(Model& model, const TensorSet& tensors, std::uint64_t seed) {
  auto calls = model.layer_calls();
  if (!calls || tensors.empty()) return;
  const Rules rules(model, std::move(*calls));
  const std::vector<NamedTensor> parameters = model.parameters();
  const std::vector<std::string> statistics = model.running_statistics();
  std::string unknown;
  for (const NamedTensor& one : state_of(model)) {
    if (!tensors.contains(one.tensor.unsafeGetTensorImpl())) continue;
    const bool is_buffer =
        std::ranges::none_of(parameters, [&](const NamedTensor& other) { return other.tensor.is_same(one.tensor); });
    if (is_buffer && std::ranges::find(statistics, one.name) == statistics.end()) continue;
    std::string why;
    if (const auto fresh = rules.of(one, why))
      draw(one.tensor, one.name, *fresh, seed);
    else
      unknown += "\n  " + one.name + " " + shape_text(one.tensor.sizes()) + ": " + why;
  }
  if (unknown.empty()) return;
  throw UserError("model.reinitialize: how PyTorch begins these cannot be told from the program:" + unknown +
                  "\ngive them their new values in Python, before the program is saved, and leave them out of the "
                  "patterns");
}

}  // namespace onebatch
