// Opens the training data of a configuration and writes some samples to a safetensors file, for a comparison with what
// Python reads. Prints, as JSON, what the data say of themselves, how long opening took, and how much memory of its own
// the process has more than before: after opening, and with an epoch's order and the samples read.
// show_samples CONFIG OUT EPOCH SAMPLE…: EPOCH -1 for samples as they are, else as that epoch trains with them; samples
// "order:N" are the epoch's first N.
// show_samples CONFIG --each FILE…: a line for each file, which stands for data.path, whether it was refused or all of
// it was read; in the end by how much the memory of its own has grown.
#include "launch/config_loader.hpp"
#include "trainer/base/error.hpp"
#include "trainer/data/augment.hpp"
#include "trainer/data/sample_order.hpp"
#include "trainer/io/tensor_file.hpp"
#include "trainer/run/built_in_kinds.hpp"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>

namespace onebatch {
namespace {

std::int64_t own_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8));
  }
  return 0;
}

std::string list(std::span<const std::int64_t> values) {
  std::string text;
  for (const std::int64_t value : values) text += fmt::format("{}{}", text.empty() ? "" : ", ", value);
  return "[" + text + "]";
}

Configuration configuration_of(const char* file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  const auto loaded = launch::load_config(text.str(), file, {});
  if (!loaded.mistakes.empty()) throw UserError(launch::mistakes_text(loaded.mistakes));
  return loaded.configuration;
}

std::vector<std::int64_t> samples_of(int argc, char** argv, std::uint64_t seed, const Dataset& data) {
  const std::string first = argc > 4 ? argv[4] : "";
  if (first.starts_with("order:"))
    return SampleOrder(seed, data.size(), std::stoll(first.substr(6)), LastBatch::exact).next();
  std::vector<std::int64_t> samples;
  for (int i = 4; i < argc; ++i) samples.push_back(std::stoll(argv[i]));
  return samples;
}

void save(const char* file, const Batch& batch) {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) tensors.push_back({fmt::format("input{}", i), batch.inputs[i]});
  if (batch.targets.defined()) tensors.push_back({"target", batch.targets});
  if (batch.weights.defined()) tensors.push_back({"weights", batch.weights});
  save_tensors(file, tensors);
}

int show(int argc, char** argv) {
  const Configuration c = configuration_of(argv[1]);
  const std::int64_t epoch = std::stoll(argv[3]);
  const std::int64_t before = own_kib();
  const auto begun = std::chrono::steady_clock::now();
  const auto data = open_dataset(c.data.train, Split::train, c.run.seed, c.loss.ignore_index, c.data.augment);
  const std::chrono::duration<double> opening = std::chrono::steady_clock::now() - begun;
  const std::int64_t opened = own_kib() - before;
  const auto samples = samples_of(argc, argv, c.run.seed, *data);
  check_augmentation(c.data.augment, *data);
  const TrainingData training(*data, c.data.augment, {c.run.seed, epoch});
  const Batch batch = epoch < 0 ? data->gather(samples, at::kFloat) : training.gather(samples, at::kFloat);
  const Batch kept = epoch < 0 ? data->read(samples, at::kFloat) : training.read(samples, at::kFloat);
  const std::int64_t read = own_kib() - before;
  save(argv[2], batch);
  const auto labels = data->labels();
  std::cout << fmt::format(
      R"({{"size": {}, "shape": {}, "classes": {}, "labels": {}, "lengths": {}, "samples": {}, "seconds": {:.4f}, )"
      R"("opened_kib": {}, "read_kib": {}, "pixels": {}}})",
      data->size(), list(data->sample_shape()), data->num_classes(),
      labels ? fmt::format("[{}, {}, {}, {}]", labels->least.value, labels->least.sample, labels->largest.value,
                           labels->largest.sample)
             : "null",
      list(data->lengths()), list(samples), opening.count(), opened, read,
      kept.pixels.has_value() && kept.inputs.front().scalar_type() == at::kByte);
  std::cout << std::endl;
  return 0;
}

std::string read_all(const Configuration& c) {
  try {
    const auto data = open_dataset(c.data.train, Split::train, c.run.seed, c.loss.ignore_index);
    for (std::int64_t sample = 0; sample < data->size(); ++sample) data->gather({&sample, 1}, at::kFloat);
  } catch (const UserError& error) {
    const std::string said = error.what();
    return "refused " + said.substr(0, said.find('\n'));
  }
  return "read";
}

int read_each(int argc, char** argv) {
  Configuration c = configuration_of(argv[1]);
  const std::int64_t before = own_kib();  // some of LibTorch's libraries have 120 MB of their own
  for (int i = 3; i < argc; ++i) {
    c.data.train.path = argv[i];
    std::cout << read_all(c) << std::endl;
  }
  std::cout << fmt::format("own {} KiB", own_kib() - before) << std::endl;
  return 0;
}

}  // namespace
}  // namespace onebatch

int main(int argc, char** argv) {
  if (argc < 4) return 1;
  try {
    onebatch::register_built_in_kinds();
    return std::string(argv[2]) == "--each" ? onebatch::read_each(argc, argv) : onebatch::show(argc, argv);
  } catch (const onebatch::UserError& error) {
    std::cout << error.what() << std::endl;
    return 2;
  }
}
