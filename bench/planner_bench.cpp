// How long planning takes: 8 ranks of two kinds as in the published cluster, and many ranks whose measured tables all
// differ.
#include "trainer/plan/planner.hpp"

#include <benchmark/benchmark.h>

#include <random>

namespace {

using namespace onebatch;

std::vector<RankCost> published_cluster() {
  const CostTable v100({{32, 0.0987}, {64, 0.1869}, {96, 0.2706}, {128, 0.3574}});
  const CostTable p100({{32, 0.1564}, {64, 0.2937}, {96, 0.4361}, {128, 0.5706}, {160, 0.7144}});
  std::vector<RankCost> ranks(4, RankCost{"V100", v100, 1, 128, std::nullopt, 0.0});
  ranks.resize(8, RankCost{"P100", p100, 1, 160, std::nullopt, 0.0});
  return ranks;
}

// `kinds` tables, each measured with its own noise.
std::vector<RankCost> many_ranks(std::int64_t count, std::int64_t kinds) {
  std::mt19937 generator(1);
  std::uniform_real_distribution<double> noise(0.98, 1.02);
  std::vector<RankCost> ranks;
  for (std::int64_t kind = 0; kind < kinds; ++kind) {
    const double slow = 1.0 + 0.2 * static_cast<double>(kind % 8);
    std::vector<TimedSize> points;
    for (const std::int64_t size : {1, 8, 32, 64, 128})
      points.push_back({size, slow * (0.01 + 0.003 * static_cast<double>(size)) * noise(generator)});
    ranks.push_back({"GPU", CostTable(points), 1, 128, std::nullopt, 0.0});
    ranks.back().jitter = 0.01;
  }
  for (std::int64_t rank = kinds; rank < count; ++rank) ranks.push_back(ranks[static_cast<std::size_t>(rank % kinds)]);
  return ranks;
}

void plan(benchmark::State& state, const std::vector<RankCost>& ranks, std::int64_t batch) {
  for (auto _ : state) benchmark::DoNotOptimize(plan_global_batch(batch, ranks));
}

void published(benchmark::State& state) {
  plan(state, published_cluster(), state.range(0));
}
void unlike(benchmark::State& state) {
  plan(state, many_ranks(state.range(0), state.range(1)), 32 * state.range(0));
}

BENCHMARK(published)->Arg(256)->Arg(1024)->Arg(4096)->Unit(benchmark::kMicrosecond);
BENCHMARK(unlike)
    ->ArgNames({"ranks", "kinds"})
    ->Args({8, 8})
    ->Args({1024, 8})
    ->Args({1024, 1024})
    ->Args({10240, 8})
    ->Args({16384, 8})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
