// An option of a kind that no struct of the configuration has a member for: it lies among its section's options, by
// name.
#pragma once

#include "trainer/base/configuration.hpp"

#include <string>

namespace onebatch {

/// Used as a pointer to a member is. T: bool, std::int64_t, double, std::string or std::vector<std::int64_t>.
template <typename Section, typename T>
struct Option {
  std::string name;
  T otherwise;  // its default

  T& operator()(Section& section) const {
    return std::get<T>(section.options.try_emplace(name, otherwise).first->second);
  }
  /// Of an option that was not given, the default of this object.
  const T& operator()(const Section& section) const {
    const auto found = section.options.find(name);
    return found == section.options.end() ? otherwise : std::get<T>(found->second);
  }
};

}  // namespace onebatch
