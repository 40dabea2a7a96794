// Contradictions: values that are each allowed, but not together.
#include "launch/config_keys.hpp"
#include "launch/config_loader.hpp"
#include "trainer/gradients/loss_scale.hpp"
#include "trainer/models/resnet_depth.hpp"

#include <algorithm>

namespace onebatch::launch {
namespace {

class Checker {
 public:
  Checker(const LoadedConfig& loaded, std::string name, int world_size)
      : c_(loaded.configuration), loaded_(loaded), name_(std::move(name)), world_size_(world_size) {}

  std::vector<ConfigMistake> run() {
    check_required();
    check_data();
    check_batch();
    check_model();
    check_loss();
    check_precision();
    check_bitwise();
    check_optimizer();
    check_devices();
    return mistakes_;
  }

 private:
  bool given(const std::string& key) const { return loaded_.origins.contains(key); }

  // Given, and not what it would be anyway: a run's resolved file names every key.
  bool chosen(const std::string& key) const {
    const auto& keys = config_keys();
    const auto found = std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& known) { return known.path == key; });
    return given(key) && found != keys.end() && found->show(c_) != found->show(Configuration{});
  }

  void complain(const std::string& key, const std::string& message) {
    const auto origin = loaded_.origins.find(key);
    mistakes_.push_back(
        {origin == loaded_.origins.end() ? name_ : (origin->second == "command line" ? "--set" : origin->second), key + ": " + message, 0});
  }

  void check_required() {
    if (!given("batch.global_batch_size"))
      complain("batch.global_batch_size", "is needed: write how many samples one optimizer step uses over all ranks");
    if (!given("data.kind")) complain("data.kind", "is needed: write \"idx\" or \"safetensors\" with a path, or \"synthetic\"");
    if (!given("model.kind")) complain("model.kind", "is needed: write \"mlp\", \"resnet\" or \"torchscript\"");
    if (c_.run.epochs && c_.run.max_steps) complain("run.max_steps", "stands beside run.epochs: write one of the two");
    if (!c_.run.epochs && !c_.run.max_steps) complain("run.epochs", "is needed, or run.max_steps: how long to train");
    if (c_.data.train.kind == DataKind::idx && given("data.kind") && c_.data.train.path.empty())
      complain("data.path", "is needed for data.kind = \"idx\": the folder that holds train-images-idx3-ubyte");
  }

  void check_data() {
    const DatasetConfiguration& train = c_.data.train;
    const bool from_file = train.kind == DataKind::safetensors;
    if (from_file && train.path.empty()) complain("data.path", "is needed for data.kind = \"safetensors\": the file");
    if (from_file && c_.data.validation && c_.data.validation->kind == DataKind::safetensors && c_.data.validation->path == train.path)
      complain("data.validation.path", "is the training data's file: write another, or leave [data.validation] out");
    for (const char* key : {"data.inputs", "data.target", "data.weights", "data.lengths"}) {
      if (!from_file && given("data.kind") && chosen(key)) complain(key, "belongs to data.kind = \"safetensors\"; leave it out");
    }
    if (from_file && train.target.empty() && !train.weights.empty()) complain("data.weights", "are the target's: write data.target");
  }

  void check_loss() {
    const LossConfiguration& loss = c_.loss;
    const bool smoothed = chosen("loss.label_smoothing") || chosen("loss.class_weights");
    if (loss.kind == LossKind::mse && smoothed) complain("loss.kind", "\"mse\" takes no label_smoothing and no class_weights");
    if (loss.kind != LossKind::model) return;
    if (smoothed || chosen("loss.ignore_index") || chosen("loss.normalize_by"))
      complain("loss.kind", "\"model\" takes no other key of [loss]: the model computes its loss and its weight");
    if (c_.model.kind != ModelKind::torchscript)
      complain("loss.kind", "\"model\" belongs to model.kind = \"torchscript\": its forward returns the loss's sum and its weight");
  }

  void check_bitwise() {
    if (c_.run.deterministic != Determinism::bitwise) return;
    if (c_.batch.micro_batch_size.size() != 1)
      complain("run.deterministic", "\"bitwise\" needs batch.micro_batch_size = n: the samples of every kernel call, on every rank");
    if (c_.batch.gradient_accumulation_steps)
      complain("batch.gradient_accumulation_steps", "stands beside run.deterministic = \"bitwise\", which plans by the call: leave it out");
    if (c_.comm.reduce_dtype != ReduceType::parameters)
      complain("comm.reduce_dtype", "run.deterministic = \"bitwise\" reduces exact sums; leave it out");
  }

  void check_precision() {
    const PrecisionConfiguration& precision = c_.precision;
    const auto is_short = [](Precision one) { return one == Precision::bfloat16 || one == Precision::float16; };
    const bool autocast = is_short(precision.compute) && precision.parameters == Precision::float32;
    if (precision.compute != precision.parameters && !autocast)
      complain("precision.compute",
               "must be the same as precision.parameters, or \"bfloat16\" or \"float16\" with parameters in \"float32\" (autocast)");
    if (chosen("precision.master_weights") && !is_short(precision.parameters))
      complain("precision.master_weights", "belongs to precision.parameters = \"float16\" or \"bfloat16\"; leave it out");
    for (const char* key : {"precision.loss_scale", "precision.loss_scale_growth_steps"}) {
      if (chosen(key) && !uses_float16(precision)) complain(key, "belongs to \"float16\"; leave it out");
    }
    const bool narrows = is_short(precision.parameters) && !precision.master_weights;
    if (narrows && c_.comm.reduce_dtype != ReduceType::parameters)
      complain("comm.reduce_dtype", "gradients without master weights are summed over ranks in float32; leave it out");
  }

  void check_batch() {
    const auto& batch = c_.batch;
    const auto listed = static_cast<int>(batch.micro_batch_size.size());
    if (listed > 1 && world_size_ > 0 && listed != world_size_) {
      complain("batch.micro_batch_size", "lists " + std::to_string(listed) + " sizes, but " + std::to_string(world_size_) +
                                             " rank(s) were started: write one per rank");
    }
    if (batch.micro_batch_size.empty() || !batch.gradient_accumulation_steps || world_size_ == 0) return;
    std::int64_t product = 0;
    for (int rank = 0; rank < world_size_; ++rank)
      product += batch.micro_batch_size[listed == 1 ? 0 : static_cast<std::size_t>(rank % listed)] * *batch.gradient_accumulation_steps;
    if (product != batch.global_batch_size && (listed == 1 || listed == world_size_)) {
      complain("batch.global_batch_size", "is " + std::to_string(batch.global_batch_size) +
                                              ", but micro_batch_size x gradient_accumulation_steps over " + std::to_string(world_size_) +
                                              " rank(s) is " + std::to_string(product) +
                                              ": write that, or leave one of the three to \"auto\"");
    }
  }

  void check_model() {
    const auto& model = c_.model;
    if (const std::string wrong = wrong_resnet_depth(model); model.kind == ModelKind::resnet && !wrong.empty())
      complain("model.depth", wrong);
    check_belongs(ModelKind::mlp, "mlp", {"model.hidden", "model.dropout"});
    check_belongs(ModelKind::resnet, "resnet", {"model.depth", "model.stem"});
    check_belongs(ModelKind::torchscript, "torchscript", {"model.path"});
    if (model.kind == ModelKind::torchscript && model.path.empty())
      complain("model.path", "is needed for model.kind = \"torchscript\": a file saved in Python by torch.jit.script(model).save(path)");
    if (c_.batch_norm.frozen && c_.batch_norm.mode != BatchNormMode::local)
      complain("batch_norm.mode", "has no meaning beside batch_norm.frozen = true: leave one of the two out");
    if (c_.memory.recompute != Recompute::off && c_.batch_norm.mode == BatchNormMode::sync)
      complain("memory.recompute", "does not go with batch_norm.mode = \"sync\" in this version: write \"off\", or mode = \"exact\"");
    if (c_.memory.recompute == Recompute::on && c_.batch_norm.mode == BatchNormMode::exact)
      complain("memory.recompute", "exact BatchNorm computes again from BatchNorm to BatchNorm: leave the number out");
  }

  void check_belongs(ModelKind kind, const std::string& name, std::initializer_list<const char*> keys) {
    if (c_.model.kind == kind || !given("model.kind")) return;
    for (const char* key : keys) {
      if (chosen(key)) complain(key, "belongs to model.kind = \"" + name + "\"; leave it out");
    }
  }

  void check_optimizer() {
    const auto& optimizer = c_.optimizer;
    if (optimizer.kind == OptimizerKind::sgd) {
      for (const char* key : {"optimizer.betas", "optimizer.eps"}) {
        if (chosen(key)) complain(key, "belongs to \"adam\" and \"adamw\"; leave it out");
      }
      if (optimizer.nesterov && optimizer.momentum == 0.0) complain("optimizer.nesterov", "needs optimizer.momentum above 0");
    } else {
      for (const char* key : {"optimizer.momentum", "optimizer.nesterov"}) {
        if (chosen(key)) complain(key, "belongs to optimizer.kind = \"sgd\"; leave it out");
      }
    }
    if (optimizer.max_grad_norm && optimizer.max_grad_value)
      complain("optimizer.max_grad_value", "stands beside optimizer.max_grad_norm: write one of the two");
    if (c_.schedule.kind == ScheduleKind::step && c_.schedule.step_size == 0)
      complain("schedule.step_size", "is needed for schedule.kind = \"step\"");
  }

  void check_devices() {
    if (!c_.simulate.empty() && c_.run.device == DeviceChoice::cuda)
      complain("simulate.devices", "plays devices on the CPU: write run.device = \"cpu\" or leave simulate out");
    if (!c_.simulate.empty() && world_size_ > static_cast<int>(c_.simulate.size())) {
      complain("simulate.devices", "lists " + std::to_string(c_.simulate.size()) + " device(s), but " + std::to_string(world_size_) +
                                       " ranks were started: add devices, or start fewer (mpirun -np " +
                                       std::to_string(c_.simulate.size()) + ")");
    }
  }

  const Configuration& c_;
  const LoadedConfig& loaded_;
  std::string name_;
  int world_size_;
  std::vector<ConfigMistake> mistakes_;
};

}  // namespace

std::vector<ConfigMistake> check_contradictions(const LoadedConfig& loaded, const std::string& name, int world_size) {
  return Checker(loaded, name, world_size).run();
}

}  // namespace onebatch::launch
