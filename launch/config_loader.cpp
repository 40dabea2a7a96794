#include "launch/config_loader.hpp"

#include "launch/nearest.hpp"
#include "launch/toml_value.hpp"
#include "trainer/settings/key_types.hpp"
#include "trainer/settings/keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

namespace onebatch::launch {
namespace {

constexpr const char* k_command_line = "command line";

// Keys that stand for the same thing in two ways, or bound it from two sides.
struct Either {
  const char* one;
  const char* other;
};
constexpr std::array k_either = {Either{"run.epochs", "run.max_steps"},
                                 Either{"optimizer.max_grad_norm", "optimizer.max_grad_value"}};

constexpr std::size_t k_longest_config = std::size_t{1} << 20;

// One value that was given, and where it stands.
struct Given {
  ConfigValue value;
  std::string origin;
  std::string place;
  unsigned line;
};

class Loader {
 public:
  Loader(std::string name, LoadedConfig& loaded) : name_(std::move(name)), loaded_(loaded) {}

  // False where it is no TOML: what it lacks cannot be said then.
  bool read_file(const std::string& text) {
    if (text.size() > k_longest_config) {
      complain(name_, "the file is larger than 1 MiB: it is no configuration", 0);
      return false;
    }
    try {
      walk(toml::parse(text, name_), "", Source::file);
      return true;
    } catch (const toml::parse_error& error) {
      const auto begin = error.source().begin;
      complain(place(begin), std::string(error.description()), begin.line);
      return false;
    }
  }

  void read_assignment(const std::string& assignment) {
    const std::size_t equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0)
      return complain("--set " + assignment, "write --set section.key=value", 0);
    const std::string key = assignment.substr(0, equals);
    if (key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") !=
        std::string::npos) {
      return complain("--set " + assignment, "write --set section.key=value", 0);
    }
    const std::string value = assignment.substr(equals + 1);
    if (!parse_assignment(key + " = " + value) && !parse_assignment(key + " = " + quoted(value))) {
      complain("--set " + assignment, "cannot be read: write --set section.key=value with a TOML value", 0);
    }
  }

  void apply() {
    for (const auto& [one, other] : k_either) {
      command_line_wins(one, other);
      command_line_wins(other, one);
    }
    settle_sync_batchnorm();
    for (const Key& key : keys_) {
      const auto found = given_.find(key.path);
      // The validation set inherits what the training set was given, so it begins as its copy.
      if (key.path == "data.validation.kind" && has_validation_)
        loaded_.configuration.data.validation = loaded_.configuration.data.train;
      if (found == given_.end()) continue;
      const Given& given = found->second;
      const Complaint complaint = key.read(given.value, loaded_.configuration);
      if (!complaint.empty()) {
        complain(given.place, key.path + ": " + complaint, given.line);
        loaded_.wrong.insert(key.path);
      }
      loaded_.origins[key.path] = given.origin;
    }
  }

 private:
  enum class Source { file, command_line };

  // Of two such keys the file's one gives way, unless it has them both.
  void command_line_wins(const std::string& key, const std::string& over) {
    const auto given = given_.find(key);
    const auto other = given_.find(over);
    if (given == given_.end() || other == given_.end() || in_file_.contains(key)) return;
    if (given->second.origin == k_command_line && other->second.origin != k_command_line) given_.erase(other);
  }

  // Two keys for one thing: a run's resolved file has both, so the command line's goes before the file's either way.
  void settle_sync_batchnorm() {
    const auto mode = given_.find("batch_norm.mode");
    const auto sync = given_.find("batch_norm.sync_batchnorm");
    if (mode == given_.end() || sync == given_.end()) return;
    const bool mode_is_later = mode->second.origin == k_command_line;
    const bool sync_is_later = sync->second.origin == k_command_line;
    const auto word = mode->second.value.text();
    const auto is_sync = sync->second.value.boolean();
    if (!word || !is_sync || (*word == "sync") == *is_sync) return;
    if (mode_is_later != sync_is_later)
      given_.erase(mode_is_later ? sync : mode);
    else
      complain(sync->second.place,
               fmt::format("batch_norm.sync_batchnorm = {} and batch_norm.mode = \"{}\" contradict each other: leave "
                           "sync_batchnorm out",
                           *is_sync, *word),
               sync->second.line);
  }

  bool parse_assignment(const std::string& line) {
    try {
      walk(toml::parse(line), "", Source::command_line);
    } catch (const toml::parse_error&) {
      return false;
    }
    return true;
  }

  void walk(const toml::table& table, const std::string& prefix, Source source) {
    for (const auto& [key, node] : table) {
      const std::string path = prefix + std::string(key.str());
      if (path == "data.validation" && node.is_table()) has_validation_ = true;
      if (is_key(path)) {
        note(path, node, source);
      } else if (node.is_table() && is_section(path)) {
        walk(*node.as_table(), path + ".", source);
      } else {
        unknown(path, node, source);
      }
    }
  }

  void note(const std::string& path, const toml::node& node, Source source) {
    const auto begin = node.source().begin;
    if (path.starts_with("data.validation.")) has_validation_ = true;
    if (source == Source::file) in_file_.insert(path);
    given_[path] = source == Source::command_line
                       ? Given{value_of(node), k_command_line, "--set " + path, 0}
                       : Given{value_of(node), fmt::format("{}:{}", name_, begin.line), place(begin), begin.line};
  }

  void unknown(const std::string& path, const toml::node& node, Source source) {
    const auto begin = node.source().begin;
    const std::string where = source == Source::command_line ? "--set " + path : place(begin);
    const unsigned line = source == Source::command_line ? 0 : begin.line;
    if (path == "data.validation.workers") return workers(path, node, where, line);
    if (is_section(path)) {
      loaded_.wrong.insert(path);
      return complain(where, path + ": is a section: " + in_its_place(path, node), line);
    }
    std::vector<std::string> known;
    for (const Key& key : keys_) known.push_back(key.path);
    const auto meant = meant_keys(path, known, sections());
    std::string hint;
    for (const std::string& key : meant) hint += (hint.empty() ? "; did you mean " : " or ") + key;
    if (meant.size() == 1 && is_key(meant.front())) loaded_.wrong.insert(meant.front());
    complain(where, path + ": no such key" + (hint.empty() ? "" : hint + "?"), line);
  }

  // The first key of the section that takes what was given.
  std::string in_its_place(const std::string& section, const toml::node& node) const {
    if (node.is_array_of_tables()) return fmt::format("write [{0}] in the place of [[{0}]]", section);
    std::string first;
    for (const Key& key : keys_) {
      if (!key.path.starts_with(section + ".")) continue;
      if (first.empty()) first = key.path;
      Configuration with;
      if (key.read(value_of(node), with).empty())
        return fmt::format("write a key of it, as {} = {}", key.path, key.show(with));
    }
    return "write a key of it, as " + first;
  }

  // Earlier versions had this key, and 0 was all that it could be.
  void workers(const std::string& path, const toml::node& node, const std::string& where, unsigned line) {
    const std::string message =
        path + ": there are no workers: the thread that trains reads these samples; leave the key out";
    if (node.value_exact<std::int64_t>() == 0)
      loaded_.left_over.push_back({where, without_key(where, message), line});
    else
      complain(where, message, line);
  }

  std::vector<std::string> sections() const {
    std::set<std::string> names;
    for (const Key& key : keys_) {
      for (std::size_t dot = key.path.find('.'); dot != std::string::npos; dot = key.path.find('.', dot + 1))
        names.insert(key.path.substr(0, dot));
    }
    return {names.begin(), names.end()};
  }

  bool is_section(const std::string& path) const {
    return std::ranges::any_of(keys_, [&](const Key& key) { return key.path.starts_with(path + "."); });
  }

  bool is_key(const std::string& path) const {
    return std::ranges::any_of(keys_, [&](const Key& key) { return key.path == path; });
  }

  std::string place(const toml::source_position& position) const {
    return fmt::format("{}:{}:{}", name_, position.line, position.column);
  }

  // "--set optimizer.lr" names the key already.
  static std::string without_key(const std::string& where, const std::string& message) {
    const std::string key = where.starts_with("--set ") ? fmt::format("{}: ", where.substr(6)) : "";
    return !key.empty() && message.starts_with(key) ? message.substr(key.size()) : message;
  }

  void complain(std::string where, std::string message, unsigned line) {
    message = without_key(where, message);
    loaded_.mistakes.push_back({std::move(where), std::move(message), line});
  }

  std::string name_;
  LoadedConfig& loaded_;
  const std::vector<Key> keys_ = configuration_keys();
  std::map<std::string, Given> given_;
  std::set<std::string> in_file_;
  bool has_validation_ = false;
};

}  // namespace

LoadedConfig load_config(const std::string& text, const std::string& name,
                         const std::vector<std::string>& assignments) {
  LoadedConfig loaded;
  Loader loader(name, loaded);
  if (!loader.read_file(text)) return loaded;
  for (const std::string& assignment : assignments) loader.read_assignment(assignment);
  loader.apply();
  std::stable_sort(loaded.mistakes.begin(), loaded.mistakes.end(),
                   [](const ConfigMistake& a, const ConfigMistake& b) { return a.line < b.line; });
  return loaded;
}

std::string mistakes_text(const std::vector<ConfigMistake>& mistakes) {
  std::string text;
  for (const ConfigMistake& mistake : mistakes) text += mistake.place + ": " + mistake.message + "\n";
  return text;
}

std::string resolved_config(const LoadedConfig& loaded) {
  std::string text = "# The configuration of this run: every key, and where its value came from.\n";
  std::string section;
  for (const Key& key : configuration_keys()) {
    const std::size_t dot = key.path.rfind('.');
    const std::string in = key.path.substr(0, dot);
    if (in == "data.validation" && !loaded.configuration.data.validation) continue;
    const std::string value = key.show(loaded.configuration);
    if (in != section) text += "\n[" + in + "]\n";
    section = in;
    const auto origin = loaded.origins.find(key.path);
    const std::string from = origin == loaded.origins.end()
                                 ? (key.about.otherwise.starts_with("`data.") ? "as data" : "default")
                                 : origin->second;
    text += value.empty() ? "# " + key.path.substr(dot + 1) + " is not set\n"
                          : key.path.substr(dot + 1) + " = " + value + "   # " + from + "\n";
  }
  return text;
}

}  // namespace onebatch::launch
