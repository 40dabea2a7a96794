// The program.
#include "launch/command_line.hpp"
#include "launch/commands.hpp"
#include "launch/standard_streams.hpp"

int main(int argc, char** argv) {
  const auto parsed = onebatch::launch::parse_arguments(argc, argv);
  if (parsed.arguments) return onebatch::launch::run(*parsed.arguments);
  const auto print = parsed.exit_code == 0 ? onebatch::launch::print_out : onebatch::launch::print_error;
  print(parsed.text);
  return parsed.exit_code;
}
