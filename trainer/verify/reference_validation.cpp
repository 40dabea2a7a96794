#include "trainer/verify/reference_validation.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace onebatch {

ReferenceValidation reference_validation(const ReferenceParts& parts, const Arithmetic& in,
                                         const TrainedValidation& found) {
  constexpr std::int64_t k_parts = 7;
  ReferenceModel model(parts, in, found.weights);
  BatchSums sums;
  Loss::Correct correct;
  const std::int64_t size = std::max<std::int64_t>(1, found.samples / k_parts);
  for (std::int64_t begin = 0; begin < found.samples; begin += size) {
    Group part(static_cast<std::size_t>(std::min(size, found.samples - begin)));
    std::iota(part.begin(), part.end(), begin);
    const BatchSums one = model.evaluate(found.data, part, found.step + 1, correct);
    sums = {sums.loss + one.loss, sums.weight + one.weight};
  }
  EvaluationResult result;
  result.samples = found.samples;
  result.loss = sums.weight > 0.0 ? sums.loss / sums.weight : NAN;
  if (correct.counted > 0.0) result.accuracy = correct.correct / correct.counted;
  return {result, sums.weight};
}

}  // namespace onebatch
