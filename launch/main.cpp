// The program.
#include "launch/command_line.hpp"
#include "launch/commands.hpp"
#include "launch/first_line.hpp"
#include "launch/log_file.hpp"
#include "launch/signals.hpp"
#include "launch/standard_streams.hpp"

#include <cstdio>
#include <cstdlib>

// Before any library starts, once they lie in memory: in this order.
__attribute__((section(".preinit_array"), used)) void (*const at_first[])(int, char**, char**) = {
    onebatch::launch::hold_closed_streams, onebatch::launch::listen_from_the_start, onebatch::launch::say_first_line};

int main(int argc, char** argv) {
  const auto parsed = onebatch::launch::parse_arguments(argc, argv);
  int code = parsed.exit_code;
  if (parsed.arguments) {
    code = onebatch::launch::run(*parsed.arguments);
    onebatch::launch::end_log(code);
  } else {
    const auto print = code == 0 ? onebatch::launch::print_out : onebatch::launch::print_error;
    print(parsed.text);
  }
  std::fflush(nullptr);
  std::_Exit(code);  // LibTorch would take its operators apart one by one, and nobody watches over that
}
