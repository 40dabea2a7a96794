// What a compiled program says of itself, and whether it may run here. It is looked at before any of its code is.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/models/compiling_python.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace onebatch {

/// A tensor that the code takes, which does not look at its shape itself.
struct CompiledInput {
  struct Size {
    std::int64_t fixed = 0;
    std::string symbol;  // empty: it is fixed; else the same wherever it stands
  };
  std::string type;  // as torch names it: "float32"
  std::vector<Size> sizes;
};

/// What one of its functions takes.
struct CompiledSignature {
  std::vector<CompiledInput> inputs;
  std::map<std::string, std::vector<std::int64_t>> ranges;  // of the sizes that vary: the least and the most
};

/// A folder that `onebatch compile` has written.
struct CompiledPackage {
  static constexpr std::size_t k_before_sums = 3;  // of the inputs, as they are listed below

  std::filesystem::path training;        // AOTInductor's file: forward and backward
  std::filesystem::path lean;            // the same, which computes activations again; empty: not in this run
  bool program_recomputes = false;       // instead of such a variant: with exact BatchNorm it does in any case
  std::vector<std::string> trained;      // parameters, each of which has a sum that its gradient is added to
  std::vector<std::size_t> overwritten;  // of those the places to whose sums it adds one matrix product, and no more
  std::vector<std::string> changes;      // buffers that the code writes to
  bool shares_statistics = false;        // of BatchNorms, with whoever computes at the same time
  CompiledSignature takes;           // sample numbers [N]; a number of seed and step; a factor; the sums; the program's
  std::filesystem::path evaluation;  // what validation runs; empty: nothing does
  CompiledSignature evaluation_takes;            // the program's inputs
  std::string why_no_evaluation;                 // where it could not be compiled
  std::vector<double> class_weights;             // that the code reads, or none
  std::map<std::string, std::size_t> constants;  // tensors of the program's code, by their places in its order
};

/// What it has to be made for.
struct CompiledRequest {
  std::filesystem::path folder;
  const Configuration& configuration;
  std::string torch_version;
  CompiledFor device = {};
  std::string program_digest = {};  // of program_digest(); empty: it is read here
};

/// Whether the run's code needs BatchNorms that share statistics, and a variant that computes activations again.
bool shares_statistics(const Configuration& configuration);
bool has_variants(const Configuration& configuration);
/// Whether it needs code that evaluates.
bool validates(const Configuration& configuration);

/// Why no package is made for such a run, and what to write for one; empty: one is.
std::string why_not_compiled(const Configuration& configuration);

/// In what a package for the run computes, as `onebatch compile --precision` has it.
std::string compiled_precision(const Configuration& configuration);

/// What the run's labels weigh, as `onebatch compile --label-weights` has it.
std::string label_weights_of(const Configuration& configuration);

/// SHA-1 of the run's program, all of which it reads. Throws UserError where it cannot.
std::string program_digest(const Configuration& configuration);

/// What a package for the run is called among others: a digest of the request's program, precision, loss and version
/// of PyTorch, of onebatch's version and of this machine's processor and GPU.
std::string compiled_key(const CompiledRequest& request);

/// Throws UserError that names what does not fit: another version of PyTorch, another machine, another precision, loss
/// or program than the run's, files that are damaged. Reads all of the program's file and of the package's.
CompiledPackage check_compiled(const CompiledRequest& request);

}  // namespace onebatch
