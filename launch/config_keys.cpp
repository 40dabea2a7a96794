#include "launch/config_keys.hpp"

#include "launch/key_types.hpp"
#include "launch/simulate_key.hpp"

namespace onebatch::launch {
namespace {

// The members of a configuration, as the builders want them.
#define ONEBATCH_FIELD(member)     \
  [](Configuration & c) -> auto& { \
    return c.member;               \
  }

constexpr std::int64_t k_any = INT64_MAX;

void add(std::vector<ConfigKey>& keys, std::vector<ConfigKey> more) {
  keys.insert(keys.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

ConfigKey deterministic_key() {
  return {"run.deterministic", "true or false",
          [](const toml::node& node, Configuration& c) -> Complaint {
            if (node.value_exact<std::string>() == "bitwise") return "\"bitwise\" is not in this version; write true or false";
            const auto value = node.value_exact<bool>();
            if (!value) return "write true or false";
            c.run.deterministic = *value ? Determinism::on : Determinism::off;
            return {};
          },
          [](const Configuration& c) { return std::string(c.run.deterministic == Determinism::on ? "true" : "false"); }};
}

ConfigKey micro_batch_key() {
  const std::string values = "\"auto\", a whole number from 1, or a list with one per rank";
  return {"batch.micro_batch_size", values,
          [=](const toml::node& node, Configuration& c) -> Complaint {
            auto& sizes = c.batch.micro_batch_size;
            if (node.value_exact<std::string>() == "auto") {
              sizes.clear();
            } else if (const auto one = node.value_exact<std::int64_t>(); one && *one >= 1) {
              sizes = {*one};
            } else if (const auto list = read_integers(node, 1); list && !list->empty()) {
              sizes = *list;
            } else {
              return "write " + values;
            }
            return {};
          },
          [](const Configuration& c) {
            const auto& sizes = c.batch.micro_batch_size;
            return sizes.empty() ? std::string("\"auto\"") : (sizes.size() == 1 ? std::to_string(sizes.front()) : integers_text(sizes));
          }};
}

ConfigKey numbers_key(std::string path, std::size_t count, Range range, std::function<std::vector<double>(const Configuration&)> get,
                      std::function<void(Configuration&, const std::vector<double>&)> set) {
  const std::string values = "a list of " + (count > 0 ? std::to_string(count) + " numbers, each " : "numbers, each ") + range_text(range);
  return {path, values,
          [=](const toml::node& node, Configuration& c) -> Complaint {
            const toml::array* list = node.as_array();
            if (list == nullptr || (count > 0 && list->size() != count)) return "write " + values;
            std::vector<double> numbers;
            for (const toml::node& item : *list) {
              const auto value = item.value<double>();
              if (!item.is_number() || !value || !std::isfinite(*value) || !within(range, *value)) return "write " + values;
              numbers.push_back(*value);
            }
            set(c, numbers);
            return {};
          },
          [=](const Configuration& c) {
            std::string text = "[";
            for (const double value : get(c)) text += (text.size() > 1 ? ", " : "") + number_text(value);
            return text + "]";
          }};
}

ConfigKey resume_key() {
  return {"checkpoint.resume", "\"auto\", \"never\" or the path of a checkpoint",
          [](const toml::node& node, Configuration& c) -> Complaint {
            const auto word = node.value_exact<std::string>();
            if (!word || word->empty()) return "write \"auto\", \"never\" or the path of a checkpoint";
            c.checkpoint.resume = *word == "auto" ? ResumeMode::automatic : (*word == "never" ? ResumeMode::never : ResumeMode::path);
            c.checkpoint.resume_path = c.checkpoint.resume == ResumeMode::path ? *word : "";
            return {};
          },
          [](const Configuration& c) {
            if (c.checkpoint.resume == ResumeMode::path) return quoted(c.checkpoint.resume_path);
            return std::string(c.checkpoint.resume == ResumeMode::never ? "\"never\"" : "\"auto\"");
          }};
}

ConfigKey overlap_key() {
  return {"comm.overlap", "\"auto\", true or false",
          [](const toml::node& node, Configuration& c) -> Complaint {
            const auto value = node.value_exact<bool>();
            if (!value && node.value_exact<std::string>() != "auto") return "write \"auto\", true or false";
            c.comm.overlap = value ? (*value ? Overlap::on : Overlap::off) : Overlap::automatic;
            return {};
          },
          [](const Configuration& c) {
            return std::string(c.comm.overlap == Overlap::automatic ? "\"auto\"" : (c.comm.overlap == Overlap::on ? "true" : "false"));
          }};
}

// The name that others give to batch_norm.mode = "sync".
ConfigKey sync_key(const std::string& path) {
  return {path, "true or false",
          [](const toml::node& node, Configuration& c) -> Complaint {
            const auto value = node.value_exact<bool>();
            if (!value) return "write true or false";
            if (*value) c.batch_norm.mode = BatchNormMode::sync;
            return {};
          },
          [](const Configuration& c) { return std::string(c.batch_norm.mode == BatchNormMode::sync ? "true" : "false"); }};
}

ConfigKey recompute_key() {
  const std::string values = "\"off\", \"auto\" or how many segments, from 2";
  return {"memory.recompute", values,
          [=](const toml::node& node, Configuration& c) -> Complaint {
            const auto word = node.value_exact<std::string>();
            const auto number = node.value_exact<std::int64_t>();
            const bool known = word == "off" || word == "auto" || (number && *number >= 2);
            if (!known) return "write " + values;
            c.memory.segments = number.value_or(0);
            c.memory.recompute = number ? Recompute::on : (*word == "auto" ? Recompute::automatic : Recompute::off);
            return {};
          },
          [](const Configuration& c) {
            if (c.memory.recompute == Recompute::on) return std::to_string(c.memory.segments);
            return std::string(c.memory.recompute == Recompute::off ? "\"off\"" : "\"auto\"");
          }};
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
              prefix + "kind", {{"idx", DataKind::idx}, {"synthetic", DataKind::synthetic}},
              {"cifar", "image_folder", "tokens", "safetensors"}, [=](Configuration & c) -> auto& { return section(c).kind; }),
          text_key(
              prefix + "path", [=](Configuration & c) -> auto& { return section(c).path; }),
          integers_key(
              prefix + "shape", 1, [=](Configuration & c) -> auto& { return section(c).shape; }),
          integer_key(
              prefix + "num_classes", 1, std::int64_t{1} << 31, [=](Configuration & c) -> auto& { return section(c).num_classes; }),
          integer_key(
              prefix + "size", 1, std::int64_t{1} << 40, [=](Configuration & c) -> auto& { return section(c).size; }),
          integer_key(
              prefix + "workers", 0, 0, [=](Configuration & c) -> auto& { return section(c).workers; })};
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
      choice_key<LossKind>("loss.kind", {{"cross_entropy", LossKind::cross_entropy}, {"mse", LossKind::mse}}, {"model"},
                           ONEBATCH_FIELD(loss.kind)),
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
  const std::vector<Choice<Precision>> precisions = {{"float32", Precision::float32}, {"float64", Precision::float64}};
  return {
      choice_key<Precision>("precision.compute",
                            {{"float32", Precision::float32}, {"float64", Precision::float64}, {"bfloat16", Precision::bfloat16}},
                            {"float16"}, ONEBATCH_FIELD(precision.compute)),
      choice_key<Precision>("precision.parameters", precisions, {"bfloat16", "float16"}, ONEBATCH_FIELD(precision.parameters)),
      boolean_key("precision.allow_tf32", ONEBATCH_FIELD(precision.allow_tf32)),
      choice_key<BatchNormMode>("batch_norm.mode",
                                {{"local", BatchNormMode::local}, {"sync", BatchNormMode::sync}, {"exact", BatchNormMode::exact}}, {},
                                ONEBATCH_FIELD(batch_norm.mode)),
      boolean_key("batch_norm.frozen", ONEBATCH_FIELD(batch_norm.frozen)),
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
      integer_key("checkpoint.keep", 0, k_any, ONEBATCH_FIELD(checkpoint.keep)),
      resume_key(),
      integer_key("log.every_steps", 1, k_any, ONEBATCH_FIELD(log.every_steps)),
      boolean_key("log.jsonl", ONEBATCH_FIELD(log.jsonl)),
      boolean_key("log.samples", ONEBATCH_FIELD(log.samples)),
      simulate_key()};
}

#undef ONEBATCH_FIELD

std::vector<ConfigKey> all_keys() {
  std::vector<ConfigKey> keys = run_keys();
  add(keys, batch_keys());
  add(keys, dataset_keys("data.", [](Configuration& c) -> DatasetConfiguration& { return c.data.train; }));
  add(keys, dataset_keys("data.validation.", [](Configuration& c) -> DatasetConfiguration& {
        if (!c.data.validation) c.data.validation = c.data.train;
        return *c.data.validation;
      }));
  add(keys, model_keys());
  add(keys, optimizer_keys());
  add(keys, arithmetic_keys());
  add(keys, service_keys());
  return keys;
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = all_keys();
  return keys;
}

const std::vector<std::string>& future_keys() {
  static const std::vector<std::string> keys = {"sync_batchnorm",
                                                "data.augment",
                                                "data.block_size",
                                                "data.inputs",
                                                "data.target",
                                                "model.n_layer",
                                                "model.n_head",
                                                "model.n_embd",
                                                "model.block_size",
                                                "model.vocab_size",
                                                "loss.normalize_by",
                                                "precision.loss_scale",
                                                "memory.max_split_size_mb",
                                                "memory.expandable_segments",
                                                "log.tensorboard"};
  return keys;
}

}  // namespace onebatch::launch
