#include "trainer/models/keyed_recurrent.hpp"

#include "trainer/models/keyed_randomness.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <torch/library.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace onebatch {
namespace {

struct Layers {
  bool has_biases = true;
  std::int64_t count = 1;
  double dropout = 0.0;
  bool bidirectional = false;
  bool batch_first = false;
};

// The outputs, then the final states: h, and c where it has one.
using Made = std::vector<at::Tensor>;
using OneLayer =
    std::function<Made(const at::Tensor& inputs, const std::vector<at::Tensor>& state, at::TensorList weights)>;

// [T, N, F] or, with the batch first, [N, T, F].
at::Tensor dropped(const at::Tensor& outputs, const Layers& layers) {
  std::vector<std::int64_t> sizes = outputs.sizes().vec();
  if (!layers.batch_first) std::swap(sizes[0], sizes[1]);
  const double kept = layers.dropout < 1.0 ? 1.0 / (1.0 - layers.dropout) : 0.0;
  const at::Tensor noise = keyed_noise(outputs, sizes, layers.dropout, kept);
  return outputs.mul(layers.batch_first ? noise : noise.transpose(0, 1));
}

Made layer_by_layer(const at::Tensor& inputs, at::TensorList state, at::TensorList weights, const Layers& layers,
                    const OneLayer& one) {
  const std::int64_t directions = layers.bidirectional ? 2 : 1;
  const std::size_t weights_of_one = weights.size() / static_cast<std::size_t>(layers.count);
  std::vector<std::vector<at::Tensor>> final_states(state.size());
  at::Tensor x = inputs;
  for (std::int64_t layer = 0; layer < layers.count; ++layer) {
    std::vector<at::Tensor> own;
    for (const at::Tensor& part : state) own.push_back(part.narrow(0, layer * directions, directions));
    const Made made = one(x, own, weights.slice(static_cast<std::size_t>(layer) * weights_of_one, weights_of_one));
    x = layer + 1 < layers.count ? dropped(made[0], layers) : made[0];
    for (std::size_t i = 0; i < state.size(); ++i) final_states[i].push_back(made[i + 1]);
  }
  Made result = {x};
  for (const auto& parts : final_states) result.push_back(at::cat(parts));
  return result;
}

bool drops(const Layers& layers, bool train) {
  return train && layers.count > 1 && draws_keyed(layers.dropout);
}

void refuse_packed(const char* name, const Layers& layers, bool train) {
  if (!drops(layers, train)) return;
  refuse_to_draw(
      std::string(name) +
      " of packed sequences with dropout between its layers: its mask would depend on how the batch is split; give it "
      "padded sequences (data.lengths cuts them), or write dropout = 0 and nn.Dropout before or after it");
}

using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using TwoTensors = std::tuple<at::Tensor, at::Tensor>;

ThreeTensors lstm(const at::Tensor& inputs, at::TensorList state, at::TensorList weights, bool has_biases,
                  std::int64_t num_layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  const Layers layers{has_biases, num_layers, dropout, bidirectional, batch_first};
  if (!drops(layers, train))
    return at::native::lstm(inputs, state, weights, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  const auto one = [&](const at::Tensor& x, const std::vector<at::Tensor>& own, at::TensorList its) -> Made {
    auto [y, h, c] = at::native::lstm(x, own, its, has_biases, 1, 0.0, train, bidirectional, batch_first);
    return {y, h, c};
  };
  const Made made = layer_by_layer(inputs, state, weights, layers, one);
  return {made[0], made[1], made[2]};
}

ThreeTensors packed_lstm(const at::Tensor& inputs, const at::Tensor& batch_sizes, at::TensorList state,
                         at::TensorList weights, bool has_biases, std::int64_t num_layers, double dropout, bool train,
                         bool bidirectional) {
  refuse_packed("lstm", {has_biases, num_layers, dropout, bidirectional, false}, train);
  return at::native::lstm(inputs, batch_sizes, state, weights, has_biases, num_layers, dropout, train, bidirectional);
}

using Padded = TwoTensors (*)(const at::Tensor&, const at::Tensor&, at::TensorList, bool, std::int64_t, double, bool,
                              bool, bool);
using Packed = TwoTensors (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&, at::TensorList, bool,
                              std::int64_t, double, bool, bool);

template <Padded Own>
TwoTensors recurrent(const at::Tensor& inputs, const at::Tensor& state, at::TensorList weights, bool has_biases,
                     std::int64_t num_layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  const Layers layers{has_biases, num_layers, dropout, bidirectional, batch_first};
  if (!drops(layers, train))
    return Own(inputs, state, weights, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  const auto one = [&](const at::Tensor& x, const std::vector<at::Tensor>& own, at::TensorList its) -> Made {
    auto [y, h] = Own(x, own.front(), its, has_biases, 1, 0.0, train, bidirectional, batch_first);
    return {y, h};
  };
  const Made made = layer_by_layer(inputs, state, weights, layers, one);
  return {made[0], made[1]};
}

template <Packed Own>
TwoTensors packed(const at::Tensor& inputs, const at::Tensor& batch_sizes, const at::Tensor& state,
                  at::TensorList weights, bool has_biases, std::int64_t num_layers, double dropout, bool train,
                  bool bidirectional) {
  refuse_packed("a recurrent layer", {has_biases, num_layers, dropout, bidirectional, false}, train);
  return Own(inputs, batch_sizes, state, weights, has_biases, num_layers, dropout, train, bidirectional);
}

}  // namespace

void register_recurrent(torch::Library& library, c10::DispatchKey key) {
  const auto on = [&](auto* kernel) { return torch::dispatch(key, kernel); };
  library.impl("lstm.input", on(&lstm));
  library.impl("lstm.data", on(&packed_lstm));
  library.impl("gru.input", on(&recurrent<static_cast<Padded>(&at::native::gru)>));
  library.impl("gru.data", on(&packed<static_cast<Packed>(&at::native::gru)>));
  library.impl("rnn_tanh.input", on(&recurrent<static_cast<Padded>(&at::native::rnn_tanh)>));
  library.impl("rnn_tanh.data", on(&packed<static_cast<Packed>(&at::native::rnn_tanh)>));
  library.impl("rnn_relu.input", on(&recurrent<static_cast<Padded>(&at::native::rnn_relu)>));
  library.impl("rnn_relu.data", on(&packed<static_cast<Packed>(&at::native::rnn_relu)>));
}

}  // namespace onebatch
