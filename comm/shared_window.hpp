// Memory that the ranks of one node share.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <string>

namespace onebatch::comm {

constexpr std::size_t k_page_bytes = 4096;

/// Owns a window of MPI_Win_allocate_shared.
class SharedWindow {
 public:
  /// Zeroed memory, the same on all ranks of `node`, aligned to a page. Collective over `node`; every rank must ask for
  /// the same. The room in /dev/shm must have been asked for and agreed before: an allocation that fails on one rank
  /// hangs the others.
  static std::unique_ptr<SharedWindow> create(MPI_Comm node, std::size_t bytes);
  ~SharedWindow() = default;  // does not communicate: close() frees
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  /// Collective.
  void close();

 private:
  SharedWindow(MPI_Win window, std::byte* data) : window_(window), data_(data) {}
  MPI_Win window_;
  std::byte* data_;
};

/// Where windows are kept (Open MPI's osc_sm_backing_store, else /dev/shm).
[[nodiscard]] std::string shared_memory_folder();
/// Bytes free there; 0 where it cannot be asked.
[[nodiscard]] std::size_t free_shared_memory_bytes();
/// Whether a window of so many bytes leaves enough for MPI's own needs.
[[nodiscard]] bool shared_memory_has_room(std::size_t bytes);

}  // namespace onebatch::comm
