#include "comm/world.hpp"

#include "comm/error.hpp"
#include "comm/launcher.hpp"
#include "comm/local_communicator.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/rank_places.hpp"
#include "comm/shared_memory_communicator.hpp"
#include "comm/survivor_board.hpp"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>

namespace onebatch::comm {
namespace {

constexpr int k_peer_failed_exit_code = 4;

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// What a child votes its parent tells other nodes too.
struct ForkedMemory {
  std::size_t bytes = 0;
  void operator()(std::byte* memory) const { munmap(memory, bytes); }
};

std::unique_ptr<std::byte, ForkedMemory> memory_shared_with_children(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return {memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory), ForkedMemory{bytes}};
}

void start_mpi(Watchdog& watchdog) {
  const Watchdog::Guard guard(watchdog, "MPI_Init_thread", 0);
  int provided = MPI_THREAD_SINGLE;
  const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  check_mpi(code, 0, "MPI_Init_thread");
  if (provided < MPI_THREAD_SERIALIZED)
    throw CommError(0, "MPI_Init_thread",
                    "this MPI offers no MPI_THREAD_SERIALIZED; install one that does (Open MPI 4.1 or 5)");
}

}  // namespace

struct World::State {
  LauncherView launcher;
  bool mpi_started = false;
  int rank = 0;
  int node_local_rank = 0;
  int node_local_size = 1;
  MPI_Comm node = MPI_COMM_NULL;
  std::unique_ptr<SharedWindow> board_window;
  AlignedMemory private_board;  // where there is no room for a window
  std::optional<StatusBoard> board;
  std::unique_ptr<SharedWindow> survivor_window;
  std::unique_ptr<std::byte, ForkedMemory> private_survivors;
  std::unique_ptr<SurvivorBoard> survivors;
  std::atomic<SurvivorBoard*> told_survivors{nullptr};  // by the watching thread
  std::optional<Watchdog> watchdog;
  std::vector<std::string> hosts = {host_name()};
  SharedMemoryCommunicator* shared = nullptr;  // the control communicator, where there are several ranks
  std::unique_ptr<Communicator> control;

  void find_neighbours() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), rank,
              "MPI_Comm_split_type");
    MPI_Comm_rank(node, &node_local_rank);
    MPI_Comm_size(node, &node_local_size);
  }

  [[nodiscard]] std::vector<int> ranks_of_node() const {
    std::vector<int> ranks(static_cast<std::size_t>(node_local_size));
    check_mpi(MPI_Allgather(&rank, 1, MPI_INT, ranks.data(), 1, MPI_INT, node), rank, "MPI_Allgather");
    return ranks;
  }

  // Null where some rank of the node finds no room.
  [[nodiscard]] std::unique_ptr<SharedWindow> window_where_there_is_room(std::size_t bytes) const {
    int room = shared_memory_has_room(bytes) ? 1 : 0;
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &room, 1, MPI_INT, MPI_MIN, node), rank, "MPI_Allreduce");
    return room == 1 ? SharedWindow::create(node, bytes) : nullptr;
  }

  void make_board() {
    const std::vector<int> ranks = ranks_of_node();
    board_window = window_where_there_is_room(StatusBoard::bytes_needed(node_local_size));
    if (board_window) {
      board.emplace(board_window->data(), ranks, node_local_rank);
    } else {
      private_board = AlignedMemory(StatusBoard::bytes_needed(1));
      board.emplace(private_board.data(), std::vector<int>{rank}, 0);
    }
  }

  // Ranks without a status board in common are to each other as if on hosts of their own here too.
  void make_survivor_board(std::size_t own_bytes) {
    const std::vector<int> ranks = ranks_of_node();
    if (!board_window) {
      private_survivors = memory_shared_with_children(SurvivorBoard::bytes_needed(1, own_bytes));
      if (private_survivors)
        survivors = std::make_unique<SurvivorBoard>(private_survivors.get(), std::vector<int>{rank}, 0, own_bytes);
    } else if ((survivor_window =
                    window_where_there_is_room(SurvivorBoard::bytes_needed(node_local_size, own_bytes)))) {
      survivors = std::make_unique<SurvivorBoard>(survivor_window->data(), ranks, node_local_rank, own_bytes);
    }
    told_survivors = survivors.get();
  }

  // What other nodes are told.
  [[nodiscard]] std::string answer() const {
    std::string lines;
    if (const SurvivorBoard* const voters = told_survivors) {
      for (const Vote& vote : voters->votes()) lines += vote.to_line();
    }
    for (const RankReport& report : board->read()) lines += report.to_line();
    return lines;
  }

  // Ranks without a board in common are to each other as if on hosts of their own.
  void meet(MpiCommunicator& mpi) {
    int leader = rank;
    if (board_window) {
      const Watchdog::Guard guard(*watchdog, "meeting", 0);
      check_mpi(MPI_Bcast(&leader, 1, MPI_INT, 0, node), rank, "MPI_Bcast");
    }
    Introduction made = introduce(mpi, leader, [this] { return answer(); });
    hosts.clear();
    for (const RankPlace& place : made.places) hosts.push_back(place.host);
    watchdog->join_board(*board, std::move(made.places), std::move(made.channel));
  }

  // The watchdog ends last: a rank may stop in any of this.
  void close() {
    control->close();
    watchdog->leave_board();
    const Watchdog::Guard guard(*watchdog, "MPI_Finalize", 0);
    board.reset();
    survivors.reset();
    if (survivor_window) survivor_window->close();
    if (board_window) board_window->close();
    MPI_Comm_free(&node);
    check_mpi(MPI_Finalize(), rank, "MPI_Finalize");
  }
};

World::World() : state_(std::make_unique<State>()) {}

std::unique_ptr<World> World::create(double timeout_seconds) {
  std::unique_ptr<World> world(new World);
  State& state = *world->state_;
  state.launcher = read_launcher();
  if (state.launcher.size > 1 && !launcher_has_mpi(environment)) throw LaunchError(mending_command(state.launcher, 1));
  state.watchdog.emplace(state.launcher.rank, k_peer_failed_exit_code, timeout_seconds);
  allow_to_be_looked_into();
  if (state.launcher.size == 1) {
    state.control = std::make_unique<LocalCommunicator>(&*state.watchdog);
    return world;
  }
  start_mpi(*state.watchdog);
  state.mpi_started = true;
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (state.launcher.size == 0) {  // which the launcher does not say, but which rank this is
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    state.launcher.size = rank == state.launcher.rank ? size : state.launcher.rank + 1;
  }
  if (size != state.launcher.size) {
    const Watchdog::Guard guard(*state.watchdog, "MPI_Finalize", 0);
    MPI_Finalize();
    throw LaunchError(mending_command(state.launcher, size));
  }
  {
    const Watchdog::Guard guard(*state.watchdog, "finding the ranks of this node", 0);
    state.find_neighbours();
    state.make_board();
  }
  auto mpi = MpiCommunicator::create(MPI_COMM_WORLD, *state.watchdog);
  state.meet(*mpi);
  auto shared = std::make_unique<SharedMemoryCommunicator>(std::move(mpi), state.node, *state.watchdog);
  state.shared = shared.get();
  state.control = std::move(shared);
  return world;
}

World::~World() = default;

int World::rank() const {
  return state_->control->rank();
}
int World::size() const {
  return state_->control->size();
}
int World::node_local_rank() const {
  return state_->node_local_rank;
}
int World::node_local_size() const {
  return state_->node_local_size;
}
const LauncherView& World::launcher() const {
  return state_->launcher;
}
Communicator& World::control() {
  return *state_->control;
}

std::vector<std::string> World::hosts() const {
  return state_->hosts;
}
Communicator* World::plain_mpi() {
  return state_->shared == nullptr ? nullptr : &state_->shared->mpi();
}
std::string World::why_not_shared() const {
  if (state_->shared == nullptr) return "";
  const std::string& why = state_->shared->why_not_shared();
  return why.empty() ? state_->shared->why_not_in_place() : why;
}
Watchdog& World::watchdog() {
  return *state_->watchdog;
}

void World::set_timeout_seconds(double seconds) {
  state_->watchdog->set_timeout_seconds(seconds);
}
void World::set_activity(std::string_view text) {
  state_->watchdog->set_activity(text);
}

SurvivorBoard* World::make_survivor_board(std::size_t own_bytes) {
  const Watchdog::Guard guard(*state_->watchdog, "setting up shared memory", own_bytes);
  state_->make_survivor_board(own_bytes);
  return state_->survivors.get();
}

void World::close() {
  if (!state_->mpi_started) return;
  state_->mpi_started = false;
  state_->close();
}

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string all(text.data(), static_cast<std::size_t>(length));
  return all.substr(0, all.find(','));
}

}  // namespace onebatch::comm
