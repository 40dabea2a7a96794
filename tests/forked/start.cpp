// start PROGRAM ARGUMENT...: has the server (server.cpp) at FORK_SERVER_SOCKET fork the program, with this process's
// descriptors, folder and environment, and ends as it ends. FORKED_NAME is NAME for the program: LD_PRELOAD, say.
// Signals are handed on. Where no server answers it becomes the program itself.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tests/forked/request.hpp"

namespace onebatch::test {
namespace {

volatile sig_atomic_t process = 0;

int connect_to(const char* path) {
  if (path == nullptr) return -1;
  const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = address_of(path);
  return connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? connection : -1;
}

constexpr std::string_view k_socket = "FORK_SERVER_SOCKET=";
constexpr std::string_view k_forked = "FORKED_";

// As the program is to have it.
std::vector<std::string> environment_of_program() {
  std::vector<std::string> all;
  std::vector<std::string> own;  // "NAME="
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (text.starts_with(k_forked)) {
      all.emplace_back(text.substr(k_forked.size()));
      own.push_back(all.back().substr(0, all.back().find('=') + 1));
    }
  }
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const bool replaced = std::any_of(own.begin(), own.end(), [&](const auto& name) { return text.starts_with(name); });
    if (!replaced && !text.starts_with(k_socket) && !text.starts_with(k_forked)) all.emplace_back(text);
  }
  return all;
}

int open_or_nothing(int descriptor) {
  return fcntl(descriptor, F_GETFD) >= 0 ? descriptor : open("/dev/null", O_RDWR | O_CLOEXEC);
}

bool ask(int connection, char** arguments) {
  std::string content;
  Request request;
  const auto add = [&](const char* text) { content.append(text, std::strlen(text) + 1); };
  for (; *arguments != nullptr; ++arguments, ++request.arguments) add(*arguments);
  for (const std::string& variable : environment_of_program()) add(variable.c_str());
  request.bytes = content.size();
  const Descriptors descriptors{open_or_nothing(STDIN_FILENO), open_or_nothing(STDOUT_FILENO),
                                open_or_nothing(STDERR_FILENO), open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)};
  RequestMessage message(request);
  cmsghdr* sent = CMSG_FIRSTHDR(&message.header);
  sent->cmsg_level = SOL_SOCKET;
  sent->cmsg_type = SCM_RIGHTS;
  sent->cmsg_len = CMSG_LEN(sizeof(descriptors));
  std::memcpy(CMSG_DATA(sent), descriptors.data(), sizeof(descriptors));
  if (sendmsg(connection, &message.header, MSG_NOSIGNAL) != sizeof(request)) return false;
  for (std::size_t done = 0; done < content.size();) {
    const ssize_t count = send(connection, content.data() + done, content.size() - done, MSG_NOSIGNAL);
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

bool receive(int connection, Answer& answer) {
  std::size_t done = 0;
  while (done < sizeof(answer)) {
    const ssize_t count = read(connection, reinterpret_cast<char*>(&answer) + done, sizeof(answer) - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

void hand_on(int number) {
  kill(static_cast<pid_t>(process), number);
}

// As the process did; a second core file would be of no use.
int end_as(int status) {
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  std::signal(WTERMSIG(status), SIG_DFL);
  std::raise(WTERMSIG(status));
  return 128 + WTERMSIG(status);
}

int become(char** arguments) {
  std::vector<std::string> environment = environment_of_program();
  std::vector<char*> pointers;
  for (std::string& variable : environment) pointers.push_back(variable.data());
  pointers.push_back(nullptr);
  execve(arguments[0], arguments, pointers.data());
  std::perror(arguments[0]);
  return 127;
}

int start(char** arguments) {
  const int connection = connect_to(std::getenv("FORK_SERVER_SOCKET"));
  Answer answer;
  if (connection < 0 || !ask(connection, arguments) || !receive(connection, answer)) return become(arguments);
  process = answer.process;
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) std::signal(number, hand_on);
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    close(descriptor);  // who reads them waits for all that have them
  if (!receive(connection, answer)) return 127;
  return end_as(answer.status);
}

}  // namespace
}  // namespace onebatch::test

int main(int argc, char** argv) {
  return argc < 2 ? 2 : onebatch::test::start(argv + 1);
}
