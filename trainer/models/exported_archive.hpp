// A program of torch.export as torch.export.save writes it (.pt2): a zip file of a graph in JSON and of tensors' bytes.
// Nothing in it is run, and no pickle of it is opened. No LibTorch here.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace onebatch {

/// A tensor in a record: every element lies in it.
struct ExportedTensor {
  std::string name;    // "layer1.0.conv1.weight"
  std::string record;  // "data/weights/weight_3"
  int type = 0;        // by the schema's numbers
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;  // in elements
  bool is_parameter = false;
  bool requires_grad = false;
};

struct ExportedArchive {
  nlohmann::json program;  // without what only people read
  std::string folder;      // "model/": all records lie in it, and are called without it here
  std::vector<ExportedTensor> tensors;
  std::map<std::string, std::string> records;  // bytes of those that tensors lie in
  std::string digest;                          // of the graph and its constants, whatever the weights
};

/// Throws UserError, which begins with `file`, or std::runtime_error with what is wrong: a zip file that is damaged
/// (zip_file.hpp) or packed, records that are missing, pickled or too small, versions that are not known.
ExportedArchive read_exported_archive(const std::string& file);

}  // namespace onebatch
