// What makes a run the run that it is: no checkpoint of another is gone on from.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/base/configuration.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/events/event_stream.hpp"
#include "trainer/models/model.hpp"

#include <filesystem>
#include <map>
#include <string>

namespace onebatch {

/// Configuration that a resumed run must share with the checkpoint, by key.
std::map<std::string, std::string> run_identity(const Configuration& configuration, const Dataset& data,
                                                const std::string& given_samples, const Model& model);

/// Says so where a part of the training data validates (data.validation.fraction), and the run of the checkpoint had
/// drawn another part. Collective.
void warn_of_other_split(const std::filesystem::path& checkpoint, const Configuration& configuration,
                         const Dataset& data, const std::string& given_samples, comm::Communicator& control,
                         EventStream& events);

/// Refuses data whose classes have other names than those that the checkpoint's run has trained with (classes.json in
/// its folder): their numbers would be others. Collective; throws AgreedError.
void refuse_other_classes(const std::filesystem::path& checkpoint, const Dataset& data, comm::Communicator& control);

/// Says so where the model's program is another than that which the checkpoint's run has trained. Collective.
void warn_of_another_program(const std::filesystem::path& checkpoint, const Model& model, comm::Communicator& control,
                             EventStream& events);

}  // namespace onebatch
