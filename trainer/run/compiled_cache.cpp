#include "trainer/run/compiled_cache.hpp"

#include "trainer/base/error.hpp"
#include "trainer/io/cache_folder.hpp"
#include "trainer/io/descriptor.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/io/folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <sstream>
#include <system_error>
#include <thread>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds k_between_looks{100};
constexpr mode_t k_others_write = 022;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void check_own(const fs::path& file) {
  struct stat found {};
  if (::lstat(file.c_str(), &found) != 0) fail("cannot read " + file.string());
  const bool plain = S_ISDIR(found.st_mode) || S_ISREG(found.st_mode);
  if (!plain || found.st_uid != ::geteuid() || (found.st_mode & k_others_write) != 0)
    throw UserError(
        fmt::format("model.compiled = \"auto\": {} is not this user's alone to write, and code in it would run: remove "
                    "it, or set XDG_CACHE_HOME to another place",
                    file.string()));
}

// Only one process at a time compiles for a place.
class Turn {
 public:
  explicit Turn(const fs::path& file) : descriptor_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (descriptor_.get() < 0) fail("cannot write " + file.string());
  }

  // False: it is to stop.
  bool wait(const std::function<bool()>& stop) const {
    while (::flock(descriptor_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) fail("flock");
      if (stop()) return false;
      std::this_thread::sleep_for(k_between_looks);
    }
    return true;
  }

 private:
  Descriptor descriptor_;
};

// Where one is made; nothing of it is left.
class Workshop {
 public:
  explicit Workshop(fs::path folder) : folder_(std::move(folder)) {
    fs::remove_all(folder_);  // of a process that was killed
    if (::mkdir(folder_.c_str(), 0700) != 0) fail("cannot make " + folder_.string());
  }
  ~Workshop() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;

  [[nodiscard]] fs::path product() const { return folder_ / "package"; }

 private:
  fs::path folder_;
};

void keep_to_oneself(const fs::path& folder) {
  fs::permissions(folder, fs::perms::owner_all);
  for (const auto& entry : entries_of(folder))
    fs::permissions(entry.path(), fs::perms::owner_read | fs::perms::owner_write);
}

// Of all that Python has said: what the package has, else the last line.
std::string reason_of(const std::string& text) {
  constexpr std::string_view k_before = "onebatch: ";
  std::string own;
  std::string last = "nothing was said";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(k_before)) own = line.substr(k_before.size());
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  }
  return own.empty() ? last : own;
}

}  // namespace

CompiledCache::CompiledCache(const Configuration& configuration, std::string torch_version, CompiledFor device)
    : configuration_(configuration),
      torch_version_(std::move(torch_version)),
      device_(std::move(device)),
      program_digest_(program_digest(configuration)) {
  const fs::path folder = cache_folder("compiled");
  if (folder.empty()) return;
  place_ = folder / compiled_key(request({}));
  if (fs::exists(fs::symlink_status(folder))) check_own(folder);
}

CompiledRequest CompiledCache::request(const fs::path& folder) const {
  return {folder, configuration_, torch_version_, device_, program_digest_};
}

fs::path CompiledCache::beside(const char* ending) const {
  return place_.string() + ending;
}

CompiledCache::Answer CompiledCache::look() const {
  if (place_.empty()) return {.why_not = "there is no home folder to keep it in: set XDG_CACHE_HOME"};
  if (fs::exists(beside(".failed"))) {
    check_own(beside(".failed"));
    return {.why_not = fmt::format("{} (as an earlier run has found; remove {} for another try)",
                                   reason_of(read_text(beside(".failed"))), beside(".failed").string())};
  }
  if (!fs::exists(fs::symlink_status(place_))) return {};
  check_own(place_);
  for (const auto& entry : entries_of(place_)) check_own(entry.path());
  try {
    return {.package = check_compiled(request(place_))};
  } catch (const UserError&) {
    return {};
  }
}

CompiledCache::Answer CompiledCache::make(const CompilingPython& python, const std::function<bool()>& stop) const {
  const fs::path folder = place_.parent_path();
  fs::create_directories(folder.parent_path());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) fail("cannot make " + folder.string());
  check_own(folder);
  const auto before = tried();
  const Turn turn(beside(".lock"));
  if (!turn.wait(stop)) return {.why_not = "it was to stop before the program was compiled"};
  if (Answer meanwhile = look(); meanwhile.known()) return meanwhile;
  if (const auto now = tried(); now && now != before) return {.why_not = now->second};
  return compile(python, stop);
}

// When another has written that it may do the next time, and why it did not.
std::optional<std::pair<fs::file_time_type, std::string>> CompiledCache::tried() const {
  try {
    return std::pair(fs::last_write_time(beside(".tried")), reason_of(read_text(beside(".tried"))));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

CompiledCache::Answer CompiledCache::compile(const CompilingPython& python, const std::function<bool()>& stop) const {
  const Workshop workshop(beside(".making"));
  const CompileWish wish{configuration_.model.path,
                         compiled_precision(configuration_),
                         configuration_.loss,
                         device_.name(),
                         configuration_.run.deterministic != Determinism::off,
                         has_variants(configuration_),
                         shares_statistics(configuration_),
                         validates(configuration_),
                         label_weights_of(configuration_)};
  ChildRequest request = compile_request(python, wish, workshop.product().string());
  std::string said;
  request.error = [&](std::string_view text) { said += text; };
  request.stop = stop;
  request.patience = k_longest_compilation;
  const ChildResult result = run_child(request);
  if (result.end == ChildEnd::stopped) return {.why_not = "it was to stop while the program was compiled"};
  if (result.end == ChildEnd::too_late)
    return keep_failure(fmt::format("compiling took more than {} minutes",
                                    std::chrono::duration_cast<std::chrono::minutes>(k_longest_compilation).count()));
  if (result.signal != 0) return tell_waiting(fmt::format("the compiler was ended by signal {}", result.signal));
  constexpr int k_cannot_be = 2;
  if (result.code == k_cannot_be) return keep_failure(reason_of(said));
  if (result.code != 0) return tell_waiting(reason_of(said));
  return keep(workshop.product());
}

// It may not be so the next time.
CompiledCache::Answer CompiledCache::tell_waiting(const std::string& why) const {
  try {
    write_text_atomically(beside(".tried"), why + "\n");
  } catch (const std::system_error&) {  // as where the disk is full: they try it themselves
  }
  return {.why_not = why};
}

CompiledCache::Answer CompiledCache::keep(const fs::path& made) const {
  keep_to_oneself(made);
  try {
    CompiledPackage package = check_compiled(request(made));
    fs::remove_all(place_);  // a damaged one
    fs::rename(made, place_);
    for (fs::path* file : {&package.training, &package.lean, &package.evaluation}) {
      if (!file->empty()) *file = place_ / file->filename();
    }
    return {.package = std::move(package)};
  } catch (const UserError& error) {
    return keep_failure(error.what());
  }
}

CompiledCache::Answer CompiledCache::keep_failure(const std::string& why) const {
  const fs::path partial = beside(".failing");
  write_text_atomically(partial, why + "\n");
  fs::permissions(partial, fs::perms::owner_read | fs::perms::owner_write);
  fs::rename(partial, beside(".failed"));
  return {.why_not = fmt::format("{} (which is kept: remove {} for another try)", why, beside(".failed").string())};
}

}  // namespace onebatch
