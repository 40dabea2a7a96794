// model.compiled = "auto": where packages are kept that runs of this user have made, and how one is made.
#pragma once

#include "trainer/models/compiled_package.hpp"
#include "trainer/models/compiling_python.hpp"

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace onebatch {

inline constexpr std::chrono::minutes k_longest_compilation{60};

class CompiledCache {
 public:
  /// What is kept of the run: a package, or why there is none; neither: nothing was tried yet.
  struct Answer {
    std::optional<CompiledPackage> package = {};
    std::string why_not = {};

    [[nodiscard]] bool known() const { return package.has_value() || !why_not.empty(); }
  };

  /// Throws UserError where others than this user may write to the cache's folder: what lies in it is run. Reads all of
  /// the program's file.
  CompiledCache(const Configuration& configuration, std::string torch_version, CompiledFor device);

  /// The package's folder, whether it is there or not; empty: there is no home folder.
  [[nodiscard]] const std::filesystem::path& place() const { return place_; }

  /// What is there now. A package that is damaged is none. Throws UserError as the constructor does.
  [[nodiscard]] Answer look() const;

  /// Compiles, where nobody else has meanwhile; of all processes that share the cache one does, and the others wait for
  /// it, and take its answer. That the program cannot be compiled is kept. `stop` is asked again and again. Throws
  /// std::system_error where the cache cannot be written.
  Answer make(const CompilingPython& python, const std::function<bool()>& stop) const;

 private:
  [[nodiscard]] std::filesystem::path beside(const char* ending) const;
  [[nodiscard]] CompiledRequest request(const std::filesystem::path& folder) const;
  Answer compile(const CompilingPython& python, const std::function<bool()>& stop) const;
  [[nodiscard]] std::optional<std::pair<std::filesystem::file_time_type, std::string>> tried() const;
  Answer tell_waiting(const std::string& why) const;
  Answer keep(const std::filesystem::path& made) const;
  Answer keep_failure(const std::string& why) const;

  const Configuration& configuration_;
  std::string torch_version_;
  CompiledFor device_;
  std::string program_digest_;
  std::filesystem::path place_;
};

}  // namespace onebatch
