// Contradictions: values that are each allowed, but not together.
#include "launch/config_loader.hpp"
#include "trainer/gradients/loss_scale.hpp"
#include "trainer/settings/keys.hpp"
#include "trainer/settings/kinds.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace onebatch::launch {
namespace {

class Checker {
 public:
  Checker(const LoadedConfig& loaded, std::string name, int world_size)
      : c_(loaded.configuration), loaded_(loaded), name_(std::move(name)), world_size_(world_size) {}

  std::vector<ConfigMistake> run() {
    check_required();
    check_batch();
    check_kind("data.", c_.data.train);
    if (c_.data.validation && !splits()) check_kind(k_validation, *c_.data.validation);
    check_kind("model.", c_.model);
    check_kind("loss.", c_.loss);
    check_kind("optimizer.", c_.optimizer);
    check_kind("schedule.", c_.schedule);
    check_belongs();
    check_samples();
    check_augmentation();
    check_rates();
    check_validations();
    check_batch_norm();
    check_precision();
    check_bitwise();
    check_weights();
    check_clipping();
    check_devices();
    return mistakes_;
  }

 private:
  static constexpr const char* k_validation = "data.validation.";

  // The validation data are a part of the training data.
  bool splits() const { return c_.data.sampling.validation_fraction > 0.0; }

  bool given(const std::string& key) const { return loaded_.origins.contains(key); }

  // Given, and not what it would be anyway: a run's resolved file names every key.
  bool chosen(const Key& key) const { return given(key.path) && key.show(c_) != key.show(Configuration{}); }
  bool chosen(const std::string& path) const {
    const auto found = std::ranges::find_if(keys_, [&](const Key& known) { return known.path == path; });
    return found != keys_.end() && chosen(*found);
  }

  // A mistake was found where it stands.
  bool is_wrong(const std::string& key) const {
    return std::ranges::any_of(loaded_.wrong,
                               [&](const std::string& one) { return key == one || key.starts_with(one + "."); });
  }

  static std::string in_training(const std::string& validation_key) {
    return "data." + validation_key.substr(std::string_view(k_validation).size());
  }

  // What the validation data inherit is said once, of the training data.
  bool is_said_of_training(const std::string& key) const {
    if (!key.starts_with(k_validation) || given(key)) return false;
    const std::string inherited = in_training(key);
    return is_wrong(inherited) || std::ranges::any_of(mistakes_, [&](const ConfigMistake& mistake) {
             return mistake.message.starts_with(inherited + ": ");
           });
  }

  void complain(const std::string& key, const std::string& message) {
    if (is_wrong(key) || is_said_of_training(key)) return;
    const auto origin = loaded_.origins.find(key);
    mistakes_.push_back(
        {origin == loaded_.origins.end() ? name_ : (origin->second == "command line" ? "--set" : origin->second),
         key + ": " + message, 0});
  }

  void check_required() {
    if (!given("batch.global_batch_size"))
      complain("batch.global_batch_size", "is needed: write how many samples one optimizer step uses over all ranks");
    if (!given("data.kind")) complain("data.kind", "is needed: write " + kind_names<DatasetConfiguration>());
    if (!given("model.kind")) complain("model.kind", "is needed: write " + kind_names<ModelConfiguration>());
    if (!c_.run.epochs && !c_.run.max_steps && !is_wrong("run.max_steps"))
      complain("run.epochs", "is needed, or run.max_steps: how long to train");
  }

  // What the kind of a section has to say of it.
  template <typename Section>
  void check_kind(const std::string& prefix, const Section& section) {
    const Kind<Section>* kind = find_kind<Section>(section.kind);
    if (kind == nullptr || !kind->check || is_missing(prefix + "kind")) return;
    kind->check(section,
                {.configuration = c_,
                 .chosen = [&](const std::string& key) { return chosen(prefix + key); },
                 .complain = [&](const std::string& key, const std::string& words) { complain(prefix + key, words); }});
  }

  // A kind that has to be named and is not, or is none.
  bool is_missing(const std::string& kind) const {
    if (kind.starts_with(k_validation) && !given(kind)) return is_missing(in_training(kind));
    return is_wrong(kind) || ((kind == "data.kind" || kind == "model.kind") && !given(kind));
  }

  // Keys of other kinds than those that are chosen.
  void check_belongs() {
    for (const Key& key : keys_) {
      const std::string section = key.path.substr(0, key.path.rfind('.'));
      const std::string kind = (section == "data.augment" ? "data" : section) + ".kind";
      if (key.about.elsewhere == Elsewhere::ignored || is_in_use(key, c_) || !chosen(key)) continue;
      if (is_missing(kind) || (key.path.starts_with(k_validation) && (splits() || is_as_in_training(key)))) continue;
      complain(key.path, "belongs to " + owners(key, kind) + "; leave it out");
    }
  }

  void check_samples() {
    const SamplingConfiguration& sampling = c_.data.sampling;
    if (!sampling.subset.empty() && sampling.fraction < 1.0)
      complain("data.subset", "stands beside data.fraction: write one of the two");
    if (!sampling.weights.empty() && sampling.order != Sampling::weighted)
      complain("data.sample_weights", "belongs to data.sampling = \"weighted\"; leave it out");
    if (sampling.weights.empty() && sampling.order == Sampling::weighted)
      complain("data.sample_weights", "is needed for data.sampling = \"weighted\": a file, or a tensor's name");
    if (splits()) check_split();
  }

  // A run's resolved file names what is inherited too.
  bool is_as_in_training(const Key& key) const {
    const auto train = std::ranges::find(keys_, in_training(key.path), &Key::path);
    return train == keys_.end() || train->show(c_) == key.show(c_);
  }

  // Whatever else of the validation data is given must be the training data's.
  void check_split() {
    for (const Key& key : keys_) {
      const std::string prefix = k_validation;
      if (!key.path.starts_with(prefix) || key.path == prefix + "fraction" || !given(key.path)) continue;
      if (!is_as_in_training(key))
        complain(key.path,
                 "stands beside data.validation.fraction, which takes samples of the training data: write "
                 "one of the two");
    }
  }

  // Where data.kind has these keys; check_belongs() says where it has not.
  void check_augmentation() {
    const AugmentConfiguration& augment = c_.data.augment;
    for (const Key& key : keys_) {
      if (!key.path.starts_with("data.augment.") || !is_in_use(key, c_) || !chosen(key)) continue;
      const std::string& name = key.about.name;
      if ((name == "crop_scale" || name == "crop_ratio") && !augment.random_resized_crop)
        complain(key.path, "belongs to data.augment.random_resized_crop = true; leave it out");
      if (name == "rand_augment_magnitude" && augment.rand_augment_ops == 0)
        complain(key.path, "belongs to data.augment.rand_augment_ops = 1 or more; leave it out");
    }
  }

  void check_rates() {
    std::string first;
    for (const std::string key : {"schedule.warmup_steps", "schedule.warmup_epochs", "schedule.warmup_fraction"}) {
      if (!chosen(key)) continue;
      if (!first.empty()) complain(key, "stands beside " + first + ": write one way to say how long it takes");
      first = key;
    }
    if (chosen("optimizer.lr_batch_size") && c_.optimizer.lr_scaling == LrScaling::none)
      complain("optimizer.lr_batch_size",
               "belongs to optimizer.lr_scaling: write that too, as \"linear\", or leave it out");
    if (c_.optimizer.lr == 0.0 && std::ranges::any_of(c_.optimizer.groups, [](const ParameterGroup& group) {
          return group.lr.value_or(0.0) > 0.0;
        }))
      complain(
          "optimizer.lr",
          "is 0, and a group's own lr follows the schedule in proportion to it, so nothing would be trained: write "
          "a rate above 0, and {match = \"*\", lr = 0} as the last group, or name in model.freeze what is to stay");
  }

  void check_validations() {
    check_watched("run.early_stopping.", c_.run.early_stopping.watched, {"mode", "patience", "min_delta"});
    check_watched("checkpoint.keep_best.", c_.checkpoint.keep_best, {"mode"});
    if (c_.data.validation) return;
    for (const std::string key :
         {"run.validate_every_steps", "run.val_first", "run.early_stopping.metric", "checkpoint.keep_best.metric"}) {
      if (chosen(key))
        complain(key,
                 "needs validation data: write [data.validation], with fraction = 0.1 for a part of the training "
                 "data, or leave it out");
    }
  }

  void check_watched(const std::string& prefix, const WatchedMetric& watched, const std::vector<std::string>& others) {
    for (const std::string& other : others) {
      if (watched.metric.empty() && chosen(prefix + other))
        complain(prefix + other, "belongs to " + prefix + "metric: write which number of the validation, as \"loss\"");
    }
  }

  static std::string owners(const Key& key, const std::string& kind) {
    std::string names;
    for (const std::string& name : key.kinds)
      names += fmt::format("{}\"{}\"", names.empty() ? kind + " = " : " or ", name);
    return names;
  }

  void check_bitwise() {
    if (c_.run.deterministic != Determinism::bitwise) return;
    if (c_.batch.micro_batch_size.size() != 1)
      complain("run.deterministic",
               "\"bitwise\" needs batch.micro_batch_size = n: the samples of every kernel call, on every rank");
    if (c_.batch.gradient_accumulation_steps)
      complain("batch.gradient_accumulation_steps",
               "stands beside run.deterministic = \"bitwise\", which plans by the call: leave it out");
    if (c_.comm.reduce_dtype != ReduceType::parameters)
      complain("comm.reduce_dtype", "run.deterministic = \"bitwise\" reduces exact sums; leave it out");
  }

  void check_precision() {
    const PrecisionConfiguration& precision = c_.precision;
    const auto is_short = [](Precision one) { return one == Precision::bfloat16 || one == Precision::float16; };
    const bool autocast = is_short(precision.compute) && precision.parameters == Precision::float32;
    if (precision.compute != precision.parameters && !autocast)
      complain("precision.compute",
               "must be the same as precision.parameters, or \"bfloat16\" or \"float16\" with parameters in "
               "\"float32\" (autocast)");
    if (chosen("precision.master_weights") && !is_short(precision.parameters))
      complain("precision.master_weights",
               "belongs to precision.parameters = \"float16\" or \"bfloat16\"; leave it out");
    for (const char* key : {"precision.loss_scale", "precision.loss_scale_growth_steps"}) {
      if (chosen(key) && !uses_float16(precision)) complain(key, "belongs to \"float16\"; leave it out");
    }
    if (precision.cudnn_benchmark && c_.run.deterministic != Determinism::off)
      complain("precision.cudnn_benchmark",
               "stands beside run.deterministic, which needs the same algorithms every time: leave it out");
    const bool narrows = is_short(precision.parameters) && !precision.master_weights;
    if (narrows && c_.comm.reduce_dtype != ReduceType::parameters)
      complain("comm.reduce_dtype", "gradients without master weights are summed over ranks in float32; leave it out");
  }

  void check_batch() {
    const auto& batch = c_.batch;
    const auto listed = static_cast<int>(batch.micro_batch_size.size());
    if (listed > 1 && world_size_ > 0 && listed != world_size_) {
      complain("batch.micro_batch_size",
               fmt::format("lists {} sizes, but {} rank(s) were started: write one per rank", listed, world_size_));
    }
    if (batch.micro_batch_size.empty() || !batch.gradient_accumulation_steps || world_size_ == 0) return;
    std::int64_t product = 0;
    for (int rank = 0; rank < world_size_; ++rank)
      product += batch.micro_batch_size[listed == 1 ? 0 : static_cast<std::size_t>(rank % listed)] *
                 *batch.gradient_accumulation_steps;
    if (product != batch.global_batch_size && (listed == 1 || listed == world_size_)) {
      complain("batch.global_batch_size",
               fmt::format("is {}, but micro_batch_size x gradient_accumulation_steps over {} rank(s) is {}: write "
                           "that, or leave one of the three to \"auto\"",
                           batch.global_batch_size, world_size_, product));
    }
  }

  void check_batch_norm() {
    if (c_.batch_norm.frozen && c_.batch_norm.mode != BatchNormMode::local)
      complain("batch_norm.mode", "has no meaning beside batch_norm.frozen = true: leave one of the two out");
    if (c_.memory.recompute != Recompute::off && c_.batch_norm.mode == BatchNormMode::sync)
      complain("memory.recompute",
               "does not go with batch_norm.mode = \"sync\" in this version: write \"off\", or mode = \"exact\"");
    if (c_.memory.recompute == Recompute::on && c_.batch_norm.mode == BatchNormMode::exact)
      complain("memory.recompute", "exact BatchNorm computes again from BatchNorm to BatchNorm: leave the number out");
  }

  void check_clipping() {
    const auto& optimizer = c_.optimizer;
    if (optimizer.max_grad_norm && optimizer.max_grad_value)
      complain("optimizer.max_grad_value", "stands beside optimizer.max_grad_norm: write one of the two");
  }

  void check_weights() {
    if (!c_.model.weights_prefix.empty() && c_.model.weights.empty())
      complain("model.weights_prefix", "is of names in model.weights: write that, or leave the prefix out");
  }

  void check_devices() {
    if (!c_.simulate.empty() && c_.run.device == DeviceChoice::cuda)
      complain("simulate.devices", "plays devices on the CPU: write run.device = \"cpu\" or leave simulate out");
    if (!c_.simulate.empty() && world_size_ > static_cast<int>(c_.simulate.size())) {
      complain("simulate.devices",
               fmt::format("lists {} device(s), but {} ranks were started: add devices, or start fewer (mpirun -np {})",
                           c_.simulate.size(), world_size_, c_.simulate.size()));
    }
  }

  const Configuration& c_;
  const LoadedConfig& loaded_;
  std::string name_;
  int world_size_;
  const std::vector<Key> keys_ = configuration_keys();
  std::vector<ConfigMistake> mistakes_;
};

}  // namespace

std::vector<ConfigMistake> check_contradictions(const LoadedConfig& loaded, const std::string& name, int world_size) {
  // Of a file that is no TOML nothing is known.
  if (loaded.origins.empty() && !loaded.mistakes.empty()) return {};
  return Checker(loaded, name, world_size).run();
}

}  // namespace onebatch::launch
