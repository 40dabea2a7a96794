// A sink of one's own: says at the end of a run which of its epochs was the best.
#include "sinks.hpp"

#include <cstdio>

namespace {

using namespace onebatch;

class BestEpoch {
 public:
  void operator()(const Event& event) {
    if (const auto* validated = std::get_if<event::Validated>(&event)) keep(*validated);
    if (std::holds_alternative<event::Ended>(event))
      std::printf("best epoch %lld\n", static_cast<long long>(best_.epoch));
  }

 private:
  void keep(const event::Validated& validated) {
    if (best_.epoch == 0 || validated.result.loss < best_.result.loss) best_ = validated;
  }

  event::Validated best_;
};

[[maybe_unused]] const bool k_registered = (sinks().push_back(BestEpoch()), true);

}  // namespace
