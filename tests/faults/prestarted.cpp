// Preloaded into the program: loads it once, and forks it at the beginning of main for each start that is asked for.
// LibTorch takes a third of a second of a processor to load, which is nearly all of what a small run takes.
//
// PRESTARTED=1 in the environment. On standard input, for each start: a line with the bytes that follow; the file for
// its output; its arguments; an empty one; its environment: each ends with a zero byte. On standard output: a line with
// the process, and when that has ended a line with its status as wait(2) has it.
#include "tests/faults/file_operation_faults.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);

Main main_of_program = nullptr;

struct Start {
  std::vector<std::string> texts;  // what follows points into them
  std::vector<char*> arguments;
};

bool read_start(Start& start) {
  std::size_t bytes = 0;
  if (std::scanf("%zu", &bytes) != 1 || std::getchar() != '\n') return false;
  std::string content(bytes, '\0');
  if (std::fread(content.data(), 1, bytes, stdin) != bytes) return false;
  for (std::size_t begin = 0; begin < bytes; begin += start.texts.back().size() + 1)
    start.texts.emplace_back(content.c_str() + begin);
  return !start.texts.empty();
}

// In the child: as if it had just been started.
int begin(Start& start) {
  const int output = open(start.texts[0].c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  std::size_t at = 1;
  for (; at < start.texts.size() && !start.texts[at].empty(); ++at) start.arguments.push_back(start.texts[at].data());
  start.arguments.push_back(nullptr);
  clearenv();
  for (++at; at < start.texts.size(); ++at) putenv(start.texts[at].data());
  watch_file_operations_anew();
  return main_of_program(static_cast<int>(start.arguments.size() - 1), start.arguments.data(), environ);
}

int serve() {
  for (;;) {
    auto* start = new Start;  // its texts are the child's environment
    if (!read_start(*start)) return 0;
    const pid_t process = fork();
    if (process == 0) std::exit(begin(*start));
    std::printf("%d\n", process);
    std::fflush(stdout);
    int status = 0;
    waitpid(process, &status, 0);
    std::printf("%d\n", status);
    std::fflush(stdout);
    delete start;
  }
}

int main_or_serve(int argc, char** argv, char** environment) {
  if (std::getenv("PRESTARTED") == nullptr) return main_of_program(argc, argv, environment);
  return serve();
}

}  // namespace

extern "C" int __libc_start_main(Main program, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*rtld_fini)(), void* stack_end);
extern "C" int __libc_start_main(Main program, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*rtld_fini)(), void* stack_end) {
  main_of_program = program;
  const auto real = reinterpret_cast<decltype(&__libc_start_main)>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return real(main_or_serve, argc, argv, init, fini, rtld_fini, stack_end);
}
