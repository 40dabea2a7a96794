#include "comm/shared_window.hpp"

#include "comm/mpi_communicator.hpp"

#include <sys/statvfs.h>

#include <cstdlib>
#include <cstring>

namespace onebatch::comm {
namespace {

constexpr std::size_t k_left_free = std::size_t{1} << 20;

}  // namespace

std::unique_ptr<SharedWindow> SharedWindow::create(MPI_Comm node, std::size_t bytes) {
  int rank = 0;
  MPI_Comm_rank(node, &rank);
  MPI_Win window = MPI_WIN_NULL;
  void* own = nullptr;
  // All of it belongs to the first rank; the others ask where it begins.
  const auto mine = static_cast<MPI_Aint>(rank == 0 ? bytes + k_page_bytes : 0);
  check_mpi(MPI_Win_allocate_shared(mine, 1, MPI_INFO_NULL, node, static_cast<void*>(&own), &window), rank,
            "MPI_Win_allocate_shared");
  MPI_Aint size = 0;
  int unit = 0;
  void* first = nullptr;
  check_mpi(MPI_Win_shared_query(window, 0, &size, &unit, static_cast<void*>(&first)), rank, "MPI_Win_shared_query");
  // MPI keeps words of its own in front. Within a page all ranks see the same address, so all align alike.
  std::size_t room = bytes + k_page_bytes;
  std::align(k_page_bytes, bytes, first, room);
  // Touched at once, since what is promised by a file system that fills up later ends in SIGBUS; each rank its own
  // part, for its memory node.
  int ranks = 1;
  MPI_Comm_size(node, &ranks);
  const std::size_t each = bytes / static_cast<std::size_t>(ranks);
  const std::size_t begin = each * static_cast<std::size_t>(rank);
  std::memset(static_cast<std::byte*>(first) + begin, 0, rank + 1 == ranks ? bytes - begin : each);
  check_mpi(MPI_Barrier(node), rank, "MPI_Barrier");
  return std::unique_ptr<SharedWindow>(new SharedWindow(window, static_cast<std::byte*>(first)));
}

void SharedWindow::close() {
  if (window_ == MPI_WIN_NULL) return;
  check_mpi(MPI_Win_free(&window_), 0, "MPI_Win_free");
  window_ = MPI_WIN_NULL;
  data_ = nullptr;
}

std::string shared_memory_folder() {
  const char* chosen = std::getenv("OMPI_MCA_osc_sm_backing_store");
  return chosen != nullptr ? chosen : "/dev/shm";
}

std::size_t free_shared_memory_bytes() {
  struct statvfs room {};
  if (statvfs(shared_memory_folder().c_str(), &room) != 0) return 0;
  return static_cast<std::size_t>(room.f_bavail) * static_cast<std::size_t>(room.f_frsize);
}

bool shared_memory_has_room(std::size_t bytes) {
  return bytes + k_left_free <= free_shared_memory_bytes();
}

}  // namespace onebatch::comm
