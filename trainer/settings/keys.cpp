#include "trainer/settings/keys.hpp"

#include "trainer/settings/key_types.hpp"
#include "trainer/settings/kinds.hpp"
#include "trainer/settings/sections.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>

namespace onebatch {
namespace {

// Where a section lies in the configuration.
template <typename Section>
struct Place {
  std::string prefix;  // "optimizer."
  std::function<Section&(Configuration&)> mutate;
  std::function<const Section&(const Configuration&)> look;
};

template <typename Section>
Place<Section> place_of(const std::string& prefix, Section Configuration::*member) {
  return {prefix, [=](Configuration& c) -> Section& { return c.*member; },
          [=](const Configuration& c) -> const Section& { return c.*member; }};
}

template <typename Section>
Key key_at(const Place<Section>& place, const KeyOf<Section>& key) {
  const auto measured = key.measured ? key.measured : key.show;
  return {.path = place.prefix + key.about.name,
          .about = key.about,
          .values = key.values,
          .read = [place, read = key.read](const ConfigValue& value,
                                           Configuration& c) { return read(value, place.mutate(c)); },
          .show = [place, show = key.show](const Configuration& c) { return show(place.look(c)); },
          .measured = [place, measured](const Configuration& c) { return measured(place.look(c)); }};
}

template <typename Section>
void add(std::vector<Key>& keys, const Place<Section>& place, const KeysOf<Section>& more) {
  for (const KeyOf<Section>& key : more) keys.push_back(key_at(place, key));
}

template <typename Section>
std::vector<std::string> kinds_with(const std::string& key) {
  std::vector<std::string> names;
  for (const auto& kind : kinds_of<Section>()) {
    const bool brings =
        std::ranges::any_of(kind->keys, [&](const KeyOf<Section>& own) { return own.about.name == key; });
    if (brings || std::ranges::find(kind->shares, key) != kind->shares.end()) names.push_back(kind->name);
  }
  std::ranges::sort(names);
  return names;
}

// Those of every kind, then what each kind brings.
template <typename Section>
void add_with_kinds(std::vector<Key>& keys, const Place<Section>& place, const KeysOf<Section>& of_all) {
  add(keys, place, of_all);
  for (const auto& kind : kinds_of<Section>()) {
    for (const KeyOf<Section>& own : kind->keys) {
      Key key = key_at(place, own);
      key.kinds = kinds_with<Section>(own.about.name);
      key.in_use = [place, kinds = key.kinds](const Configuration& c) {
        return std::ranges::find(kinds, place.look(c).kind) != kinds.end();
      };
      keys.push_back(std::move(key));
    }
  }
}

// A value that is read makes the section. Where there is none nothing is shown, and showing makes none.
void add_validation(std::vector<Key>& keys) {
  const Place<DatasetConfiguration> place = {
      "data.validation.",
      [](Configuration& c) -> DatasetConfiguration& {
        if (!c.data.validation) c.data.validation = c.data.train;
        return *c.data.validation;
      },
      [](const Configuration& c) -> const DatasetConfiguration& { return c.data.validation.value(); }};
  std::vector<Key> more;
  add_with_kinds(more, place, dataset_keys());
  for (Key& key : more) {
    key.about.changes = includes(key.about.changes, Changes::result) ? Changes::result : Changes::nothing;
    key.about.text.clear();
    key.about.otherwise = "`data." + key.about.name + "`";
    key.show = [show = key.show](const Configuration& c) { return c.data.validation ? show(c) : std::string(); };
    if (key.in_use)
      key.in_use = [in_use = key.in_use](const Configuration& c) { return c.data.validation && in_use(c); };
    keys.push_back(std::move(key));
  }
}

void add_data(std::vector<Key>& keys) {
  const Place<DatasetConfiguration> train = {
      "data.", [](Configuration& c) -> DatasetConfiguration& { return c.data.train; },
      [](const Configuration& c) -> const DatasetConfiguration& { return c.data.train; }};
  const Place<SamplingConfiguration> sampling = {
      "data.", [](Configuration& c) -> SamplingConfiguration& { return c.data.sampling; },
      [](const Configuration& c) -> const SamplingConfiguration& { return c.data.sampling; }};
  const Place<SamplingConfiguration> split = {"data.validation.",
                                              [](Configuration& c) -> SamplingConfiguration& {
                                                if (!c.data.validation) c.data.validation = c.data.train;
                                                return c.data.sampling;
                                              },
                                              sampling.look};
  const Place<AugmentConfiguration> augment = {
      "data.augment.", [](Configuration& c) -> AugmentConfiguration& { return c.data.augment; },
      [](const Configuration& c) -> const AugmentConfiguration& { return c.data.augment; }};
  const Place<ReadingConfiguration> reading = {
      "data.", [](Configuration& c) -> ReadingConfiguration& { return c.data.reading; },
      [](const Configuration& c) -> const ReadingConfiguration& { return c.data.reading; }};
  add_with_kinds(keys, train, dataset_keys());
  add(keys, sampling, sampling_keys());
  add(keys, reading, reading_keys());
  add_validation(keys);
  add(keys, split, split_keys());
  add(keys, augment, augment_keys());
  for (const KeyOf<AugmentConfiguration>& own : image_augment_keys()) {
    Key key = key_at(augment, own);
    key.kinds = {"image_folder", "tar"};
    key.in_use = [kinds = key.kinds](const Configuration& c) {
      return std::ranges::find(kinds, c.data.train.kind) != kinds.end();
    };
    keys.push_back(std::move(key));
  }
}

void add_early_stopping(std::vector<Key>& keys) {
  const Place<EarlyStopping> place = {
      "run.early_stopping.", [](Configuration& c) -> EarlyStopping& { return c.run.early_stopping; },
      [](const Configuration& c) -> const EarlyStopping& { return c.run.early_stopping; }};
  add(keys, place, early_stopping_keys());
}

void add_keep_best(std::vector<Key>& keys) {
  const Place<WatchedMetric> place = {
      "checkpoint.keep_best.", [](Configuration& c) -> WatchedMetric& { return c.checkpoint.keep_best; },
      [](const Configuration& c) -> const WatchedMetric& { return c.checkpoint.keep_best; }};
  add(keys, place, keep_best_keys());
}

void refuse_doubles(const std::vector<Key>& keys) {
  std::set<std::string> paths;
  for (const Key& key : keys) {
    if (!paths.insert(key.path).second) throw std::logic_error("the key " + key.path + " is described twice");
  }
}

std::string cell(const std::string& text) {
  return text.empty() ? " |" : " " + text + " |";
}

std::string documented_default(const Key& key) {
  if (!key.about.otherwise.empty()) return key.about.otherwise;
  const std::string shown = key.show(Configuration{});
  const bool is_text = shown.starts_with('"') || shown.starts_with('[');
  return is_text ? "`" + shown + "`" : shown;
}

}  // namespace

std::vector<Key> configuration_keys() {
  using C = Configuration;
  std::vector<Key> keys;
  add(keys, place_of("run.", &C::run), run_keys());
  add_early_stopping(keys);
  add(keys, place_of("batch.", &C::batch), batch_keys());
  add_data(keys);
  add_with_kinds(keys, place_of("model.", &C::model), model_keys());
  add_with_kinds(keys, place_of("loss.", &C::loss), loss_keys());
  add_with_kinds(keys, place_of("optimizer.", &C::optimizer), optimizer_keys());
  add_with_kinds(keys, place_of("schedule.", &C::schedule), schedule_keys());
  add(keys, place_of("precision.", &C::precision), precision_keys());
  add(keys, place_of("batch_norm.", &C::batch_norm), batch_norm_keys());
  add(keys, place_of("memory.", &C::memory), memory_keys());
  add(keys, place_of("probe.", &C::probe), probe_keys());
  add(keys, place_of("comm.", &C::comm), comm_keys());
  add(keys, place_of("checkpoint.", &C::checkpoint), checkpoint_keys());
  add_keep_best(keys);
  add(keys, place_of("verify.", &C::verify), verify_keys());
  add(keys, place_of("log.", &C::log), log_keys());
  add(keys, place_of("simulate.", &C::simulate), simulate_keys());
  refuse_doubles(keys);
  return keys;
}

bool is_in_use(const Key& key, const Configuration& configuration) {
  return !key.in_use || key.in_use(configuration);
}

void set_key(Configuration& configuration, const std::string& path, const ConfigValue& value) {
  for (const Key& key : configuration_keys()) {
    if (key.path != path) continue;
    const Complaint complaint = key.read(value, configuration);
    if (!complaint.empty()) throw UserError(path + ": " + complaint);
    return;
  }
  throw UserError(path + ": no such key");
}

std::string key_rows() {
  std::string rows;
  for (const Key& key : configuration_keys()) {
    rows += "| `" + key.path + "` |" + cell(documented_default(key)) + cell(key.about.text) + "\n";
  }
  return rows;
}

}  // namespace onebatch
