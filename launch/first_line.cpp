#include "launch/first_line.hpp"

#include "comm/visible_text.hpp"
#include "launch/launched_ranks.hpp"
#include "launch/sibling_ranks.hpp"
#include "launch/standard_streams.hpp"
#include "trainer/base/version.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace onebatch::launch {
namespace {

char first_line[512];  // static storage is all that there is when it is written
std::size_t first_line_length = 0;

bool is_one_of(const char* word, std::initializer_list<const char*> words) {
  for (const char* one : words) {
    if (std::strcmp(word, one) == 0) return true;
  }
  return false;
}

const char* value_of(const char* name, char** environment) {
  const std::size_t length = std::strlen(name);
  for (char** entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, name, length) == 0) return *entry + length;
  }
  return nullptr;
}

// Of several ranks the first speaks. Which one this is its environment says, in comm::read_launcher's order: mpirun's
// ranks on a Slurm job's other nodes have the task's number of the daemon that started them.
bool is_first(char** environment) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK=", "PMIX_RANK=", "PMI_RANK=", "SLURM_PROCID="}) {
    if (const char* rank = value_of(name, environment)) return std::strcmp(rank, "0") == 0;
  }
  return true;
}

void add_as_it_is(std::string_view text) {
  if (first_line_length + text.size() >= sizeof(first_line)) return;  // there is room for the line's end
  std::memcpy(first_line + first_line_length, text.data(), text.size());
  first_line_length += text.size();
}

// As comm::visible_text has it, without memory of its own.
void add(std::string_view text) {
  constexpr std::string_view k_digits = "0123456789abcdef";
  while (!text.empty()) {
    const std::size_t length = comm::printable_length(text);
    const auto first = static_cast<unsigned char>(text.front());
    const char escaped[] = {'\\', 'x', k_digits[first >> 4], k_digits[first & 15]};
    add_as_it_is(length == 0 ? std::string_view(escaped, sizeof(escaped)) : text.substr(0, length));
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

// "onebatch 0.1.0: train configs/demo.toml"
void make_line(const char* command, const char* configuration) {
  add("onebatch ");
  add(k_version);
  add(": ");
  add(command);
  add(" ");
  add(configuration);
  first_line[first_line_length++] = '\n';
}

// Who reads the line may send SIGUSR1 to mpirun, which hands it to every rank: by then all of this machine hear it,
// unless one takes unusually long to be loaded. `onebatch launch` holds signals back itself.
void let_siblings_listen(char** environment) {
  constexpr int k_longest_milliseconds = 400;  // the line is to come within a second
  if (std::getenv(k_launch_folder) != nullptr) return;
  if (const char* ranks = value_of("OMPI_COMM_WORLD_LOCAL_SIZE=", environment))
    wait_until_siblings_listen(std::atoi(ranks), k_longest_milliseconds);
}

}  // namespace

// LibTorch registers its operators for most of a second before main(), and has to be read from the disk the first time.
void say_first_line(int argc, char** argv, char** environment) {
  if (argc < 3 || !is_one_of(argv[1], {"train", "probe", "verify", "eval", "plan"}) || argv[2][0] == '-') return;
  for (int i = 2; i < argc; ++i) {
    if (is_one_of(argv[i], {"--quiet", "--help", "-h", "--profile", "--devices", "--global-batches"})) return;
  }
  if (!is_first(environment)) return;
  let_siblings_listen(environment);
  make_line(argv[1], argv[2]);
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, first_line, first_line_length);
  std::signal(SIGPIPE, before);
}

void log_first_line() {
  print_to_log({first_line, first_line_length});
}

}  // namespace onebatch::launch
