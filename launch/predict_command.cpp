#include "launch/predict_command.hpp"

#include "launch/standard_streams.hpp"
#include "launch/weights_option.hpp"
#include "launch/written_files.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/run/prediction.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;

void check_target(const Arguments& arguments) {
  const fs::path file = arguments.target_file;
  if (file.extension() != ".safetensors")
    throw UserError(fmt::format("--out {}: write a name that ends in .safetensors", file.string()));
  check_can_be_written("--out", file);
  if (fs::exists(fs::symlink_status(file)) && !arguments.overwrite)
    throw UserError(
        fmt::format("--out {} is there already: add --force to replace it, or write another name", file.string()));
}

std::string document_of(const Arguments& arguments, const PredictionResult& result) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const PredictedTensor& tensor : result.tensors)
    tensors.push_back({{"name", tensor.name}, {"type", tensor.dtype}, {"sizes", tensor.shape}});
  const nlohmann::ordered_json document = {{"file", arguments.target_file},
                                           {"checkpoint", result.checkpoint.string()},
                                           {"samples", result.samples},
                                           {"tensors", tensors}};
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string predict_outputs(const Arguments& arguments, const Configuration& given, comm::World& world,
                            EventStream& events) {
  Configuration configuration = given;
  if (arguments.split == "all") {
    configuration.data.sampling = {};
    configuration.data.validation.reset();
  }
  agree_on_rank_0(world.control(), [&] { check_target(arguments); });
  const PredictionResult result =
      predict(configuration, world, events,
              {.checkpoint = arguments.checkpoint,
               .target = arguments.target_file,
               .data = arguments.split == "train" || arguments.split == "all" ? PredictedData::train
                                                                              : PredictedData::validation,
               .weights = weights_choice(arguments.weights)});
  if (world.rank() == 0 && !arguments.quiet) {
    std::string outputs;
    for (const PredictedTensor& tensor : result.tensors)
      outputs += fmt::format("{}{} [{}]", outputs.empty() ? "" : ", ", tensor.name, fmt::join(tensor.shape, ", "));
    print_out(fmt::format("{} has what {} returns for {} samples: {}\n", arguments.target_file,
                          result.checkpoint.string(), result.samples, outputs));
  }
  return document_of(arguments, result);
}

}  // namespace onebatch::launch
