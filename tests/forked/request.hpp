// What a start asks of the server: a message with the descriptors, then as many bytes as its number says.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <array>
#include <cstdint>
#include <cstdio>

namespace onebatch::test {

// Standard input, output, error, and the working directory.
constexpr int k_descriptors = 4;
constexpr int k_working_directory = 3;
using Descriptors = std::array<int, k_descriptors>;

// The bytes that follow: so many arguments, then the environment; a zero byte behind each.
struct Request {
  std::uint64_t bytes = 0;
  std::uint64_t arguments = 0;
};

// Of a request and its descriptors, to be sent or received.
struct RequestMessage {
  explicit RequestMessage(Request& request) : part{&request, sizeof(request)} {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = room.data();
    header.msg_controllen = room.size();
  }
  RequestMessage(const RequestMessage&) = delete;
  RequestMessage& operator=(const RequestMessage&) = delete;

  iovec part;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(Descriptors))> room{};
  msghdr header{};
};

inline sockaddr_un address_of(const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
  return address;
}

// Sent once as soon as the process is there, and once with its status, as wait(2) has it, when that has ended.
struct Answer {
  pid_t process = 0;
  int status = 0;
};

}  // namespace onebatch::test
