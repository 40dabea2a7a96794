#include "trainer/settings/special_keys.hpp"

#include "trainer/base/metrics.hpp"

#include <fmt/format.h>

namespace onebatch {
namespace {

template <typename Section>
KeyOf<Section> switch_key(KeyText about, Switch Section::*field) {
  return {std::move(about), "\"auto\", true or false",
          [=](const ConfigValue& value, Section& section) -> Complaint {
            const auto flag = value.boolean();
            if (!flag && value.text() != "auto") return "write \"auto\", true or false";
            section.*field = flag ? (*flag ? Switch::on : Switch::off) : Switch::automatic;
            return {};
          },
          [=](const Section& section) {
            return std::string(section.*field == Switch::automatic ? "\"auto\""
                                                                   : (section.*field == Switch::on ? "true" : "false"));
          }};
}

}  // namespace

KeyOf<RunConfiguration> deterministic_key(KeyText about) {
  return {std::move(about), "true, false or \"bitwise\"",
          [](const ConfigValue& value, RunConfiguration& run) -> Complaint {
            const bool bitwise = value.text() == "bitwise";
            if (!value.boolean() && !bitwise) return "write true, false or \"bitwise\"";
            run.deterministic =
                bitwise ? Determinism::bitwise : (*value.boolean() ? Determinism::on : Determinism::off);
            return {};
          },
          [](const RunConfiguration& run) {
            if (run.deterministic == Determinism::bitwise) return std::string("\"bitwise\"");
            return std::string(run.deterministic == Determinism::on ? "true" : "false");
          }};
}

KeyOf<RunConfiguration> metrics_key(KeyText about) {
  const std::string values =
      "a list of metrics, of \"top_K\" (as \"top_5\"), \"f1_macro\", \"f1_per_class\", \"confusion_matrix\", "
      "\"perplexity\", \"mean_absolute_error\" and \"r2\", or [\"loss\"] for none";
  return {std::move(about), values,
          [=](const ConfigValue& value, RunConfiguration& run) -> Complaint {
            const auto names = read_names(value);
            if (!names) return "write " + values;
            for (auto name = names->begin(); name != names->end(); ++name) {
              const bool always_there = *name == "loss" || *name == "accuracy";
              if (!always_there && !metric_of(*name)) return quoted(*name) + " is no metric: write " + values;
              if (std::find(names->begin(), name, *name) != name) return quoted(*name) + " stands there twice";
            }
            run.metrics = *names;
            return {};
          },
          [](const RunConfiguration& run) { return run.metrics.empty() ? std::string() : names_text(run.metrics); }};
}

KeyOf<PrecisionConfiguration> loss_scale_key(KeyText about) {
  return {std::move(about), "\"dynamic\" or a number above 0",
          [](const ConfigValue& value, PrecisionConfiguration& precision) -> Complaint {
            const auto number = read_number(value, {0.0, HUGE_VAL, true});
            if (!number && value.text() != "dynamic") return "write \"dynamic\" or a number above 0";
            precision.loss_scale = number;
            return {};
          },
          [](const PrecisionConfiguration& precision) {
            return precision.loss_scale ? number_text(*precision.loss_scale) : std::string("\"dynamic\"");
          }};
}

KeyOf<BatchConfiguration> micro_batch_key(KeyText about) {
  const std::string values = "\"auto\", a whole number from 1, or a list with one per rank";
  return {std::move(about), values,
          [=](const ConfigValue& value, BatchConfiguration& batch) -> Complaint {
            auto& sizes = batch.micro_batch_size;
            if (value.text() == "auto") {
              sizes.clear();
            } else if (const auto one = value.integer(); one && *one >= 1) {
              sizes = {*one};
            } else if (const auto list = read_integers(value, 1); list && !list->empty()) {
              sizes = *list;
            } else {
              return "write " + values;
            }
            return {};
          },
          [](const BatchConfiguration& batch) {
            const auto& sizes = batch.micro_batch_size;
            return sizes.empty() ? std::string("\"auto\"")
                                 : (sizes.size() == 1 ? fmt::to_string(sizes.front()) : integers_text(sizes));
          }};
}

KeyOf<CheckpointConfiguration> resume_key(KeyText about) {
  return {std::move(about), "\"auto\", \"never\" or the path of a checkpoint",
          [](const ConfigValue& value, CheckpointConfiguration& checkpoint) -> Complaint {
            const auto word = value.text();
            if (!word || word->empty()) return "write \"auto\", \"never\" or the path of a checkpoint";
            checkpoint.resume =
                *word == "auto" ? ResumeMode::automatic : (*word == "never" ? ResumeMode::never : ResumeMode::path);
            checkpoint.resume_path = checkpoint.resume == ResumeMode::path ? *word : "";
            return {};
          },
          [](const CheckpointConfiguration& checkpoint) {
            if (checkpoint.resume == ResumeMode::path) return quoted(checkpoint.resume_path);
            return std::string(checkpoint.resume == ResumeMode::never ? "\"never\"" : "\"auto\"");
          }};
}

namespace {

Complaint read_group(const ConfigValue& value, ParameterGroup& group, const std::string& values) {
  if (value.table() == nullptr) return "write " + values;
  for (const auto& [name, member] : *value.table()) {
    const auto number = read_number(member, {0.0});
    if (name == "match" && member.text())
      group.match = *member.text();
    else if (name == "lr" && number)
      group.lr = number;
    else if (name == "weight_decay" && number)
      group.weight_decay = number;
    else
      return "a group has match (a name with * for any text), lr and weight_decay (numbers from 0), not " +
             quoted(name) + " of that kind";
  }
  if (group.match.empty() || (!group.lr && !group.weight_decay)) return "a group needs match, and lr or weight_decay";
  return {};
}

std::string show(const ParameterGroup& group) {
  std::string text = "{match = " + quoted(group.match);
  if (group.lr) text += ", lr = " + number_text(*group.lr);
  if (group.weight_decay) text += ", weight_decay = " + number_text(*group.weight_decay);
  return text + "}";
}

}  // namespace

KeyOf<OptimizerConfiguration> groups_key(KeyText about) {
  const std::string values = "a list of {match = \"*.bias\", lr = 0.1, weight_decay = 0.0}";
  return {std::move(about), values,
          [=](const ConfigValue& value, OptimizerConfiguration& optimizer) -> Complaint {
            if (value.list() == nullptr) return "write " + values;
            std::vector<ParameterGroup> groups;
            for (const ConfigValue& item : *value.list()) {
              const Complaint complaint = read_group(item, groups.emplace_back(), values);
              if (!complaint.empty()) return complaint;
            }
            optimizer.groups = groups;
            return {};
          },
          [](const OptimizerConfiguration& optimizer) {
            std::string text;
            for (const ParameterGroup& group : optimizer.groups) text += (text.empty() ? "" : ", ") + show(group);
            return "[" + text + "]";
          }};
}

KeyOf<ModelConfiguration> patterns_key(KeyText about, std::vector<std::string> ModelConfiguration::*field) {
  return {std::move(about), "a list of names, with * for any text",
          [=](const ConfigValue& value, ModelConfiguration& model) -> Complaint {
            const auto names = read_names(value);
            const bool none = value.list() != nullptr && value.list()->empty();
            if (!names && !none) return "write a list of names, with * for any text, as [\"fc.*\"]";
            model.*field = none ? std::vector<std::string>() : *names;
            return {};
          },
          [=](const ModelConfiguration& model) { return names_text(model.*field); }};
}

KeyOf<ModelConfiguration> prefix_key(KeyText about, std::string ModelConfiguration::*field) {
  return {std::move(about), "a text that ends in a dot",
          [=](const ConfigValue& value, ModelConfiguration& model) -> Complaint {
            const auto text = value.text();
            if (!text) return "write a text in quotes, as \"bert.\"";
            if (!text->empty() && !text->ends_with('.')) return "write it with its dot: " + quoted(*text + ".");
            model.*field = *text;
            return {};
          },
          [=](const ModelConfiguration& model) { return quoted(model.*field); }};
}

KeyOf<CommConfiguration> overlap_key(KeyText about) {
  return switch_key(std::move(about), &CommConfiguration::overlap);
}

KeyOf<PrecisionConfiguration> channels_last_key(KeyText about) {
  return switch_key(std::move(about), &PrecisionConfiguration::channels_last);
}

KeyOf<RunConfiguration> cuda_graphs_key(KeyText about) {
  return switch_key(std::move(about), &RunConfiguration::cuda_graphs);
}

KeyOf<BatchNormConfiguration> sync_key(KeyText about) {
  return {std::move(about), "true or false",
          [](const ConfigValue& value, BatchNormConfiguration& batch_norm) -> Complaint {
            if (!value.boolean()) return "write true or false";
            if (*value.boolean()) batch_norm.mode = BatchNormMode::sync;
            return {};
          },
          [](const BatchNormConfiguration& batch_norm) {
            return std::string(batch_norm.mode == BatchNormMode::sync ? "true" : "false");
          }};
}

KeyOf<MemoryConfiguration> recompute_key(KeyText about) {
  const std::string values = "\"off\", \"auto\" or how many segments, from 2";
  return {std::move(about), values,
          [=](const ConfigValue& value, MemoryConfiguration& memory) -> Complaint {
            const auto word = value.text();
            const auto number = value.integer();
            const bool known = word == "off" || word == "auto" || (number && *number >= 2);
            if (!known) return "write " + values;
            memory.segments = number.value_or(0);
            memory.recompute = number ? Recompute::on : (*word == "auto" ? Recompute::automatic : Recompute::off);
            return {};
          },
          [](const MemoryConfiguration& memory) {
            if (memory.recompute == Recompute::on) return fmt::to_string(memory.segments);
            return std::string(memory.recompute == Recompute::off ? "\"off\"" : "\"auto\"");
          }};
}

}  // namespace onebatch
