#include "trainer/io/json_reader.hpp"

#include <fmt/format.h>

namespace onebatch {

nlohmann::json JsonReader::parse(std::string_view text, std::string_view origin, int max_depth,
                                 const std::set<std::string>& left_out, const std::string& of_names) {
  bool too_deep = false;
  std::vector<std::string> keys;  // that lead to where the parser is
  const auto guard = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    too_deep = too_deep || depth > max_depth;
    if (event != nlohmann::json::parse_event_t::key || too_deep || left_out.empty()) return !too_deep;
    keys.resize(static_cast<std::size_t>(depth));
    keys.back() = value.get<std::string>();
    const bool names_of_a_user =
        !of_names.empty() && depth > 1 && keys[static_cast<std::size_t>(depth) - 2] == of_names;
    return names_of_a_user || !left_out.contains(keys.back());
  };
  try {
    auto json = nlohmann::json::parse(text, guard);
    if (too_deep) throw UserError(fmt::format("{}: nested deeper than {}", origin, max_depth));
    return json;
  } catch (const nlohmann::json::exception& error) {
    throw UserError(fmt::format("{} is not JSON: {}", origin, error.what()));
  }
}

JsonReader JsonReader::field(const char* key) const {
  if (!json_.is_object()) fail(std::string("must be an object with the field \"") + key + "\"");
  if (!json_.contains(key)) fail(std::string("lacks the field \"") + key + "\"");
  return {json_.at(key), place_ + "." + key};
}

JsonReader JsonReader::item(std::size_t index) const {
  return {json_.at(index), fmt::format("{}[{}]", place_, index)};
}

std::size_t JsonReader::array_size(const char* what) const {
  if (!json_.is_array()) fail(std::string("must be a list of ") + what);
  return json_.size();
}

std::int64_t JsonReader::integer(std::int64_t least, std::int64_t most) const {
  const std::string range = fmt::format("must be a whole number from {} to {}", least, most);
  if (!json_.is_number_integer()) fail(range);
  if (json_.is_number_unsigned() && json_.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) fail(range);
  const auto value = json_.get<std::int64_t>();
  if (value < least || value > most) fail(range);
  return value;
}

double JsonReader::number_at_least(double least) const {
  const double value = json_.is_number() ? json_.get<double>() : std::nan("");
  if (!std::isfinite(value) || value < least) fail(fmt::format("must be a finite number, {:f} or more", least));
  return value;
}

std::string JsonReader::text() const {
  if (!json_.is_string()) fail("must be a text in quotes");
  return json_.get<std::string>();
}

bool JsonReader::boolean() const {
  if (!json_.is_boolean()) fail("must be true or false");
  return json_.get<bool>();
}

}  // namespace onebatch
