// Tells whether files hold what they held, in a moment however large they are. No LibTorch here.
#pragma once

#include "trainer/io/checksum.hpp"
#include "trainer/io/data_file.hpp"

#include <cstdint>
#include <span>

namespace onebatch {

/// Some bytes of a file.
struct FileRegion {
  const DataFile* file;
  std::uint64_t begin;
  std::uint64_t bytes;
};

/// Adds how many bytes the regions have together, and these: up to 64 MiB all; of more, 64 KiB at places that are
/// evenly spread from the first to the last byte, 64 of them and as many as there are regions, 1,024 at most. Throws
/// UserError where a file cannot be read.
void add_contents(ChecksumStream& stream, std::span<const FileRegion> regions);

}  // namespace onebatch
