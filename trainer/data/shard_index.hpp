// Where the samples of a tar file lie, remembered from one run to the next. No LibTorch here.
#pragma once

#include "trainer/data/tar_file.hpp"

namespace onebatch {

/// What index_samples() returns, out of the cache where the file is the one that was indexed: the same path, device,
/// inode, size and time of change. Else the file is indexed, and what was found is kept, where there is room. An entry
/// that is damaged, or of another file or other endings, is made anew. A file that has changed within the last second
/// is not remembered.
std::vector<TarPlace> remembered_samples(const DataFile& file, const std::vector<std::string>& endings);

/// $XDG_CACHE_HOME/onebatch/shards, or ~/.cache/onebatch/shards; empty where there is no home: nothing is kept.
std::filesystem::path shard_index_folder();

}  // namespace onebatch
