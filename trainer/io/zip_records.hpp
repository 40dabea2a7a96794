// A zip file copied byte for byte, with other bytes in some of its records. No LibTorch here.
#pragma once

#include "trainer/io/checksum.hpp"

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>

namespace onebatch {

/// Bytes by the name of a record that is not packed: as many as it has.
using RecordBytes = std::map<std::string, std::span<const std::byte>>;

/// Writes `source` to `target` with these records' bytes and their CRC-32 in place of the old ones; whatever else is in
/// the file stays where and as it is. `source` is whole (read_zip). Syncs; returns the checksum of what was written.
/// Throws std::runtime_error naming a record that is missing, packed or of another size, std::system_error as
/// DurableFile does.
Checksum copy_with_records(const std::filesystem::path& source, const std::filesystem::path& target,
                           const RecordBytes& records);

}  // namespace onebatch
