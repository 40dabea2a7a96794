// Kinds of models, data, optimizers, schedules and losses: each is one file that registers what a configuration must
// know of it (its name, its keys, what may not stand together) and what makes it. The built-in ones stand in a list of
// their folder's sources.cmake; a program that uses the library registers its own before it reads a configuration.
#pragma once

#include "trainer/base/error.hpp"
#include "trainer/settings/key.hpp"

#include <memory>

namespace onebatch {

/// What a kind's check looks at beside its section. Keys go by their names in the section.
struct CheckRequest {
  const Configuration& configuration;
  std::function<bool(const std::string& key)> chosen;  // given, and not what it would be anyway
  std::function<void(const std::string& key, const std::string& words)> complain;
};

/// `Section`: ModelConfiguration, DatasetConfiguration, OptimizerConfiguration, ScheduleConfiguration or
/// LossConfiguration.
template <typename Section>
struct Kind {
  using Of = Section;

  Kind() = default;
  Kind(const Kind&) = default;
  Kind& operator=(const Kind&) = default;
  Kind(Kind&&) = default;
  Kind& operator=(Kind&&) = default;
  virtual ~Kind() = default;

  std::string name;                  // "mlp"
  std::vector<KeyOf<Section>> keys;  // that it brings
  std::vector<std::string> shares;   // names of keys that another kind brings, and it takes too
  /// Complains of what is missing or may not stand together; none: nothing.
  std::function<void(const Section&, const CheckRequest&)> check;
};

template <typename Section>
using KindList = std::vector<std::shared_ptr<const Kind<Section>>>;

/// What a section is called: "model".
template <typename Section>
std::string section_name();
template <>
std::string section_name<DatasetConfiguration>();
template <>
std::string section_name<ModelConfiguration>();
template <>
std::string section_name<LossConfiguration>();
template <>
std::string section_name<OptimizerConfiguration>();
template <>
std::string section_name<ScheduleConfiguration>();

/// In the order in which they were registered.
template <typename Section>
const KindList<Section>& kinds_of();

/// Throws std::logic_error where the name is taken, or a key's name is another's in that section.
template <typename Section>
void add_kind(std::shared_ptr<const Kind<Section>> kind);

/// "\"mlp\" or \"resnet\"".
template <typename Section>
std::string kind_names() {
  std::string names;
  for (const auto& kind : kinds_of<Section>()) names += (names.empty() ? "\"" : " or \"") + kind->name + "\"";
  return names;
}

/// None where no kind has that name.
template <typename Section>
const Kind<Section>* find_kind(const std::string& name) {
  for (const auto& kind : kinds_of<Section>()) {
    if (kind->name == name) return kind.get();
  }
  return nullptr;
}

/// The built-in kinds of a sort, once: of `Special`, which derives from Kind.
template <typename Special>
void register_built_in() {
  [[maybe_unused]] static const bool done = [] {
    for (Special& kind : Special::built_in())
      add_kind<typename Special::Of>(std::make_shared<const Special>(std::move(kind)));
    return true;
  }();
}

/// Makes a kind known by its name, beside the built-in ones. Throws std::logic_error where the name or one of its keys
/// is taken.
template <typename Special>
void register_kind(Special kind) {
  register_built_in<Special>();
  add_kind<typename Special::Of>(std::make_shared<const Special>(std::move(kind)));
}

/// The kind that a section names. Throws UserError where there is none of that name.
template <typename Special>
const Special& chosen_kind(const typename Special::Of& section) {
  using Section = typename Special::Of;
  register_built_in<Special>();
  const auto* kind = dynamic_cast<const Special*>(find_kind<Section>(section.kind));
  if (kind == nullptr)
    throw UserError(section_name<Section>() + ".kind = \"" + section.kind +
                    "\" is not one that this program knows: write " + kind_names<Section>());
  return *kind;
}

}  // namespace onebatch
