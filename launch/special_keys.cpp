#include "launch/special_keys.hpp"

#include <algorithm>

namespace onebatch::launch {

ConfigKey deterministic_key() {
  return {"run.deterministic", "true, false or \"bitwise\"",
          [](const toml::node& node, Configuration& c) -> Complaint {
            const bool bitwise = node.value_exact<std::string>() == "bitwise";
            const auto value = node.value_exact<bool>();
            if (!value && !bitwise) return "write true, false or \"bitwise\"";
            c.run.deterministic = bitwise ? Determinism::bitwise : (*value ? Determinism::on : Determinism::off);
            return {};
          },
          [](const Configuration& c) {
            if (c.run.deterministic == Determinism::bitwise) return std::string("\"bitwise\"");
            return std::string(c.run.deterministic == Determinism::on ? "true" : "false");
          }};
}

ConfigKey loss_scale_key() {
  return {
      "precision.loss_scale", "\"dynamic\" or a number above 0",
      [](const toml::node& node, Configuration& c) -> Complaint {
        const auto number = node.value<double>();
        const bool good = number && node.is_number() && std::isfinite(*number) && *number > 0.0;
        if (!good && node.value_exact<std::string>() != "dynamic") return "write \"dynamic\" or a number above 0";
        c.precision.loss_scale = good ? number : std::nullopt;
        return {};
      },
      [](const Configuration& c) { return c.precision.loss_scale ? number_text(*c.precision.loss_scale) : std::string("\"dynamic\""); }};
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

ConfigKey groups_key() {
  const std::string values = "a list of {match = \"*.bias\", lr = 0.1, weight_decay = 0.0}";
  return {"optimizer.groups", values,
          [=](const toml::node& node, Configuration& c) -> Complaint {
            const toml::array* list = node.as_array();
            if (list == nullptr) return "write " + values;
            std::vector<ParameterGroup> groups;
            for (const toml::node& item : *list) {
              if (!item.is_table()) return "write " + values;
              ParameterGroup& group = groups.emplace_back();
              for (const auto& [key, value] : *item.as_table()) {
                const auto number = value.value<double>();
                const bool good = value.is_number() && number && std::isfinite(*number) && *number >= 0.0;
                if (key.str() == "match" && value.is_string())
                  group.match = *value.value<std::string>();
                else if (key.str() == "lr" && good)
                  group.lr = number;
                else if (key.str() == "weight_decay" && good)
                  group.weight_decay = number;
                else
                  return "a group has match (a name with * for any text), lr and weight_decay (numbers from 0), not " +
                         quoted(std::string(key.str())) + " of that kind";
              }
              if (group.match.empty() || (!group.lr && !group.weight_decay)) return "a group needs match, and lr or weight_decay";
            }
            c.optimizer.groups = groups;
            return {};
          },
          [](const Configuration& c) {
            std::string text;
            for (const ParameterGroup& group : c.optimizer.groups) {
              text += (text.empty() ? "{match = " : ", {match = ") + quoted(group.match);
              if (group.lr) text += ", lr = " + number_text(*group.lr);
              if (group.weight_decay) text += ", weight_decay = " + number_text(*group.weight_decay);
              text += "}";
            }
            return "[" + text + "]";
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

}  // namespace onebatch::launch
