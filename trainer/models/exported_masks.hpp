// Attention's masks that follow from the sizes of a program's inputs alone.
//
// Note [Masks that mask nothing]. A model in Python looks at its mask and calls attention without one, or says
// is_causal, for which there are faster kernels. A program of torch.export has the mask always: it was exported for
// any. Where no number of the data goes into it, the same sizes give the same mask. So it is computed once for each
// sizes that are met, on the CPU, whatever the device; where it masks nothing or just what lies ahead, the program runs
// without it and without the calls that make it.
#pragma once

#include "trainer/models/exported_calls.hpp"

#include <map>
#include <set>

namespace onebatch {

class AttentionMasks {
 public:
  /// Of a program that is whole: its own calls, not those of its regions. `program` and `mode` outlive this.
  AttentionMasks(const Block& program, const RunMode& mode);

  /// What to run for inputs of these sizes: the program, or one that does the same without its masks. It stays until
  /// the mode changes.
  [[nodiscard]] const Block& block_for(const std::vector<at::Tensor>& inputs);
  /// To be called when the mode has changed.
  void follow_mode();

 private:
  enum class Form { as_written, all_true, causal };
  using Forms = std::vector<Form>;  // of each attention
  using Sizes = std::vector<std::int64_t>;

  [[nodiscard]] Forms forms_for(const std::vector<at::Tensor>& inputs) const;
  [[nodiscard]] Block without_masks(const Forms& forms) const;
  static Form form_of(const at::Tensor& mask);

  const Block& program_;
  const RunMode& mode_;
  std::set<Slot> of_sizes_;              // values that follow from sizes
  std::vector<std::size_t> attentions_;  // calls of the program
  Block masks_;                          // what makes them alone
  std::map<Sizes, Forms> forms_;
  std::map<Forms, Block> blocks_;
};

}  // namespace onebatch
