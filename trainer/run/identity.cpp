#include "trainer/run/identity.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/shape_text.hpp"
#include "trainer/checkpoint/checkpoint_contents.hpp"
#include "trainer/checkpoint/run_checkpoint.hpp"
#include "trainer/checkpoint/run_state.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/settings/identity.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace onebatch {
namespace {

using Identity = std::map<std::string, std::string>;

Identity identity_of_data(const Configuration& configuration, const Dataset& data, const std::string& given_samples) {
  Identity identity = identity_of_run(configuration);
  identity["data.size"] = fmt::to_string(data.size());
  identity["data.shape"] = shape_text(data.sample_shape());
  identity[k_given_samples] = given_samples;
  if (const std::string digest = data.digest(); !digest.empty()) identity[k_data_digest] = digest;
  return identity;
}

}  // namespace

Identity run_identity(const Configuration& configuration, const Dataset& data, const std::string& given_samples,
                      const Model& model) {
  Identity identity = identity_of_data(configuration, data, given_samples);
  if (const std::string digest = model.program_digest(); !digest.empty()) identity[k_program_digest] = digest;
  return identity;
}

void warn_of_other_split(const std::filesystem::path& checkpoint, const Configuration& configuration,
                         const Dataset& data, const std::string& given_samples, comm::Communicator& control,
                         EventStream& events) {
  if (configuration.data.sampling.validation_fraction <= 0.0) return;
  Identity now = identity_of_data(configuration, data, given_samples);
  std::erase_if(now, [](const auto& item) {
    return item.first != "run.seed" && item.first != "data.validation.fraction" && item.first != "data.size" &&
           item.first != k_given_samples && item.first != k_data_digest;
  });
  const std::string differences = identity_differences(load_run_state(checkpoint, control).identity, now);
  if (!differences.empty())
    events.warn(
        "these samples may be some that the checkpoint's run has trained with, which had drawn others to validate "
        "with:" +
        differences);
}

void refuse_other_classes(const std::filesystem::path& checkpoint, const Dataset& data, comm::Communicator& control) {
  agree_on_rank_0(control, [&] {
    const std::vector<std::string> names = data.class_names();
    std::error_code ignored;
    const auto file =
        std::filesystem::weakly_canonical(checkpoint, ignored).parent_path().parent_path() / "classes.json";
    if (names.empty() || !std::filesystem::exists(file, ignored)) return;
    const auto trained = nlohmann::json::parse(read_text(file), nullptr, false);
    if (!trained.is_array()) return;
    const auto text = [](const auto& all, std::size_t i) {  // as the file was written
      return i < all.size() ? nlohmann::json(all[i]).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                            : std::string("none");
    };
    for (std::size_t i = 0; i < std::max(names.size(), trained.size()); ++i) {
      if (text(names, i) == text(trained, i)) continue;
      throw UserError(fmt::format(
          "class {} of this data is {}, and was {} in training ({}): the model's outputs would be taken for "
          "other classes: give it data of the same classes",
          i, text(names, i), text(trained, i), file.string()));
    }
  });
}

void warn_of_another_program(const std::filesystem::path& checkpoint, const Model& model, comm::Communicator& control,
                             EventStream& events) {
  if (model.program_digest().empty()) return;
  std::int64_t is_another = 0;
  agree_on_rank_0(control, [&] {
    const std::filesystem::path file = checkpoint / k_state_file;
    const Identity identity = parse_run_state(read_text(file), file.string()).identity;
    const auto trained = identity.find(k_program_digest);
    is_another = trained != identity.end() && trained->second != model.program_digest() ? 1 : 0;
  });
  control.broadcast(&is_another, sizeof(is_another), 0);
  if (is_another == 0) return;
  events.warn(
      "the program of model.path is not the one that was trained with these weights: what it computes may be something "
      "else. Give it the file that the run had");
}

}  // namespace onebatch
