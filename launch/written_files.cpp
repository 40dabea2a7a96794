#include "launch/written_files.hpp"

#include "launch/standard_streams.hpp"
#include "trainer/base/error.hpp"
#include "trainer/data/file_list.hpp"
#include "trainer/io/descriptor.hpp"
#include "trainer/io/durable_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <system_error>

namespace onebatch::launch {

namespace fs = std::filesystem;

namespace {

// As the file itself will be, beside it and under another name: a folder may refuse, a disk be full.
void try_to_write(const std::string& said, const fs::path& folder) {
  std::string name = (folder / ".onebatch-XXXXXX").string();
  const int file = ::mkstemp(name.data());
  int error = file < 0 ? errno : 0;
  if (file >= 0) {
    const std::string page(4096, ' ');
    const ssize_t written = ::write(file, page.data(), page.size());
    if (written != static_cast<ssize_t>(page.size())) error = written < 0 ? errno : ENOSPC;
    ::close(file);
    ::unlink(name.c_str());
  }
  if (error != 0) throw UserError(fmt::format("{}: {}: name a place that can be written", said, std::strerror(error)));
}

// Also where there is nothing yet.
fs::path led_to(fs::path file) {
  constexpr int k_most_links = 40;  // as the kernel follows
  std::error_code error;
  for (int i = 0; i < k_most_links && fs::is_symlink(file, error); ++i)
    file = file.parent_path() / fs::read_symlink(file);
  return file;
}

// What a slip of the hand would cost most.
void refuse_what_is_read(const std::string& said, const fs::path& file, Output output) {
  std::error_code error;
  const bool is_there = fs::is_regular_file(file, error);
  const fs::path beside = led_to(file).parent_path();
  if (fs::exists(beside / "manifest.json", error) && fs::exists(beside / "state.json", error))
    throw UserError(
        said +
        (is_there ? " is a part of a checkpoint" : " would lie in a checkpoint, which is whole without it alone") +
        ": name another file");
  if (is_there && file.extension() == ".toml" && output != Output::configuration)
    throw UserError(said + " is a configuration: name another file");
}

// Of a folder or a pattern. None where they are not there, which is said when they are opened.
std::vector<fs::path> found_files(const DatasetConfiguration& set) {
  const std::map<std::string, std::string> endings = {
      {"safetensors", ".safetensors"}, {"tokens", ".bin"}, {"tar", ".tar"}};
  const auto ending = endings.find(set.kind);
  if (ending == endings.end()) return {};
  try {
    return files_of(set, ending->second);
  } catch (const UserError&) {
    return {};
  }
}

// Of this process, /dev/stdout as well, where that leads into a file: what is written goes behind what is there. With a
// log the numbers 1 and 2 are its own, and the names are what was meant.
std::optional<int> stream_of(const fs::path& file) {
  const std::string name = file.string();
  if (name == "/dev/stdout" || name == "/dev/fd/1" || name == "/proc/self/fd/1") return descriptor_of_output();
  if (name == "/dev/stderr" || name == "/dev/fd/2" || name == "/proc/self/fd/2") return descriptor_of_error();
  struct stat named {};
  if (::stat(file.c_str(), &named) != 0) return std::nullopt;
  for (const int stream : {descriptor_of_output(), descriptor_of_error()}) {
    struct stat own {};
    if (::fstat(stream, &own) == 0 && own.st_dev == named.st_dev && own.st_ino == named.st_ino) return stream;
  }
  return std::nullopt;
}

// A device, a pipe: what is written to it goes through it, and it stays.
bool is_special(const fs::path& file) {
  std::error_code error;
  const fs::file_type type = fs::status(file, error).type();
  return type == fs::file_type::character || type == fs::file_type::fifo || type == fs::file_type::block ||
         type == fs::file_type::socket || stream_of(file).has_value();
}

void write_through(const fs::path& file, std::string_view text) {
  const auto own = stream_of(file);
  const Descriptor opened(own ? ::fcntl(*own, F_DUPFD_CLOEXEC, 0) : ::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  while (!text.empty()) {
    const ssize_t written = opened.get() < 0 ? -1 : ::write(opened.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw std::system_error(errno, std::generic_category(), "cannot write " + file.string());
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

void write_output(const fs::path& file, std::string_view text) {
  if (is_special(file)) return write_through(file, text);
  write_text_atomically(led_to(file), text);
}

void check_can_be_written(const std::string& option, const fs::path& named, Output output) {
  const std::string said = fmt::format("{} {}", option, named.string());
  std::error_code error;
  if (is_special(named)) {
    if (output == Output::text && !fs::is_socket(named, error)) return;
    throw UserError(said + " is no ordinary file: write the name of one");
  }
  refuse_what_is_read(said, named, output);
  const fs::path file = output == Output::text ? led_to(named) : named;
  if (file.filename().empty() || fs::is_directory(file, error))
    throw UserError(fmt::format("{} is a folder: write the name of a file in it", said));
  const fs::path folder = file.parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error))
    throw UserError(fmt::format("{}: there is no folder {}: make it first", said, folder.string()));
  try_to_write(said, folder.empty() ? fs::path(".") : folder);
}

void check_is_not_read(const std::string& option, const fs::path& named, const std::vector<fs::path>& read,
                       const std::string& by) {
  std::error_code error;
  for (const fs::path& file : read) {
    if (fs::equivalent(named, file, error))
      throw UserError(fmt::format("{} {} is read {}: name another file", option, named.string(), by));
  }
}

std::vector<fs::path> files_read(const Configuration& configuration) {
  const DataConfiguration& data = configuration.data;
  std::vector<fs::path> read = {configuration.model.path, configuration.model.weights, data.sampling.subset,
                                data.sampling.weights};
  for (const DatasetConfiguration& set : {data.train, data.validation.value_or(data.train)}) {
    read.emplace_back(set.path);
    for (const std::string& file : set.files) read.push_back(fs::path(set.path) / file);
    for (const fs::path& file : found_files(set)) read.push_back(file);
  }
  return read;
}

void check_gradient_file(const Arguments& arguments, const Configuration& configuration) {
  const fs::path file = arguments.gradient_file;
  if (file.empty()) return;
  std::vector<fs::path> read = files_read(configuration);
  read.emplace_back(arguments.plan_file);
  check_is_not_read("--save-gradient", file, read);
}

void check_written_files(const Arguments& arguments) {
  const auto check = [](const char* option, const std::string& file, Output output) {
    if (!file.empty()) check_can_be_written(option, file, output);
  };
  check("--json", arguments.json_file, Output::text);
  check("--timeline", arguments.timeline_file, Output::file);
  check("--html", arguments.html_file, Output::text);
  check("--save-gradient", arguments.gradient_file, Output::file);
}

}  // namespace onebatch::launch
