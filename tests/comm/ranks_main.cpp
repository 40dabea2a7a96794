#include "ranks_main.hpp"

#include <gtest/gtest.h>

#include <cstdio>

namespace onebatch::testing {
namespace {

std::unique_ptr<comm::World> the_world;

// Each failure once, with its rank; passes are rank 0's to tell.
class RankPrinter final : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed())
      std::printf("rank %d: %s:%d: %s\n", the_world->rank(), result.file_name(), result.line_number(),
                  result.message());
  }
};

}  // namespace

comm::World& world() {
  return *the_world;
}

int run_all(int argc, char** argv) {
  the_world = comm::World::create();
  the_world->set_timeout_seconds(60);  // a rank that left a test early must not leave the others waiting
  ::testing::InitGoogleTest(&argc, argv);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (the_world->rank() != 0) delete listeners.Release(listeners.default_result_printer());
  if (the_world->rank() != 0) listeners.Append(new RankPrinter);
  std::int64_t failed = RUN_ALL_TESTS();
  the_world->control().all_reduce(&failed, 1, comm::ScalarType::int64, comm::ReduceOp::max);
  the_world->close();
  return static_cast<int>(failed);
}

}  // namespace onebatch::testing

int main(int argc, char** argv) {
  return onebatch::testing::run_all(argc, argv);
}
