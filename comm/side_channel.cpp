#include "comm/side_channel.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <sstream>
#include <vector>

namespace onebatch::comm {
namespace {

constexpr std::size_t k_most_bytes = 60000;
constexpr std::string_view k_question = "?";
constexpr std::string_view k_answer = "!";
constexpr auto k_patience = std::chrono::milliseconds(250);

}  // namespace

SideChannel::SideChannel(std::string key, std::function<std::string()> answer) : key_(std::move(key)), answer_(std::move(answer)) {
  socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ < 0) return;  // then nobody can be asked, and reports say so
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = INADDR_ANY;
  socklen_t length = sizeof(any);
  if (::bind(socket_, reinterpret_cast<sockaddr*>(&any), sizeof(any)) == 0 &&
      ::getsockname(socket_, reinterpret_cast<sockaddr*>(&any), &length) == 0)
    port_ = ntohs(any.sin_port);
}

SideChannel::~SideChannel() {
  if (socket_ >= 0) ::close(socket_);
}

std::string SideChannel::address() const {
  std::string text = std::to_string(port_);
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return text;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::array<char, INET_ADDRSTRLEN> name{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, name.data(), name.size()) != nullptr) text += std::string(" ") + name.data();
  }
  freeifaddrs(all);
  return text;
}

bool SideChannel::wait_for_datagram(std::chrono::milliseconds wait) const {
  pollfd entry{socket_, POLLIN, 0};
  return ::poll(&entry, 1, static_cast<int>(wait.count())) > 0;
}

void SideChannel::send(std::string_view kind, std::string_view text, const void* to, unsigned length) {
  const std::string datagram = key_ + std::string(kind) + std::string(text.substr(0, k_most_bytes));
  [[maybe_unused]] const auto sent = ::sendto(socket_, datagram.data(), datagram.size(), 0, static_cast<const sockaddr*>(to), length);
}

// Answers a question; returns the text of an answer.
std::optional<std::string> SideChannel::receive() {
  std::vector<char> buffer(k_most_bytes + 1024);
  sockaddr_in from{};
  socklen_t length = sizeof(from);
  const auto got = ::recvfrom(socket_, buffer.data(), buffer.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
  if (got <= 0) return std::nullopt;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(got));
  if (text.size() <= key_.size() || !text.starts_with(key_)) return std::nullopt;
  const std::string_view kind = text.substr(key_.size(), 1);
  if (kind == k_question) send(k_answer, answer_(), &from, length);
  if (kind != k_answer) return std::nullopt;
  return std::string(text.substr(key_.size() + 1));
}

void SideChannel::serve(std::chrono::milliseconds wait) {
  if (!wait_for_datagram(wait)) return;
  receive();
}

std::optional<std::string> SideChannel::ask(const std::string& address, int tries) {
  std::istringstream words(address);
  int port = 0;
  words >> port;
  std::vector<sockaddr_in> targets;
  for (std::string name; words >> name;) {
    sockaddr_in target{};
    target.sin_family = AF_INET;
    target.sin_port = htons(static_cast<std::uint16_t>(port));
    if (inet_pton(AF_INET, name.c_str(), &target.sin_addr) == 1) targets.push_back(target);
  }
  for (int i = 0; i < tries; ++i) {
    for (const sockaddr_in& target : targets) send(k_question, "", &target, sizeof(target));
    const auto until = std::chrono::steady_clock::now() + k_patience;
    while (std::chrono::steady_clock::now() < until) {
      if (!wait_for_datagram(std::chrono::milliseconds(20))) continue;
      if (auto answer = receive()) return answer;
    }
  }
  return std::nullopt;
}

}  // namespace onebatch::comm
