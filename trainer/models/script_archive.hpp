// A TorchScript archive, checked before LibTorch opens it: LibTorch compares no checksums and takes sizes on trust. No
// LibTorch here.
#pragma once

#include "trainer/io/zip_file.hpp"

namespace onebatch {

/// The zip file is whole (zip_file.hpp), but for the bytes of tensors and code, which the caller compares with their
/// checksums; its pickles can be followed, every tensor lies in its storage and every storage in its record. Returns
/// its records, without the folder that all lie in. Throws std::runtime_error with what is wrong.
std::vector<ZipRecord> check_script_archive(const std::string& file);

}  // namespace onebatch
