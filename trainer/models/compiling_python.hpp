// A Python that can compile programs for this build: one with LibTorch's own PyTorch and the package `onebatch`. Free
// of LibTorch.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/io/child_process.hpp"

#include <optional>
#include <string>
#include <vector>

namespace onebatch {

/// The version of what a package says of itself, which the Python package and this program have to agree upon: FORMAT
/// in python/onebatch/compiling.py.
inline constexpr int k_compiled_format = 9;

struct CompilingPython {
  std::string program;
  std::string package_folder;  // where the package lies; empty: in that Python
};

/// One that was looked at and does not fit.
struct TriedPython {
  std::string called;
  std::string why_not;
};

struct PythonSearch {
  std::optional<CompilingPython> found;
  std::vector<TriedPython> tried;
};

/// Looks at ONEBATCH_PYTHON, where that is set at nothing else; then at the Python that LibTorch is a part of, at that
/// of VIRTUAL_ENV and at python3 of PATH. The package may lie beside this program: in a source tree or an installation.
PythonSearch find_compiling_python();

/// Each one that was tried, why it does not fit, and what to write: for people, in one line.
std::string why_no_python(const PythonSearch& search);

/// On what a compiled program runs.
struct CompiledFor {
  std::string capability = {};  // of a CUDA GPU, "9.0"; empty: a CPU
  int index = 0;                // of the GPU, among those that this process sees

  [[nodiscard]] bool is_gpu() const { return !capability.empty(); }
  /// As `--device` has it.
  [[nodiscard]] std::string name() const { return is_gpu() ? "cuda:" + std::to_string(index) : "cpu"; }
};

/// What is to be compiled, and how.
struct CompileWish {
  std::string program;                // its file
  std::string precision = "float32";  // as `--precision` has it
  LossConfiguration loss;             // of kind "model", "cross_entropy" or "mse"
  std::string device = "cpu";         // "cuda:0"
  bool deterministic = false;
  bool recompute = false;              // also a variant that computes activations again
  bool shared_batch_norm = false;      // statistics of other micro-batches too
  bool evaluation = true;              // also what validation runs
  std::string label_weights = "none";  // cross entropy: "given", or "mixed", as images' two labels
};

/// The options of `onebatch compile` for a loss, those left out that say what is the case without them.
std::vector<std::string> loss_options(const LossConfiguration& loss, const std::string& label_weights);

/// `python -m onebatch compile`, which writes the folder `out`; empty: it is named after the program.
ChildRequest compile_request(const CompilingPython& python, const CompileWish& wish, const std::string& out);

}  // namespace onebatch
