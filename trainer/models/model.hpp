// A model as the trainer sees it: a forward function over named tensors. C++ and TorchScript modules look alike.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/io/named_tensors.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace onebatch {

struct LayerCall;

/// Something that a name stands for, as text.
struct NamedText {
  std::string name;
  std::string text;
};

/// What a forward may depend on beside its inputs: enough to draw the same random numbers for a sample whatever the
/// plan.
struct ForwardContext {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::span<const std::int64_t> samples;  // the global sample index of each row of the inputs
  mutable at::Tensor key = {};  // noise_key() where the model computes; undefined: until something draws by it
};

enum class Phase { training, evaluation };

class Model {
 public:
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;

  /// Inputs [N, ...] on the model's device, as many as it takes; returns what it returns: outputs [N, ..., num_classes]
  /// alone, or, where it computes its loss itself, the loss's sum and weight, and what else is to live as long as they
  /// do.
  virtual std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, const ForwardContext& context) = 0;
  /// Of one input, one output.
  at::Tensor forward(const at::Tensor& inputs, const ForwardContext& context) { return run({inputs}, context).front(); }
  /// The live tensors, in one order that is the same on every rank.
  /// Each is there once: what is shared under several names has its first.
  [[nodiscard]] virtual std::vector<NamedTensor> parameters() const = 0;
  [[nodiscard]] virtual std::vector<NamedTensor> buffers() const = 0;
  /// What a checkpoint holds, as PyTorch's state_dict: all names of what is shared, and no buffer that is not
  /// persistent.
  [[nodiscard]] virtual std::vector<NamedTensor> state_dict() const;
  /// Tells its computation from another's, whatever the weights, where a file says it; empty: the configuration does.
  [[nodiscard]] virtual std::string program_digest() const { return {}; }
  /// Tensors that its code holds beside them since before its first forward, as TorchScript's does; none: it is C++.
  [[nodiscard]] virtual std::optional<std::vector<at::Tensor>> literals() const { return std::nullopt; }
  /// What else it holds that a forward could change, as texts that are others where the values are.
  [[nodiscard]] virtual std::vector<NamedText> attributes() const { return {}; }
  /// What its operators read of its tensors, where its weights come with a file; none: it makes them of the seed.
  [[nodiscard]] virtual std::optional<std::vector<LayerCall>> layer_calls() const;
  virtual void set_phase(Phase phase) = 0;
  /// What is floating-point becomes `type`, in BatchNorm layers `batch_norm_type`.
  virtual void move_to(c10::Device device, at::ScalarType type, at::ScalarType batch_norm_type) = 0;
  /// Names of BatchNorm layers that use the statistics of each micro-batch when training.
  [[nodiscard]] virtual std::vector<std::string> batch_norm_layers() const = 0;
  /// Names of the buffers that are BatchNorm's running statistics: means, variances and counts of batches. No other
  /// buffer is averaged over ranks, or may differ between them.
  [[nodiscard]] virtual std::vector<std::string> running_statistics() const = 0;
};

/// Parameters and buffers, each tensor once.
std::vector<NamedTensor> state_of(const Model& model);

/// Throws UserError that names what a checkpoint has to hold and could not, or a parameter that cannot be
/// trained.
void check_savable(const Model& model);

/// Of several outputs the one that the loss takes, or all that there are, to predict with.
enum class Returned { what_trains, everything };

struct ModelRequest {
  ModelConfiguration configuration;
  std::vector<std::int64_t> sample_shape;  // of the data: [C, H, W] or [D]
  std::int64_t num_classes = 0;            // of the data; the configuration's wins where it is larger
  bool freeze_batch_norm = false;
  bool returns_loss = false;  // torchscript: the loss's sum and weight
  std::uint64_t seed = 1;     // of the initial weights
  Returned returned = Returned::what_trains;
};

/// On the CPU, float32, initialised as PyTorch would from the seed, or as the configuration says otherwise. Throws
/// UserError where data and model do not fit together.
std::unique_ptr<Model> make_model(const ModelRequest& request);

}  // namespace onebatch
