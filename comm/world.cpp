#include "comm/world.hpp"

#include "comm/error.hpp"
#include "comm/launcher.hpp"
#include "comm/local_communicator.hpp"
#include "comm/mpi_communicator.hpp"

#include <array>
#include <cstdlib>

namespace onebatch::comm {
namespace {

constexpr int k_peer_failed_exit_code = 4;

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

void start_mpi() {
  int provided = MPI_THREAD_SINGLE;
  const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  check_mpi(code, 0, "MPI_Init_thread");
  if (provided < MPI_THREAD_SERIALIZED)
    throw CommError(0, "MPI_Init_thread", "this MPI offers no MPI_THREAD_SERIALIZED; install one that does (Open MPI 4.1 or 5)");
}

}  // namespace

struct World::State {
  LauncherView launcher;
  bool mpi_started = false;
  int node_local_rank = 0;
  int node_local_size = 1;
  std::unique_ptr<Communicator> control;
  MpiCommunicator* mpi = nullptr;  // the control communicator, where it is MPI's

  void count_neighbours() {
    MPI_Comm node = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), launcher.rank, "MPI_Comm_split_type");
    MPI_Comm_rank(node, &node_local_rank);
    MPI_Comm_size(node, &node_local_size);
    MPI_Comm_free(&node);
  }
};

World::World() : state_(std::make_unique<State>()) {}

std::unique_ptr<World> World::create() {
  std::unique_ptr<World> world(new World);
  State& state = *world->state_;
  state.launcher = read_launcher();
  if (state.launcher.size == 1) {
    state.control = std::make_unique<LocalCommunicator>();
    return world;
  }
  if (!launcher_has_mpi(environment)) throw LaunchError(mending_command(state.launcher, 1));
  start_mpi();
  state.mpi_started = true;
  auto control = MpiCommunicator::create(MPI_COMM_WORLD, k_peer_failed_exit_code);
  if (control->size() != state.launcher.size) {
    const std::string message = mending_command(state.launcher, control->size());
    control->close();
    control.reset();
    MPI_Finalize();
    throw LaunchError(message);
  }
  state.count_neighbours();
  state.mpi = control.get();
  state.control = std::move(control);
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

void World::set_timeout_seconds(double seconds) {
  if (state_->mpi != nullptr) state_->mpi->set_timeout_seconds(seconds);
}

void World::close() {
  if (!state_->mpi_started) return;
  state_->control->close();
  state_->mpi_started = false;
  check_mpi(MPI_Finalize(), state_->launcher.rank, "MPI_Finalize");
}

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string all(text.data(), static_cast<std::size_t>(length));
  return all.substr(0, all.find(','));
}

}  // namespace onebatch::comm
