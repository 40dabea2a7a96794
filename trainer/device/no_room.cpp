#include "trainer/device/no_room.hpp"

#include <fmt/format.h>

namespace onebatch {

std::string no_room_text(std::int64_t least, const std::string& device) {
  return fmt::format("not even {} on {} any more: {}",
                     least == 1 ? "one sample fits" : fmt::format("a micro-batch of {} samples fits", least), device,
                     k_free_memory);
}

}  // namespace onebatch
