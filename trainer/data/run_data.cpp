#include "trainer/data/run_data.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/mix_bits.hpp"
#include "trainer/data/count_samples.hpp"
#include "trainer/data/dataset_kind.hpp"
#include "trainer/data/file_list.hpp"
#include "trainer/data/number_file.hpp"
#include "trainer/data/pipe_command.hpp"
#include "trainer/data/selection.hpp"
#include "trainer/data/subset.hpp"
#include "trainer/data/tensor_column.hpp"
#include "trainer/io/checksum.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>

namespace onebatch {
namespace {

constexpr std::uint64_t k_validation = 0x76616c6964617465ULL;  // what is drawn for
constexpr std::uint64_t k_fraction = 0x6672616374696f6eULL;

// Of each of the samples; none where one has no class of its own.
std::vector<std::int64_t> classes_of(const Dataset& data, std::span<const std::int64_t> samples) {
  std::vector<std::int64_t> classes;
  if (data.num_classes() == 0) return classes;
  classes.reserve(samples.size());
  for (const std::int64_t sample : samples) {
    const auto found = data.class_of(sample);
    if (!found) return {};
    classes.push_back(*found);
  }
  return classes;
}

SplitSamples split_by_class(const Dataset& data, std::span<const std::int64_t> samples, double fraction,
                            std::uint64_t key) {
  return split_samples(samples, classes_of(data, samples), fraction, key);
}

void check_not_empty(const std::vector<std::int64_t>& samples, std::int64_t of, const char* key, double fraction,
                     const char* what) {
  if (samples.empty())
    throw UserError(
        fmt::format("{} = {:g} of {} samples leaves none to {} with: write another", key, fraction, of, what));
}

// The numbers of the samples that train and that validate.
struct Parts {
  std::vector<std::int64_t> train;
  std::vector<std::int64_t> validation;
};

Parts choose_parts(const Dataset& data, const SamplingConfiguration& sampling, std::uint64_t seed) {
  Parts parts;
  if (sampling.subset.empty()) {
    parts.train.resize(static_cast<std::size_t>(data.size()));
    std::iota(parts.train.begin(), parts.train.end(), std::int64_t{0});
  } else {
    parts.train = read_sample_numbers(sampling.subset, data.size(), "data.subset");
  }
  const auto before = static_cast<std::int64_t>(parts.train.size());
  if (sampling.validation_fraction > 0.0) {
    SplitSamples split = split_by_class(data, parts.train, sampling.validation_fraction, mix_bits(seed ^ k_validation));
    parts = {std::move(split.others), std::move(split.chosen)};
    const char* key = "data.validation.fraction";
    check_not_empty(parts.train, before, key, sampling.validation_fraction, "train");
    check_not_empty(parts.validation, before, key, sampling.validation_fraction, "validate");
  }
  if (sampling.fraction < 1.0) {
    const auto left = static_cast<std::int64_t>(parts.train.size());
    parts.train = split_by_class(data, parts.train, sampling.fraction, mix_bits(seed ^ k_fraction)).chosen;
    check_not_empty(parts.train, left, "data.fraction", sampling.fraction, "train");
  }
  return parts;
}

// A tensor of the data's own files; none where they have none of that name.
std::optional<std::vector<double>> weights_in_files(const DatasetConfiguration& data, const std::string& name) {
  if (data.kind != "safetensors") return std::nullopt;
  const std::vector<TensorPiece> pieces = open_pieces(files_of(data, ".safetensors"));
  const auto& entries = pieces.front().header.entries;
  if (std::ranges::find(entries, name, &SafetensorsEntry::name) == entries.end()) return std::nullopt;
  const TensorColumn column(pieces, name, "data.sample_weights");
  if (column.shape().size() != 1)
    throw UserError(
        fmt::format("{}: data.sample_weights = \"{}\" must be one number for each sample", column.file_of(0), name));
  std::vector<double> weights;
  column.for_each_part(at::kDouble, [&](std::int64_t /*first*/, const at::Tensor& part) {
    weights.insert(weights.end(), part.const_data_ptr<double>(), part.const_data_ptr<double>() + part.numel());
  });
  return weights;
}

std::vector<double> given_weights(const DataConfiguration& data, std::int64_t count) {
  const std::string& name = data.sampling.weights;
  if (name.empty())
    throw UserError("data.sampling = \"weighted\" needs data.sample_weights: a file, or a tensor's name");
  auto weights = weights_in_files(data.train, name);
  if (!weights) return read_numbers(name, count, "data.sample_weights");
  if (static_cast<std::int64_t>(weights->size()) != count)
    throw UserError(fmt::format("{}: data.sample_weights = \"{}\" holds {} numbers, but there are {} samples",
                                data.train.path, name, weights->size(), count));
  return *weights;
}

void check_weights(std::span<const double> weights, const Dataset& data, const std::string& name) {
  double sum = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i];
    if (!(weights[i] >= 0.0) || !std::isfinite(sum))
      throw UserError(fmt::format("data.sample_weights = \"{}\": sample {} has {:g}: weights are finite numbers from 0",
                                  name, data.origin_of(static_cast<std::int64_t>(i)), weights[i]));
  }
  if (!(sum > 0.0))
    throw UserError(fmt::format("data.sample_weights = \"{}\": all are 0: write a larger one for some", name));
}

// Each class as often as another; what is ignored never.
std::vector<double> balancing_weights(const Dataset& data, std::optional<std::int64_t> ignored) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(data.size()));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  const std::vector<std::int64_t> classes = classes_of(data, all);
  if (classes.empty())
    throw UserError(
        "data.sampling = \"balanced\" is for samples of one class each: write \"shuffle\", or \"weighted\"");
  std::map<std::int64_t, std::int64_t> counts;
  for (const std::int64_t one : classes) ++counts[one];
  std::vector<double> weights;
  for (const std::int64_t one : classes)
    weights.push_back(one == ignored ? 0.0 : 1.0 / static_cast<double>(counts.at(one)));
  if (ignored && counts.size() == 1 && counts.contains(*ignored))
    throw UserError(
        fmt::format("data.sampling = \"balanced\": every sample's class is loss.ignore_index = {}", *ignored));
  return weights;
}

SampleDrawing drawing_of(const DataConfiguration& configuration, const Dataset& data,
                         std::optional<std::int64_t> ignored, std::int64_t count) {
  const Sampling order = configuration.sampling.order;
  if (order == Sampling::balanced) return drawn_by_weight(order, balancing_weights(data, ignored));
  if (order != Sampling::weighted) return {order};
  const std::vector<double> of_all = given_weights(configuration, count);
  std::vector<double> weights(static_cast<std::size_t>(data.size()));
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = of_all[static_cast<std::size_t>(data.origin_of(static_cast<std::int64_t>(i)))];
  check_weights(weights, data, configuration.sampling.weights);
  return drawn_by_weight(order, weights);
}

std::string checksum_of_given(const SamplingConfiguration& sampling, const Dataset& data,
                              const SampleDrawing& drawing) {
  if (sampling.subset.empty() && sampling.weights.empty()) return "none";
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(data.size()));
  std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
  numbers = origins_of(data, numbers);
  ChecksumStream sum;
  sum.update(std::as_bytes(std::span(numbers)));
  if (drawing.sums) sum.update(std::as_bytes(std::span(*drawing.sums)));
  return to_text(sum.value());
}

// Where files lie, however their names are written.
class Places {
 public:
  explicit Places(bool of_many) : of_many_(of_many) {}

  std::string of(const std::filesystem::path& file) {
    if (is_pipe(file.string())) return file.string();
    if (!of_many_) return std::filesystem::weakly_canonical(file).string();
    const auto [known, is_new] = folders_.try_emplace(file.parent_path().string());
    if (is_new) known->second = std::filesystem::weakly_canonical(known->first.empty() ? "." : known->first);
    return (known->second / file.filename()).string();
  }

 private:
  bool of_many_;
  std::map<std::string, std::filesystem::path> folders_;
};

// Two folders, neither in the other.
bool lie_apart(const DatasetConfiguration& one, const DatasetConfiguration& other) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(one.path, ignored) || !std::filesystem::is_directory(other.path, ignored))
    return false;
  const std::string first = std::filesystem::canonical(one.path).string() + "/";
  const std::string second = std::filesystem::canonical(other.path).string() + "/";
  return !first.starts_with(second) && !second.starts_with(first);
}

// A file within the other's folder, pattern or list: what validates would have been trained with.
void refuse_common_files(const DatasetConfiguration& train, const DatasetConfiguration& validation,
                         const OpenRequest& to_train, const OpenRequest& to_validate) {
  const DatasetKind& kind = chosen_kind<DatasetKind>(train);
  if (!kind.for_each_file || validation.kind != train.kind) return;
  if (kind.has_many_files && lie_apart(train, validation)) return;
  Places places(kind.has_many_files);
  std::set<std::string> validates;
  kind.for_each_file(validation, to_validate,
                     [&](const std::filesystem::path& file) { validates.insert(places.of(file)); });
  kind.for_each_file(train, to_train, [&](const std::filesystem::path& file) {
    if (validates.contains(places.of(file)))
      throw UserError(
          fmt::format("{} is among the files of data.path, which train, and of data.validation.path, which validates: "
                      "let the two name other files, or write data.validation.fraction = 0.1 for a part of one",
                      file.string()));
  });
}

}  // namespace

RunData open_run_data(const DataConfiguration& configuration, std::uint64_t seed, std::optional<std::int64_t> ignored) {
  const SamplingConfiguration& sampling = configuration.sampling;
  const bool splits = sampling.validation_fraction > 0.0;
  RunData run;
  run.train = open_dataset(configuration.train, Split::train, seed, ignored, configuration.augment);
  const std::int64_t count = run.train->size();
  if (splits || sampling.fraction < 1.0 || !sampling.subset.empty()) {
    Parts parts = choose_parts(*run.train, sampling, seed);
    const std::shared_ptr<const Dataset> whole = std::move(run.train);
    run.train = std::make_unique<Subset>(whole, std::move(parts.train), SampleChanges::kept);
    if (splits) run.validation = std::make_unique<Subset>(whole, std::move(parts.validation), SampleChanges::none);
  }
  if (configuration.validation && !splits) {
    const bool same_kind = configuration.validation->kind == configuration.train.kind;
    const OpenRequest to_validate{.split = Split::validation,
                                  .seed = seed,
                                  .ignored = ignored,
                                  .class_names = run.train->class_names(),
                                  .training_path = same_kind ? configuration.train.path : std::string()};
    refuse_common_files(configuration.train, *configuration.validation,
                        {.split = Split::train, .seed = seed, .ignored = ignored}, to_validate);
    run.validation = open_dataset(*configuration.validation, to_validate);
  }
  run.drawing = drawing_of(configuration, *run.train, ignored, count);
  run.given_samples = checksum_of_given(sampling, *run.train, run.drawing);
  return run;
}

std::optional<std::int64_t> count_samples(const DataConfiguration& data) {
  const SamplingConfiguration& sampling = data.sampling;
  std::optional<std::int64_t> count = count_samples(data.train);
  if (!count) return count;
  try {
    if (!sampling.subset.empty()) count = count_numbers(sampling.subset, "data.subset");
  } catch (const UserError&) {
    return std::nullopt;
  }
  *count -= share_of(*count, sampling.validation_fraction);
  return sampling.fraction < 1.0 ? share_of(*count, sampling.fraction) : *count;
}

}  // namespace onebatch
