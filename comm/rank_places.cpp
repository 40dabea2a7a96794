#include "comm/rank_places.hpp"

#include "comm/error.hpp"
#include "comm/interfaces.hpp"

#include <fmt/format.h>

#include <mpi.h>

#include <algorithm>
#include <array>

namespace onebatch::comm {
namespace {

// A setting of the MPI library, wherever it was made; empty where it has none of that name.
std::string mpi_setting(const char* name) {
  int provided = 0;
  if (MPI_T_init_thread(MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) return {};
  std::array<char, 4096> text{};
  int index = 0;
  int count = 0;
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  if (MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS &&
      MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) == MPI_SUCCESS) {
    if (count >= 0 && static_cast<std::size_t>(count) < text.size()) MPI_T_cvar_read(handle, text.data());
    MPI_T_cvar_handle_free(&handle);
  }
  MPI_T_finalize();
  return text.data();
}

// The two lists exclude each other.
std::vector<Interface> interfaces_of_mpi() {
  const std::string included = mpi_setting("btl_tcp_if_include");
  const std::vector<Interface> all = interfaces_of_this_machine();
  return included.empty() ? left_by(mpi_setting("btl_tcp_if_exclude"), all) : chosen_by(included, all);
}

std::vector<RankPlace> gather_places(MpiCommunicator& mpi, int node) {
  std::vector<RankPlace> places;
  for (const std::string& text : all_gather_text(mpi, fmt::format("{}\t{}", host_name(), node))) {
    const std::size_t tab = text.find('\t');
    places.push_back({text.substr(0, tab), std::stoi(text.substr(tab + 1)), {}});
  }
  return places;
}

// Where this rank listens: at the addresses that MPI may use itself, and of those at what leads to another node.
std::vector<std::string> find_addresses(MpiCommunicator& mpi, const std::vector<RankPlace>& places) {
  const RankPlace& mine = places.at(static_cast<std::size_t>(mpi.rank()));
  const HostInterfaces own{mine.host, interfaces_of_mpi()};
  const auto texts = all_gather_text(mpi, own.to_text());
  std::vector<HostInterfaces> others;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (places[rank].node != mine.node) others.push_back(HostInterfaces::from_text(places[rank].host, texts[rank]));
  }
  return addresses_that_reach(own, others);
}

}  // namespace

Introduction introduce(MpiCommunicator& mpi, int node, std::function<std::string()> answer) {
  Introduction made{gather_places(mpi, node), nullptr};
  if (std::ranges::all_of(made.places, [&](const RankPlace& place) { return place.node == made.places.front().node; }))
    return made;
  SipKey key = SideChannel::make_key();
  mpi.broadcast(key.data(), sizeof(key), 0);
  made.channel = std::make_unique<SideChannel>(key, find_addresses(mpi, made.places), std::move(answer));
  const auto addresses = all_gather_text(mpi, made.channel->address());
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) made.places[rank].side_channel = addresses[rank];
  return made;
}

}  // namespace onebatch::comm
