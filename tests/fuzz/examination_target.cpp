// What rank 0 tells the others of a model.
#include "trainer/graph/examination.hpp"

#include "tests/fuzz/fuzz_target.hpp"

namespace onebatch::fuzz {
namespace {

void run(std::string_view input) {
  check_round_trip<std::invalid_argument>(input, Examination::from_text,
                                          [](const Examination& examination) { return examination.to_text(); });
  const auto examination =
      unless_refused<std::invalid_argument>([&] { return Examination::from_text(std::string(input)); });
  if (examination) static_cast<void>(reasons_not_to_train(*examination, CountersRun::once_per_step));
}

const Registered k_registered("examination", run);

}  // namespace
}  // namespace onebatch::fuzz
