#include "launch/config_keys.hpp"

#include "launch/simulate_key.hpp"
#include "launch/special_keys.hpp"

namespace onebatch::launch {
namespace {

// The members of a configuration, as the builders want them.
#define ONEBATCH_FIELD(member) \
  [](auto& c) -> auto& {       \
    return c.member;           \
  }

constexpr std::int64_t k_any = INT64_MAX;

void add(std::vector<ConfigKey>& keys, std::vector<ConfigKey> more) {
  keys.insert(keys.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

std::vector<ConfigKey> run_keys() {
  return {
      text_key("run.name", ONEBATCH_FIELD(run.name)),
      text_key("run.output_dir", ONEBATCH_FIELD(run.output_dir)),
      integer_key("run.seed", 0, k_any, ONEBATCH_FIELD(run.seed)),
      optional_integer_key("run.epochs", 1, "", ONEBATCH_FIELD(run.epochs)),
      optional_integer_key("run.max_steps", 1, "", ONEBATCH_FIELD(run.max_steps)),
      choice_key<DeviceChoice>("run.device", {{"auto", DeviceChoice::automatic}, {"cuda", DeviceChoice::cuda}, {"cpu", DeviceChoice::cpu}},
                               {}, ONEBATCH_FIELD(run.device)),
      deterministic_key()};
}

std::vector<ConfigKey> batch_keys() {
  return {integer_key("batch.global_batch_size", 1, std::int64_t{1} << 40, ONEBATCH_FIELD(batch.global_batch_size)), micro_batch_key(),
          optional_integer_key("batch.gradient_accumulation_steps", 1, "auto", ONEBATCH_FIELD(batch.gradient_accumulation_steps)),
          choice_key<LastBatch>("batch.last_batch", {{"exact", LastBatch::exact}, {"drop", LastBatch::drop}}, {},
                                ONEBATCH_FIELD(batch.last_batch)),
          choice_key<Replan>("batch.replan", {{"auto", Replan::automatic}, {"always", Replan::always}, {"never", Replan::never}}, {},
                             ONEBATCH_FIELD(batch.replan))};
}

template <typename Section>
std::vector<ConfigKey> dataset_keys(const std::string& prefix, Section section) {
  return {choice_key<DataKind>(
              prefix + "kind", {{"idx", DataKind::idx}, {"safetensors", DataKind::safetensors}, {"synthetic", DataKind::synthetic}},
              {"cifar", "image_folder", "tokens"}, [=](auto& c) -> auto& { return section(c).kind; }),
          text_key(
              prefix + "path", [=](auto& c) -> auto& { return section(c).path; }),
          names_key(
              prefix + "inputs", [=](auto& c) -> auto& { return section(c).inputs; }),
          text_key(
              prefix + "target", [=](auto& c) -> auto& { return section(c).target; }),
          text_key(
              prefix + "weights", [=](auto& c) -> auto& { return section(c).weights; }),
          text_key(
              prefix + "lengths", [=](auto& c) -> auto& { return section(c).lengths; }),
          integers_key(
              prefix + "shape", 1, [=](auto& c) -> auto& { return section(c).shape; }),
          integer_key(
              prefix + "num_classes", 1, std::int64_t{1} << 31, [=](auto& c) -> auto& { return section(c).num_classes; }),
          integer_key(
              prefix + "size", 1, std::int64_t{1} << 40, [=](auto& c) -> auto& { return section(c).size; })};
}

// A value that is read makes the section. Where there is none nothing is shown, and showing makes none.
struct ValidationSection {
  DatasetConfiguration& operator()(Configuration& c) const {
    if (!c.data.validation) c.data.validation = c.data.train;
    return *c.data.validation;
  }
  const DatasetConfiguration& operator()(const Configuration& c) const { return c.data.validation.value(); }
};

std::vector<ConfigKey> validation_keys() {
  std::vector<ConfigKey> keys = dataset_keys("data.validation.", ValidationSection{});
  for (ConfigKey& key : keys) {
    key.show = [show = key.show](const Configuration& c) { return c.data.validation ? show(c) : std::string(); };
  }
  return keys;
}

std::vector<ConfigKey> augment_keys() {
  return {integer_key("data.augment.crop_padding", 0, 1 << 16, ONEBATCH_FIELD(data.augment.crop_padding)),
          boolean_key("data.augment.horizontal_flip", ONEBATCH_FIELD(data.augment.horizontal_flip))};
}

std::vector<ConfigKey> model_keys() {
  return {
      choice_key<ModelKind>("model.kind", {{"mlp", ModelKind::mlp}, {"resnet", ModelKind::resnet}, {"torchscript", ModelKind::torchscript}},
                            {"gpt2", "bert", "vit", "plugin"}, ONEBATCH_FIELD(model.kind)),
      text_key("model.path", ONEBATCH_FIELD(model.path)),
      text_key("model.weights", ONEBATCH_FIELD(model.weights)),
      integers_key("model.hidden", 1, ONEBATCH_FIELD(model.hidden)),
      number_key("model.dropout", {0.0, 0.999}, ONEBATCH_FIELD(model.dropout)),
      integer_key("model.depth", 8, 1202, ONEBATCH_FIELD(model.depth)),
      choice_key<ResNetStem>("model.stem", {{"imagenet", ResNetStem::imagenet}, {"cifar", ResNetStem::cifar}}, {},
                             ONEBATCH_FIELD(model.stem)),
      integer_key("model.num_classes", 0, std::int64_t{1} << 31, ONEBATCH_FIELD(model.num_classes)),
      choice_key<LossKind>("loss.kind", {{"cross_entropy", LossKind::cross_entropy}, {"mse", LossKind::mse}, {"model", LossKind::model}},
                           {}, ONEBATCH_FIELD(loss.kind)),
      choice_key<NormalizeBy>("loss.normalize_by", {{"samples", NormalizeBy::samples}, {"tokens", NormalizeBy::tokens}}, {},
                              ONEBATCH_FIELD(loss.normalize_by)),
      number_key("loss.label_smoothing", {0.0, 1.0}, ONEBATCH_FIELD(loss.label_smoothing)),
      integer_key("loss.ignore_index", INT64_MIN, k_any, ONEBATCH_FIELD(loss.ignore_index)),
      numbers_key(
          "loss.class_weights", 0, {0.0}, [](const Configuration& c) { return c.loss.class_weights; },
          [](Configuration& c, const std::vector<double>& values) { c.loss.class_weights = values; })};
}

std::vector<ConfigKey> optimizer_keys() {
  return {choice_key<OptimizerKind>("optimizer.kind",
                                    {{"adamw", OptimizerKind::adamw}, {"adam", OptimizerKind::adam}, {"sgd", OptimizerKind::sgd}}, {},
                                    ONEBATCH_FIELD(optimizer.kind)),
          number_key("optimizer.lr", {0.0}, ONEBATCH_FIELD(optimizer.lr)),
          number_key("optimizer.weight_decay", {0.0}, ONEBATCH_FIELD(optimizer.weight_decay)),
          numbers_key(
              "optimizer.betas", 2, {0.0, 0.9999999},
              [](const Configuration& c) { return std::vector<double>(c.optimizer.betas.begin(), c.optimizer.betas.end()); },
              [](Configuration& c, const std::vector<double>& values) {
                c.optimizer.betas = {values[0], values[1]};
              }),
          number_key("optimizer.eps", {0.0}, ONEBATCH_FIELD(optimizer.eps)),
          number_key("optimizer.momentum", {0.0, 1.0}, ONEBATCH_FIELD(optimizer.momentum)),
          boolean_key("optimizer.nesterov", ONEBATCH_FIELD(optimizer.nesterov)),
          groups_key(),
          number_key("optimizer.max_grad_norm", {0.0, HUGE_VAL, true}, ONEBATCH_FIELD(optimizer.max_grad_norm)),
          number_key("optimizer.max_grad_value", {0.0, HUGE_VAL, true}, ONEBATCH_FIELD(optimizer.max_grad_value)),
          choice_key<ScheduleKind>("schedule.kind",
                                   {{"constant", ScheduleKind::constant},
                                    {"linear", ScheduleKind::linear},
                                    {"cosine", ScheduleKind::cosine},
                                    {"step", ScheduleKind::step}},
                                   {}, ONEBATCH_FIELD(schedule.kind)),
          integer_key("schedule.warmup_steps", 0, k_any, ONEBATCH_FIELD(schedule.warmup_steps)),
          number_key("schedule.final_lr_fraction", {0.0, 1.0}, ONEBATCH_FIELD(schedule.final_lr_fraction)),
          integer_key("schedule.step_size", 0, k_any, ONEBATCH_FIELD(schedule.step_size)),
          number_key("schedule.gamma", {0.0, 1.0}, ONEBATCH_FIELD(schedule.gamma))};
}

std::vector<ConfigKey> arithmetic_keys() {
  const std::vector<Choice<Precision>> precisions = {
      {"float32", Precision::float32}, {"float64", Precision::float64}, {"bfloat16", Precision::bfloat16}, {"float16", Precision::float16}};
  return {
      choice_key<Precision>("precision.compute", precisions, {}, ONEBATCH_FIELD(precision.compute)),
      choice_key<Precision>("precision.parameters", precisions, {}, ONEBATCH_FIELD(precision.parameters)),
      boolean_key("precision.master_weights", ONEBATCH_FIELD(precision.master_weights)),
      loss_scale_key(),
      integer_key("precision.loss_scale_growth_steps", 1, k_any, ONEBATCH_FIELD(precision.loss_scale_growth_steps)),
      boolean_key("precision.allow_tf32", ONEBATCH_FIELD(precision.allow_tf32)),
      choice_key<BatchNormMode>("batch_norm.mode",
                                {{"local", BatchNormMode::local}, {"sync", BatchNormMode::sync}, {"exact", BatchNormMode::exact}}, {},
                                ONEBATCH_FIELD(batch_norm.mode)),
      boolean_key("batch_norm.frozen", ONEBATCH_FIELD(batch_norm.frozen)),
      integer_key("batch_norm.min_micro_batch_size", 1, k_any, ONEBATCH_FIELD(batch_norm.min_micro_batch_size)),
      sync_key("batch_norm.sync_batchnorm"),
      recompute_key(),
      choice_key<Offload>("memory.offload", {{"auto", Offload::automatic}, {"never", Offload::never}}, {}, ONEBATCH_FIELD(memory.offload)),
      choice_key<ProbeMode>("probe.mode", {{"model", ProbeMode::model}, {"power", ProbeMode::power}, {"binsearch", ProbeMode::binsearch}},
                            {}, ONEBATCH_FIELD(probe.mode)),
      number_key("probe.margin", {0.0, 0.9}, ONEBATCH_FIELD(probe.margin)),
      integer_key("probe.init_val", 1, k_any, ONEBATCH_FIELD(probe.init_val)),
      integer_key("probe.max_val", 1, k_any, ONEBATCH_FIELD(probe.max_val)),
      integer_key("probe.max_trials", 2, 1000, ONEBATCH_FIELD(probe.max_trials)),
      integer_key("probe.steps_per_trial", 1, 1000, ONEBATCH_FIELD(probe.steps_per_trial)),
      boolean_key("probe.cache", ONEBATCH_FIELD(probe.cache))};
}

std::vector<ConfigKey> service_keys() {
  return {
      choice_key<CommBackend>("comm.backend", {{"auto", CommBackend::automatic}, {"nccl", CommBackend::nccl}, {"mpi", CommBackend::mpi}},
                              {}, ONEBATCH_FIELD(comm.backend)),
      number_key("comm.bucket_cap_mb", {0.0, 1e6, true}, ONEBATCH_FIELD(comm.bucket_cap_mb)),
      number_key("comm.timeout_seconds", {0.0, 1e9, true}, ONEBATCH_FIELD(comm.timeout_seconds)),
      overlap_key(),
      choice_key<ReduceType>("comm.reduce_dtype", {{"float32", ReduceType::parameters}, {"bfloat16", ReduceType::bfloat16}}, {"float16"},
                             ONEBATCH_FIELD(comm.reduce_dtype)),
      integer_key("comm.check_replicas_every_steps", 0, k_any, ONEBATCH_FIELD(comm.check_replicas_every_steps)),
      boolean_key("comm.allow_shared_device", ONEBATCH_FIELD(comm.allow_shared_device)),
      integer_key("checkpoint.every_steps", 0, k_any, ONEBATCH_FIELD(checkpoint.every_steps)),
      number_key("checkpoint.every_minutes", {0.0, 1e6, false}, ONEBATCH_FIELD(checkpoint.every_minutes)),
      integer_key("checkpoint.keep", 0, k_any, ONEBATCH_FIELD(checkpoint.keep)),
      integer_key("checkpoint.keep_every", 0, k_any, ONEBATCH_FIELD(checkpoint.keep_every)),
      boolean_key("checkpoint.background", ONEBATCH_FIELD(checkpoint.background)),
      resume_key(),
      boolean_key("verify.at_start", ONEBATCH_FIELD(verify.at_start)),
      integer_key("log.every_steps", 1, k_any, ONEBATCH_FIELD(log.every_steps)),
      boolean_key("log.jsonl", ONEBATCH_FIELD(log.jsonl)),
      boolean_key("log.samples", ONEBATCH_FIELD(log.samples)),
      simulate_key()};
}

std::vector<ConfigKey> all_keys() {
  std::vector<ConfigKey> keys = run_keys();
  add(keys, batch_keys());
  add(keys, dataset_keys("data.", ONEBATCH_FIELD(data.train)));
  add(keys, validation_keys());
  add(keys, augment_keys());
  add(keys, model_keys());
  add(keys, optimizer_keys());
  add(keys, arithmetic_keys());
  add(keys, service_keys());
  return keys;
}

#undef ONEBATCH_FIELD

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = all_keys();
  return keys;
}

const std::vector<std::string>& future_keys() {
  static const std::vector<std::string> keys = {"sync_batchnorm",
                                                "data.block_size",
                                                "model.n_layer",
                                                "model.n_head",
                                                "model.n_embd",
                                                "model.block_size",
                                                "model.vocab_size",
                                                "memory.max_split_size_mb",
                                                "memory.expandable_segments",
                                                "log.tensorboard"};
  return keys;
}

}  // namespace onebatch::launch
