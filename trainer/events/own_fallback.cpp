#include "trainer/events/own_fallback.hpp"

#include <fmt/format.h>

namespace onebatch {

void own_fallback(EventStream& events, comm::Communicator& control, const std::string& asked, const std::string& done) {
  const auto all = comm::all_gather_text(control, done);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty())
      return events.fallback(asked, (rank == 0 ? "" : fmt::format("on rank {} ", rank)) + all[rank]);
  }
}

}  // namespace onebatch
