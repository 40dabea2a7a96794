// Preloaded into the program with FORK_SERVER=SOCKET in the environment: loads it once, and forks it at the beginning
// of main for each start that start.cpp asks for. LibTorch takes a third of a second of a processor to load, which is
// most of what a small run takes. Nothing has been asked of LibTorch before, and no thread begun.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/forked/request.hpp"

namespace onebatch::test {
namespace {

using Main = int (*)(int, char**, char**);

Main main_of_program = nullptr;

struct Start {
  Descriptors descriptors;
  std::string content;
  std::vector<char*> arguments, environment;  // into `content`
};

bool receive_request(int connection, Request& request, Descriptors& descriptors) {
  RequestMessage message(request);
  if (recvmsg(connection, &message.header, MSG_CMSG_CLOEXEC) != sizeof(request)) return false;
  const cmsghdr* sent = CMSG_FIRSTHDR(&message.header);
  if (sent == nullptr || sent->cmsg_type != SCM_RIGHTS || sent->cmsg_len != CMSG_LEN(sizeof(descriptors))) return false;
  std::memcpy(descriptors.data(), CMSG_DATA(sent), sizeof(descriptors));
  return true;
}

bool receive(int connection, Start& start) {
  Request request;
  if (!receive_request(connection, request, start.descriptors)) return false;
  start.content.resize(request.bytes);
  for (std::size_t done = 0; done < request.bytes;) {
    const ssize_t count = read(connection, start.content.data() + done, request.bytes - done);
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  for (std::size_t at = 0; at < request.bytes; at += std::strlen(&start.content[at]) + 1)
    (start.arguments.size() < request.arguments ? start.arguments : start.environment).push_back(&start.content[at]);
  start.arguments.push_back(nullptr);
  start.environment.push_back(nullptr);
  return start.arguments.size() > 1;
}

using AtFirst = void (*)(int, char**, char**);

// What the program has in .preinit_array, which in the server ran without the start's arguments.
int find_what_comes_first(dl_phdr_info* program, std::size_t /*size*/, void* found) {
  const ElfW(Dyn)* entry = nullptr;
  for (int i = 0; i < program->dlpi_phnum; ++i) {
    if (program->dlpi_phdr[i].p_type == PT_DYNAMIC)
      entry = reinterpret_cast<const ElfW(Dyn)*>(program->dlpi_addr + program->dlpi_phdr[i].p_vaddr);
  }
  const AtFirst* functions = nullptr;
  std::size_t bytes = 0;
  for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_PREINIT_ARRAY)
      functions = reinterpret_cast<const AtFirst*>(program->dlpi_addr + entry->d_un.d_ptr);
    if (entry->d_tag == DT_PREINIT_ARRAYSZ) bytes = entry->d_un.d_val;
  }
  if (functions != nullptr)
    static_cast<std::vector<AtFirst>*>(found)->assign(functions, functions + bytes / sizeof(AtFirst));
  return 1;  // the program is the first
}

// As if it had just been started.
[[noreturn]] void begin(Start& start) {
  setpgid(0, 0);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE}) std::signal(number, SIG_DFL);
  for (int i = 0; i < k_working_directory; ++i) dup2(start.descriptors[static_cast<std::size_t>(i)], i);
  if (fchdir(start.descriptors[k_working_directory]) != 0) std::abort();
  for (const int descriptor : start.descriptors) close(descriptor);
  const auto count = static_cast<int>(start.arguments.size() - 1);
  // Ranks wait for each other before the first line where they have one parent: not here.
  std::vector<char*> without_siblings = start.environment;
  char nobody_waits[] = "ONEBATCH_LAUNCH_FOLDER=";
  without_siblings.insert(without_siblings.begin(), nobody_waits);
  environ = without_siblings.data();
  std::vector<AtFirst> first;
  dl_iterate_phdr(find_what_comes_first, &first);
  for (const AtFirst one : first) one(count, start.arguments.data(), start.environment.data());
  environ = start.environment.data();
  std::exit(main_of_program(count, start.arguments.data(), environ));
}

// Between who asked and the process: tells how it ends, and ends it where who asked is gone.
void keep(int connection) {
  std::signal(SIGCHLD, SIG_DFL);
  Start start;
  if (!receive(connection, start)) return;
  const pid_t process = fork();
  if (process < 0) return;
  if (process == 0) {
    close(connection);
    begin(start);
  }
  for (const int descriptor : start.descriptors) close(descriptor);
  Answer answer{process, 0};
  const auto tell = [&] { return send(connection, &answer, sizeof(answer), MSG_NOSIGNAL) == sizeof(answer); };
  bool asked = tell();
  const int ended = static_cast<int>(syscall(SYS_pidfd_open, process, 0));  // below 0 where a kernel has none
  std::array<pollfd, 2> both{pollfd{ended, POLLIN, 0}, pollfd{connection, POLLIN, 0}};
  while (asked && ended >= 0 && both[0].revents == 0) {
    poll(both.data(), both.size(), -1);
    asked = both[1].revents == 0;
  }
  if (!asked) kill(-process, SIGKILL);
  while (waitpid(process, &answer.status, 0) < 0 && errno == EINTR) {
  }
  if (asked) tell();
}

int serve(const char* path) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // with the thread that began it
  std::signal(SIGCHLD, SIG_IGN);     // nobody waits for keepers
  const int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = address_of(path);
  if (bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return 1;
  if (listen(listening, 64) != 0) return 1;
  if (std::puts("ready") < 0 || std::fflush(stdout) != 0) return 1;  // who began it may be gone
  for (;;) {
    const int connection = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    if (fork() == 0) {
      close(listening);
      keep(connection);
      _exit(0);
    }
    close(connection);
  }
}

int main_or_serve(int argc, char** argv, char** environment) {
  const char* path = std::getenv("FORK_SERVER");
  return path == nullptr ? main_of_program(argc, argv, environment) : serve(path);
}

}  // namespace
}  // namespace onebatch::test

using onebatch::test::Main;

extern "C" int __libc_start_main(Main program, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*rtld_fini)(), void* stack_end);
extern "C" int __libc_start_main(Main program, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*rtld_fini)(), void* stack_end) {
  onebatch::test::main_of_program = program;
  const auto real = reinterpret_cast<decltype(&__libc_start_main)>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return real(onebatch::test::main_or_serve, argc, argv, init, fini, rtld_fini, stack_end);
}
