#include "launch/predict_command.hpp"

#include "launch/config_loader.hpp"
#include "launch/standard_streams.hpp"
#include "launch/weights_option.hpp"
#include "launch/written_files.hpp"
#include "trainer/base/error.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/run/prediction.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;

// Whether one of these assignments says where the section's data lie.
bool says_where(const std::vector<std::string>& assignments, const std::string& section) {
  const LoadedConfig loaded = load_config("", "--set", assignments);
  return loaded.origins.contains(section + ".path") || loaded.origins.contains(section + ".files");
}

// New samples would be passed over in silence.
void check_data_is_meant(const Arguments& arguments) {
  if (!arguments.split.empty() || says_where(arguments.assignments, "data.validation")) return;
  for (const std::string& one : arguments.assignments) {
    if (says_where({one}, "data"))
      throw UserError(
          fmt::format("--set {} gives other data, and predict takes [data.validation] unless told: add --data all "
                      "(or --data train, --data validation)",
                      one));
  }
}

void check_target(const Arguments& arguments, const Configuration& configuration) {
  const fs::path file = arguments.target_file;
  if (file.extension() != ".safetensors")
    throw UserError(fmt::format("--out {}: write a name that ends in .safetensors", file.string()));
  check_is_not_read("--out", file, files_read(configuration));
  check_can_be_written("--out", file);
  if (fs::exists(fs::symlink_status(file)) && !arguments.overwrite)
    throw UserError(
        fmt::format("--out {} is there already: add --force to replace it, or write another name", file.string()));
}

// Which samples they are.
struct Chosen {
  std::string split;
  DatasetConfiguration data;
};

Chosen chosen_data(const Arguments& arguments, const DataConfiguration& data) {
  const std::string split = arguments.split.empty() ? "validation" : arguments.split;
  return {split, split == "validation" ? data.validation.value_or(data.train) : data.train};
}

std::string place_of(const DatasetConfiguration& data) {
  if (data.files.empty()) return data.path.empty() ? "kind " + data.kind : data.path;
  const std::string first = (fs::path(data.path) / data.files.front()).string();
  return data.files.size() == 1 ? first : fmt::format("{} and {} more", first, data.files.size() - 1);
}

std::string words_of(const Chosen& chosen) {
  const std::string place = place_of(chosen.data);
  if (chosen.split == "validation") return "data.validation of " + place;
  return (chosen.split == "train" ? "the training data of " : "all data of ") + place;
}

std::string document_of(const Arguments& arguments, const Chosen& chosen, const PredictionResult& result) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const PredictedTensor& tensor : result.tensors)
    tensors.push_back({{"name", tensor.name}, {"type", tensor.dtype}, {"sizes", tensor.shape}});
  const nlohmann::ordered_json document = {{"file", arguments.target_file}, {"checkpoint", result.checkpoint.string()},
                                           {"data", chosen.split},          {"path", chosen.data.path},
                                           {"samples", result.samples},     {"tensors", tensors}};
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string predict_outputs(const Arguments& arguments, const Configuration& given, comm::World& world,
                            EventStream& events) {
  agree_on_rank_0(world.control(), [&] {
    check_data_is_meant(arguments);
    check_target(arguments, given);
  });
  const Chosen chosen = chosen_data(arguments, given.data);
  Configuration configuration = given;
  if (chosen.split == "all") {
    configuration.data.sampling = {};
    configuration.data.validation.reset();
  }
  const PredictionResult result =
      predict(configuration, world, events,
              {.checkpoint = arguments.checkpoint,
               .target = arguments.target_file,
               .data = chosen.split == "validation" ? PredictedData::validation : PredictedData::train,
               .weights = weights_choice(arguments.weights)});
  if (world.rank() == 0 && !arguments.quiet) {
    std::string outputs;
    for (const PredictedTensor& tensor : result.tensors)
      outputs += fmt::format("{}{} [{}]", outputs.empty() ? "" : ", ", tensor.name, fmt::join(tensor.shape, ", "));
    print_out(fmt::format("{} has what {} returns for {} samples ({}): {}\n", arguments.target_file,
                          result.checkpoint.string(), result.samples, words_of(chosen), outputs));
  }
  return document_of(arguments, chosen, result);
}

}  // namespace onebatch::launch
