#include "launch/run_lock.hpp"

#include "comm/error.hpp"
#include "comm/siblings.hpp"
#include "trainer/io/descriptor.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <ctime>
#include <fstream>
#include <mutex>
#include <system_error>
#include <utility>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::chrono::seconds k_sign_of_life{4};
constexpr std::chrono::milliseconds k_look{100};

// When a process has started, in the kernel's ticks: with its number the one process that is meant.
std::string start_ticks(const std::string& process) {
  std::ifstream in("/proc/" + process + "/stat");
  std::string text;
  std::getline(in, text);
  std::size_t at = text.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  return at == std::string::npos ? "" : text.substr(at + 1, text.find(' ', at + 1) - at - 1);
}

// In which processes have their numbers: containers on one kernel have one each.
std::string number_space() {
  std::error_code error;
  return fs::read_symlink("/proc/self/ns/pid", error).string();
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 40> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

// The kernel first: it is what half of a lock still tells, of a process that died as it wrote.
std::string own_text() {
  const nlohmann::ordered_json json = {
      {"kernel", comm::boot_id()},      {"host", comm::host_name()},          {"process", getpid()},
      {"number_space", number_space()}, {"start_ticks", start_ticks("self")}, {"since", now_text()}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string read_all(int descriptor) {
  std::array<char, 4096> bytes{};
  ssize_t count = 0;
  do {
    count = pread(descriptor, bytes.data(), bytes.size(), 0);
  } while (count < 0 && errno == EINTR);
  return {bytes.data(), count > 0 ? static_cast<std::size_t>(count) : 0};
}

std::string field(const Json& json, const char* key) {
  if (!json.is_object() || !json.contains(key)) return "?";
  return json[key].is_string() ? json[key].get<std::string>() : json[key].dump();
}

std::string holder_text(const std::string& content) {
  const Json json = Json::parse(content, nullptr, /*allow_exceptions=*/false);
  return "process " + field(json, "process") + " on " + field(json, "host") + ", since " + field(json, "since");
}

bool of_this_kernel(const std::string& content) {
  const std::string own = comm::boot_id();  // containers on one kernel share its locks, too
  return !own.empty() && content.find('"' + own + '"') != std::string::npos;
}

// False, with errno, where it cannot.
bool write_all(int descriptor, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = pwrite(descriptor, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) done += static_cast<std::size_t>(count);
  }
  return true;
}

// By the file server's own clock: only whether it moves is looked at.
bool shows_life(int descriptor, std::chrono::milliseconds patience) {
  const auto stamp = [&] {
    struct stat now {};
    fstat(descriptor, &now);
    return std::pair(now.st_mtim.tv_sec, now.st_mtim.tv_nsec);
  };
  const auto before = stamp();
  for (std::chrono::milliseconds waited{0}; waited < patience; waited += k_look) {
    std::this_thread::sleep_for(k_look);
    if (stamp() != before) return true;
  }
  return patience.count() == 0;  // nobody has looked
}

// A rank that was lost may have left its lock to a process that saves for it.
bool left_by_the_dead(const std::string& content) {
  const Json json = Json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (!of_this_kernel(content) || !json.is_object() || !json.contains("process") ||
      !json["process"].is_number_integer())
    return false;
  return comm::process_state(json["process"].get<long>()) == "gone";
}

// As this process sees others.
bool lives(const Json& holder) {
  if (!holder.is_object() || !holder.contains("process") || !holder["process"].is_number_integer()) return false;
  const long process = holder["process"].get<long>();
  return comm::process_state(process) != "gone" && start_ticks(std::to_string(process)) == field(holder, "start_ticks");
}

bool waited_for(int descriptor, std::chrono::milliseconds patience) {
  for (std::chrono::milliseconds waited{0}; waited < patience; waited += k_look) {
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) return true;
    std::this_thread::sleep_for(k_look);
  }
  return false;
}

void show_life(const std::stop_token& stop, int descriptor) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  while (!wake.wait_for(lock, stop, k_sign_of_life, [&] { return stop.stop_requested(); }))
    futimens(descriptor, nullptr);
}

}  // namespace

LockAttempt RunLock::try_lock(const fs::path& folder, std::chrono::milliseconds patience) {
  const fs::path file = folder / k_file;
  for (;;) {
    Descriptor opened(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (opened.get() < 0 && errno == ENOENT) return {};
    if (opened.get() < 0) throw std::system_error(errno, std::generic_category(), "cannot open " + file.string());
    // Where the file system has no locks, what the file says and signs of life are all there is.
    const int error = flock(opened.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    bool refused = error == EWOULDBLOCK;
    const std::string content = read_all(opened.get());
    if (refused && left_by_the_dead(content)) refused = !waited_for(opened.get(), patience);
    if (refused) return {std::nullopt, content.empty() ? "a process that has just started" : holder_text(content), {}};
    const bool has_no_locks = error != 0 && error != EWOULDBLOCK;
    const bool may_live = !content.empty() && (has_no_locks || !of_this_kernel(content));
    if (may_live && shows_life(opened.get(), patience)) return {std::nullopt, holder_text(content), {}};
    if (!is_still(file, opened.get())) continue;  // who held it has removed it in between
    const std::string own = own_text();
    if (ftruncate(opened.get(), 0) != 0 || !write_all(opened.get(), own))
      throw std::system_error(errno, std::generic_category(), "cannot write " + file.string());
    return {RunLock(file, opened.release(), own), {}, may_live ? holder_text(content) : std::string()};
  }
}

HeldFolder::HeldFolder(fs::path folder) : file_(std::move(folder) / RunLock::k_file) {
  const Descriptor opened(::open(file_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (opened.get() >= 0) holder_ = read_all(opened.get());
}

std::string HeldFolder::why_not_write(FolderUse use) const {
  // To be locked over NFS it has to be open for writing.
  const int access = use == FolderUse::take ? O_RDWR : O_RDONLY;
  Descriptor opened(::open(file_.c_str(), access | O_CLOEXEC | O_NOFOLLOW));
  if (holder_.empty() || opened.get() < 0) return "it does not see " + file_.string();
  if (use == FolderUse::take) [[maybe_unused]]
    const int ignored = flock(opened.get(), LOCK_EX | LOCK_NB);  // refused by the holder itself, if it lives
  const std::string content = read_all(opened.get());
  if (content != holder_)
    return file_.parent_path().string() + " has been taken by " +
           (content.empty() ? "another process" : holder_text(content));
  if (use == FolderUse::take) opened.release();
  return {};
}

std::string holder_of(const fs::path& folder) {
  const Descriptor opened(::open((folder / RunLock::k_file).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (opened.get() < 0) return {};
  const std::string content = read_all(opened.get());
  if (content.empty()) return "a process that has just started";
  if (of_this_kernel(content)) {
    const Json holder = Json::parse(content, nullptr, /*allow_exceptions=*/false);
    if (lives(holder)) return holder_text(content);
    if (field(holder, "number_space") == number_space()) return {};
  }
  struct stat seen {};
  const bool is_recent = fstat(opened.get(), &seen) == 0 && std::time(nullptr) - seen.st_mtim.tv_sec < 60;
  return is_recent ? holder_text(content) : "";
}

RunLock::RunLock(fs::path file, int descriptor, std::string content)
    : file_(std::move(file)),
      descriptor_(descriptor),
      content_(std::move(content)),
      signs_of_life_([descriptor](const std::stop_token& stop) { show_life(stop, descriptor); }) {}

RunLock::RunLock(RunLock&& other) noexcept
    : file_(std::move(other.file_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      content_(std::move(other.content_)),
      signs_of_life_(std::move(other.signs_of_life_)) {}

RunLock::~RunLock() {
  if (descriptor_ < 0) return;
  signs_of_life_.request_stop();
  signs_of_life_.join();
  // Before the lock is let go of: who comes next makes a new one. One that was taken over is another's.
  if (is_still(file_, descriptor_) && read_all(descriptor_) == content_) ::unlink(file_.c_str());
  ::close(descriptor_);
}

}  // namespace onebatch::launch
