// The program.
#include "launch/command_line.hpp"
#include "launch/commands.hpp"

#include <cstdio>

int main(int argc, char** argv) {
  const auto parsed = onebatch::launch::parse_arguments(argc, argv);
  if (parsed.arguments) return onebatch::launch::run(*parsed.arguments);
  std::fputs(parsed.text.c_str(), parsed.exit_code == 0 ? stdout : stderr);
  return parsed.exit_code;
}
