// A format of data: how it is opened, and how many samples there are without opening it on any device.
#pragma once

#include "trainer/data/dataset.hpp"
#include "trainer/settings/kinds.hpp"

#include <filesystem>

namespace onebatch {

/// What values are computed in before they become `type`.
inline at::ScalarType filled_as(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

struct OpenRequest {
  Split split;
  std::uint64_t seed;
  std::optional<std::int64_t> ignored;        // the label that counts for nothing, and is no class
  AugmentConfiguration augment = {};          // of the training split, for data sets that change samples by themselves
  std::vector<std::string> class_names = {};  // the training data's, for the validation split
  std::string training_path = {};             // likewise, where that is of the same kind
};

struct DatasetKind : Kind<DatasetConfiguration> {
  /// Throws UserError that names the file, what is wrong with it and what was expected.
  std::function<std::unique_ptr<Dataset>(const DatasetConfiguration&, const OpenRequest&)> open;
  /// Of the training data; throws UserError where it is not here. None: nobody knows before it is opened.
  std::function<std::int64_t(const DatasetConfiguration&)> count_samples;
  /// Gives each file that samples are read from; empty: no two data sets of the kind have some in common unseen. Throws
  /// UserError.
  std::function<void(const DatasetConfiguration&, const OpenRequest&,
                     const std::function<void(const std::filesystem::path&)>&)>
      for_each_file;
  /// They are so many that they are not looked at one by one where the folders tell: all lie in `path`, links aside.
  bool has_many_files = false;

  /// Those of trainer/data/sources.cmake.
  static std::vector<DatasetKind> built_in();
};

/// A kind's for_each_file where its samples lie in the files that files_of names.
decltype(DatasetKind::for_each_file) each_file_of(std::string extension);
/// A kind's check: complains where the validation data would be the training data's own files.
void refuse_same_files(const DatasetConfiguration& data, const CheckRequest& request);

}  // namespace onebatch
