// Which share of the global batch every rank gets: the exact minimum of the slowest rank's time.
#pragma once

#include "trainer/plan/rank_table.hpp"

namespace onebatch {

/// Ranks of equal cost share one table: `table_of_rank` maps to `tables`.
struct TableSet {
  std::vector<RankTable> tables;
  std::vector<std::size_t> table_of_rank;

  RankTable& of(std::size_t rank) { return tables[table_of_rank[rank]]; }
  [[nodiscard]] std::size_t num_ranks() const { return table_of_rank.size(); }
};

TableSet make_tables(const std::vector<RankCost>& ranks, std::optional<std::int64_t> accumulation_steps);

/// How many samples there is memory for on all ranks together, counting none for more than the whole batch.
std::int64_t room_for(std::int64_t global_batch_size, const TableSet& tables);

/// Samples per rank; empty where no split of `global_batch_size` exists.
std::vector<std::int64_t> find_shares(std::int64_t global_batch_size, TableSet& tables);

}  // namespace onebatch
