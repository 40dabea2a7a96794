// What to say where a device has too little memory to go on.
#pragma once

#include <cstdint>
#include <string>

namespace onebatch {

inline constexpr const char* k_free_memory =
    "free memory there, or train on devices with more; train --resume goes on from the last checkpoint";

/// Why a run cannot go on that has begun with more memory.
std::string no_room_text(std::int64_t least, const std::string& device);

}  // namespace onebatch
