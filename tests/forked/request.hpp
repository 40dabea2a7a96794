// What a start asks of the server: a message with the descriptors, then as many bytes as its number says.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace onebatch::test {

// Standard input, output, error, and the working directory.
constexpr int k_descriptors = 4;
constexpr int k_working_directory = 3;

// The bytes that follow: so many arguments, then the environment; a zero byte behind each.
struct Request {
  std::uint64_t bytes = 0;
  std::uint64_t arguments = 0;
};

// Sent once as soon as the process is there, and once with its status, as wait(2) has it, when that has ended.
struct Answer {
  pid_t process = 0;
  int status = 0;
};

}  // namespace onebatch::test
