#include "trainer/settings/kinds.hpp"

#include <algorithm>
#include <stdexcept>

namespace onebatch {
namespace {

// Like the tables in which LibTorch finds its operators: filled before anything runs, and only read from then on.
template <typename Section>
KindList<Section>& registered() {
  static KindList<Section> kinds;
  return kinds;
}

}  // namespace

template <typename Section>
const KindList<Section>& kinds_of() {
  return registered<Section>();
}

template <typename Section>
void add_kind(std::shared_ptr<const Kind<Section>> kind) {
  const std::string what = "the kind \"" + kind->name + "\" of " + section_name<Section>();
  if (find_kind<Section>(kind->name) != nullptr) throw std::logic_error(what + " is registered twice");
  for (const auto& other : kinds_of<Section>()) {
    for (const KeyOf<Section>& key : kind->keys) {
      if (std::ranges::any_of(other->keys,
                              [&](const KeyOf<Section>& known) { return known.about.name == key.about.name; }))
        throw std::logic_error(what + " brings the key " + key.about.name + ", which \"" + other->name +
                               "\" has: name it among those it shares");
    }
  }
  registered<Section>().push_back(std::move(kind));
}

#define ONEBATCH_SECTION_OF_KINDS(Section, name)         \
  template <>                                            \
  std::string section_name<Section>() {                  \
    return name;                                         \
  }                                                      \
  template const KindList<Section>& kinds_of<Section>(); \
  template void add_kind<Section>(std::shared_ptr<const Kind<Section>> kind);

ONEBATCH_SECTION_OF_KINDS(DatasetConfiguration, "data")
ONEBATCH_SECTION_OF_KINDS(ModelConfiguration, "model")
ONEBATCH_SECTION_OF_KINDS(LossConfiguration, "loss")
ONEBATCH_SECTION_OF_KINDS(OptimizerConfiguration, "optimizer")
ONEBATCH_SECTION_OF_KINDS(ScheduleConfiguration, "schedule")

#undef ONEBATCH_SECTION_OF_KINDS

}  // namespace onebatch
