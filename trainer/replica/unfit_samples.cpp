#include "trainer/replica/unfit_samples.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/shape_text.hpp"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>

namespace onebatch {
namespace {

bool says(const std::string& words, const char* part) {
  return words.find(part) != std::string::npos;
}

enum class Numbers { whole, floating };

// Names, as "data.inputs \"x\"".
std::string inputs_of(const Batch& batch, const Dataset& data, Numbers numbers) {
  std::string names;
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    const at::Tensor& input = batch.inputs[i];
    if (input.is_floating_point() != (numbers == Numbers::floating)) continue;
    names += (names.empty() ? "" : ", ") + data.name_of(i);
  }
  return names;
}

std::string ranges_of(const Batch& batch, const Dataset& data) {
  std::string ranges;
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    const at::Tensor& input = batch.inputs[i];
    if (input.is_floating_point() || input.numel() == 0) continue;
    ranges += fmt::format("{}{} is {} to {}", ranges.empty() ? "" : ", ", data.name_of(i),
                          input.min().item<std::int64_t>(), input.max().item<std::int64_t>());
  }
  return ranges;
}

std::string what_to_change(const Batch& batch, const Dataset& data, const std::string& words) {
  if (is_outside_a_table(words))
    return fmt::format(
        "A number is outside of an embedding's table (of these samples {}): make its num_embeddings larger than the "
        "largest of all samples, or mend the data",
        ranges_of(batch, data));
  const std::string floating = inputs_of(batch, data, Numbers::floating);
  if (says(words, "scalar types: Long") && !floating.empty())
    return fmt::format("Whole numbers are needed where it is given floats: save {} so, as x.long()", floating);
  const std::string whole = inputs_of(batch, data, Numbers::whole);
  if ((says(words, "Long") || says(words, "long int")) && !whole.empty())
    return fmt::format(
        "Floats are needed where it is given whole numbers: save {} so, as x.float(), or images in 8 bits with "
        "data.mean and data.std",
        whole);
  return "Shapes that fit are those that it was made for: change the data or data.inputs, or save the model for these";
}

}  // namespace

// TorchScript puts its stack before the words of what went wrong, and LibTorch its own behind them.
std::string own_words(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string words = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  words.erase(words.find_last_not_of(" \n") + 1);
  if (words.find("TorchScript interpreter") != std::string::npos) words.erase(0, words.rfind('\n') + 1);
  return words;
}

bool is_outside_a_table(const std::string& words) {
  return says(words, "index out of range in self");
}

void refuse_samples(const Batch& batch, const Dataset& data, const Configuration& configuration,
                    const std::string& words) {
  std::string shapes;
  for (std::size_t i = 0; i < batch.inputs.size(); ++i)
    shapes += fmt::format("{}{} {} {}", i == 0 ? "" : ", ", data.name_of(i),
                          std::string(batch.inputs[i].dtype().name()), shape_text(batch.inputs[i].sizes()));
  const ModelConfiguration& model = configuration.model;
  const std::string& place = configuration.data.train.path;
  throw UserError(fmt::format("{} does not take the samples of {}: given {}, of {} samples, it says\n  {}\n{}",
                              model.path.empty() ? fmt::format("model.kind = \"{}\"", model.kind) : model.path,
                              place.empty() ? fmt::format("data.kind = \"{}\"", configuration.data.train.kind) : place,
                              shapes, batch.inputs.empty() ? 0 : batch.inputs.front().size(0), words,
                              what_to_change(batch, data, words)));
}

}  // namespace onebatch
