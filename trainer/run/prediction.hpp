// What a trained model returns for all samples of a data set, written as they come. Free of LibTorch.
#pragma once

#include "comm/world.hpp"
#include "trainer/base/configuration.hpp"
#include "trainer/base/weights_choice.hpp"
#include "trainer/events/event_stream.hpp"

#include <filesystem>

namespace onebatch {

enum class PredictedData { train, validation };

struct PredictionRequest {
  std::filesystem::path checkpoint;  // a step-N folder, or a run's folder for its latest
  std::filesystem::path target;      // rank 0 writes it, whole or not at all
  PredictedData data = PredictedData::validation;
  WeightsChoice weights = WeightsChoice::automatic;
};

/// A tensor of the file.
struct PredictedTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
};

struct PredictionResult {
  std::filesystem::path checkpoint;
  std::int64_t samples = 0;
  std::vector<PredictedTensor> tensors;
};

/// Writes "sample", each one's number in the data, and "outputs", or "output_0", "output_1", … where the model returns
/// several, in the order of the samples and in the types that the model returns. Samples are computed in blocks that
/// are the same on any ranks; a rank holds one of them at a time. Throws UserError, AgreedError, DoesNotFitError,
/// comm::CommError or LibTorch's errors. Collective.
PredictionResult predict(const Configuration& configuration, comm::World& world, EventStream& events,
                         const PredictionRequest& request);

}  // namespace onebatch
