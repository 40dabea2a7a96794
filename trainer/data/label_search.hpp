// The class indices of a data set, looked through part by part.
#pragma once

#include "trainer/data/dataset.hpp"

#include <algorithm>

namespace onebatch {

class LabelSearch {
 public:
  /// `ignored`: the label that counts for nothing.
  explicit LabelSearch(std::optional<std::int64_t> ignored) : ignored_(ignored) {}

  /// Those of the samples from `first` on, int64 [samples, ...], contiguous on the CPU.
  void look_through(std::int64_t first, const at::Tensor& part) {
    const std::int64_t of_sample = part.numel() / part.size(0);
    const auto* value = part.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < part.numel(); ++i) {
      if (value[i] == ignored_) continue;
      const Label label{value[i], first + i / of_sample};
      if (!found_) found_ = LabelRange{label, label};
      if (label.value < found_->least.value) found_->least = label;
      if (label.value > found_->largest.value) found_->largest = label;
    }
  }

  [[nodiscard]] const std::optional<LabelRange>& found() const { return found_; }
  [[nodiscard]] std::int64_t num_classes() const {
    return found_ ? std::clamp<std::int64_t>(found_->largest.value, 0, k_most_classes - 1) + 1 : 1;
  }

 private:
  std::optional<std::int64_t> ignored_;
  std::optional<LabelRange> found_;
};

}  // namespace onebatch
