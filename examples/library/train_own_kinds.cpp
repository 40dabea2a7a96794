// Trains with a model, data, an optimizer, a schedule and a loss of the program's own, each in one file of kinds/, and
// tells a sink of its own, in a file of sinks/. What a configuration may say is known of kinds too: which keys they
// have, and what is wrong with a value.
#include "sinks/sinks.hpp"

#include <cstdio>

namespace {

onebatch::ConfigValue text(const char* word) {
  return {std::string(word)};
}

onebatch::Configuration own_kinds() {
  onebatch::register_built_in_kinds();
  onebatch::Configuration configuration;
  const auto set = [&](const char* path, const onebatch::ConfigValue& value) {
    onebatch::set_key(configuration, path, value);
  };
  set("run.epochs", {std::int64_t{10}});
  set("batch.global_batch_size", {std::int64_t{50}});
  set("data.kind", text("quadrants"));
  set("data.points", {std::int64_t{500}});
  set("data.validation.points", {std::int64_t{100}});
  set("model.kind", text("bottleneck"));
  set("model.waist", {std::int64_t{16}});
  set("optimizer.kind", text("lion"));
  set("optimizer.lr", {0.01});
  set("schedule.kind", text("triangle"));
  set("loss.kind", text("focal"));
  set("loss.gamma", {1.5});
  return configuration;
}

void show_keys_of_own() {
  for (const onebatch::Key& key : onebatch::configuration_keys()) {
    for (const char* own : {"data.points", "model.waist", "schedule.period", "loss.gamma"}) {
      if (key.path == own) std::printf("%s: %s\n", own, key.about.text.c_str());
    }
  }
}

}  // namespace

int main() {
  const auto world = onebatch::comm::World::create();
  onebatch::Configuration configuration = own_kinds();
  try {
    onebatch::set_key(configuration, "model.waist", {std::int64_t{0}});
  } catch (const onebatch::UserError& error) {
    std::printf("%s\n", error.what());
  }
  if (world->rank() == 0) show_keys_of_own();
  onebatch::Session session(configuration, *world, sinks(), {});
  const auto result = session.train();
  if (world->rank() == 0)
    std::printf("%lld steps, accuracy %.2f\n", static_cast<long long>(result.steps),
                result.validation ? result.validation->accuracy.value_or(0.0) : 0.0);
  world->close();
}
