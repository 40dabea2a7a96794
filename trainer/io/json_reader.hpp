// Reads fields of a JSON document that a person may have written: every mistake is named with its place and what to
// write instead.
#pragma once

#include "trainer/base/error.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace onebatch {

class JsonReader {
 public:
  /// `place` is how messages call the value: "profile.json: ranks[2]".
  JsonReader(const nlohmann::json& json, std::string place) : json_(json), place_(std::move(place)) {}

  /// Parses a document; nothing deeper than `max_depth`, so that a hostile file cannot exhaust the stack.
  /// Of fields in `left_out`, wherever they stand, nothing is kept, unless they are names in an object `of_names`.
  static nlohmann::json parse(std::string_view text, std::string_view origin, int max_depth = 32,
                              const std::set<std::string>& left_out = {}, const std::string& of_names = {});

  [[nodiscard]] const nlohmann::json& json() const { return json_; }
  [[nodiscard]] const std::string& place() const { return place_; }
  [[noreturn]] void fail(const std::string& what) const { throw UserError(place_ + " " + what); }

  [[nodiscard]] bool has(const char* key) const {
    return json_.is_object() && json_.contains(key) && !json_.at(key).is_null();
  }
  [[nodiscard]] JsonReader field(const char* key) const;
  [[nodiscard]] JsonReader item(std::size_t index) const;
  [[nodiscard]] std::size_t array_size(const char* what) const;

  [[nodiscard]] std::int64_t integer(std::int64_t least, std::int64_t most) const;
  [[nodiscard]] double number_at_least(double least) const;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool boolean() const;

 private:
  const nlohmann::json& json_;
  std::string place_;
};

}  // namespace onebatch
