#include "comm/side_channel.hpp"

#include "comm/datagram.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

namespace onebatch::comm {
namespace {

constexpr std::size_t k_most_bytes = 60000;
constexpr auto k_patience = std::chrono::milliseconds(250);
constexpr auto k_look = std::chrono::milliseconds(20);

template <typename Bits>
Bits random_bits() {
  Bits bits{};
  return ::getrandom(&bits, sizeof(bits), 0) == static_cast<ssize_t>(sizeof(bits)) ? bits : Bits{};
}

}  // namespace

SipKey SideChannel::make_key() {
  return random_bits<SipKey>();
}

SideChannel::SideChannel(const SipKey& key, const std::vector<std::string>& addresses,
                         std::function<std::string()> answer)
    : key_(key), answer_(std::move(answer)), asked_(random_bits<std::uint32_t>()) {
  if (key_ == SipKey{}) return;  // without a secret nobody is listened to, and reports say that nobody answered
  for (const std::string& address : addresses) listen_on(address);
}

SideChannel::~SideChannel() {
  for (const Socket& one : sockets_) ::close(one.descriptor);
}

void SideChannel::listen_on(const std::string& host) {
  auto own = parse_address(host + ":0");
  const int descriptor = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (!own || descriptor < 0) return;
  auto* address = reinterpret_cast<sockaddr*>(&*own);
  socklen_t length = sizeof(*own);
  if (::bind(descriptor, address, length) != 0 || ::getsockname(descriptor, address, &length) != 0)
    ::close(descriptor);
  else
    sockets_.push_back({descriptor, address_text(*own)});
}

std::string SideChannel::address() const {
  std::string text;
  for (const Socket& one : sockets_) text += (text.empty() ? "" : " ") + one.address;
  return text;
}

std::vector<int> SideChannel::wait_for_datagrams(std::chrono::milliseconds wait) const {
  std::vector<pollfd> entries;
  for (const Socket& one : sockets_) entries.push_back({one.descriptor, POLLIN, 0});
  std::vector<int> ready;
  if (::poll(entries.data(), entries.size(), static_cast<int>(wait.count())) <= 0) return ready;
  for (const pollfd& entry : entries) {
    if ((entry.revents & POLLIN) != 0) ready.push_back(entry.fd);
  }
  return ready;
}

// Answers a question; returns the text of an answer to the last one asked here.
std::optional<std::string> SideChannel::receive(int descriptor) {
  std::vector<char> buffer(k_most_bytes + 1024);
  sockaddr_in from{};
  socklen_t length = sizeof(from);
  const auto got = ::recvfrom(descriptor, buffer.data(), buffer.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
  if (got <= 0) return std::nullopt;
  const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
  const auto datagram = Datagram::parse(bytes, key_);
  if (!datagram) return std::nullopt;
  if (datagram->kind == DatagramKind::question) {
    const std::string told = answer_().substr(0, datagram->text.size());
    const std::string answer = Datagram{DatagramKind::answer, datagram->number, told}.to_bytes(key_);
    [[maybe_unused]] const auto sent =
        ::sendto(descriptor, answer.data(), answer.size(), 0, reinterpret_cast<const sockaddr*>(&from), length);
    return std::nullopt;
  }
  if (datagram->number != asked_) return std::nullopt;
  return std::string(datagram->text);
}

void SideChannel::serve(std::chrono::milliseconds wait) {
  for (const int descriptor : wait_for_datagrams(wait)) receive(descriptor);
}

std::optional<std::string> SideChannel::ask(const std::string& address, std::size_t most_bytes) {
  const std::string room(std::min(k_most_bytes, most_bytes), ' ');
  const std::string question = Datagram{DatagramKind::question, ++asked_, room}.to_bytes(key_);
  std::istringstream words(address);
  for (std::string word; words >> word;) {
    const auto target = parse_address(word);
    if (!target) continue;
    for (const Socket& one : sockets_)
      [[maybe_unused]] const auto sent = ::sendto(one.descriptor, question.data(), question.size(), 0,
                                                  reinterpret_cast<const sockaddr*>(&*target), sizeof(*target));
  }
  const auto until = std::chrono::steady_clock::now() + k_patience;
  while (std::chrono::steady_clock::now() < until) {
    for (const int descriptor : wait_for_datagrams(k_look)) {
      if (auto answer = receive(descriptor)) return answer;
    }
  }
  return std::nullopt;
}

}  // namespace onebatch::comm
