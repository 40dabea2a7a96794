#include "trainer/plan/share_search.hpp"

#include "trainer/plan/reachable_sums.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <unordered_map>

namespace onebatch {
namespace {

constexpr double k_infinite = std::numeric_limits<double>::infinity();

bool same_cost(const RankCost& a, const RankCost& b) {
  const auto same_point = [](const TimedSize& p, const TimedSize& q) { return p.size == q.size && p.seconds == q.seconds; };
  const auto& p = a.table.points();
  const auto& q = b.table.points();
  return a.min_micro_batch == b.min_micro_batch && a.max_micro_batch == b.max_micro_batch && a.fixed_micro_batch == b.fixed_micro_batch &&
         a.constant_seconds == b.constant_seconds && std::equal(p.begin(), p.end(), q.begin(), q.end(), same_point);
}

// Equal for equal costs: unlike tables nearly always differ in their last time.
std::size_t hash_of(const RankCost& cost) {
  return std::hash<double>()(cost.table.points().back().seconds) ^ static_cast<std::size_t>(cost.max_micro_batch);
}

// Whether all samples can be done within a time, by how many each rank's table can do: for tables whose reachable shares are 0, 1, 2, …
class MonotoneSearch {
 public:
  MonotoneSearch(std::int64_t batch, TableSet& tables)
      : batch_(batch), tables_(tables), count_(tables.tables.size(), 0), most_(tables.tables.size(), 0) {
    for (const std::size_t table : tables.table_of_rank) ++count_[table];
  }

  // The least feasible time is one at which some rank finishes some share: bisection narrows to the last such time and stops.
  std::vector<std::int64_t> run() {
    double low = lower_bound();
    double high = std::max(low, std::numeric_limits<double>::min());
    if (fits(low)) {
      high = low;
    } else {
      while (!fits(high)) {
        low = high;
        high *= 1.25;
      }
      narrow(low, high);
    }
    fits(high);
    return hand_out();
  }

 private:
  bool fits(double seconds) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < most_.size(); ++i) {
      most_[i] = tables_.tables[i].most_samples(seconds, batch_);
      sum += count_[i] * most_[i];
    }
    return sum >= batch_;
  }

  void narrow(double low, double& high) {
    for (;;) {
      fits(low);
      const double next = next_time();
      if (next >= high) {
        high = std::min(high, next);
        break;
      }
      const double middle = low + (high - low) / 2.0;
      const double tried = middle > low && middle < high ? std::max(middle, next) : next;
      (fits(tried) ? high : low) = tried;
      if (high == next) break;
    }
  }

  // The first time after the one last tried at which some rank can do more.
  double next_time() {
    double next = k_infinite;
    for (std::size_t i = 0; i < most_.size(); ++i) {
      if (most_[i] >= batch_ || !tables_.tables[i].usable()) continue;
      next = std::min(next, tables_.tables[i].constant_seconds() + tables_.tables[i].seconds(most_[i] + 1));
    }
    return next;
  }

  // Every rank's constant, and the time at which all would be done at their best rates.
  double lower_bound() {
    double low = 0.0;
    double rate = 0.0;
    double offset = 0.0;
    for (std::size_t i = 0; i < most_.size(); ++i) {
      const RankTable& table = tables_.tables[i];
      low = std::max(low, table.constant_seconds());
      if (!table.usable()) continue;
      if (table.least_seconds_per_sample() <= 0.0) return low;
      const double speed = static_cast<double>(count_[i]) / table.least_seconds_per_sample();
      rate += speed;
      offset += speed * table.constant_seconds();
    }
    // Summation order may round it above the truth by some last bits.
    return std::max(low, (static_cast<double>(batch_) + offset) / rate * (1.0 - 1e-9));
  }

  // In proportion to what each could do; any share below that is as good, since none takes longer.
  std::vector<std::int64_t> hand_out() {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < most_.size(); ++i) sum += count_[i] * most_[i];
    std::vector<std::int64_t> shares;
    for (const std::size_t table : tables_.table_of_rank) {
      shares.push_back(static_cast<std::int64_t>(static_cast<__int128>(most_[table]) * batch_ / sum));
    }
    std::int64_t left = batch_ - std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
    for (std::size_t rank = 0; left > 0; rank = (rank + 1) % shares.size()) {
      if (shares[rank] >= most_[tables_.table_of_rank[rank]]) continue;
      ++shares[rank];
      --left;
    }
    return shares;
  }

  std::int64_t batch_;
  TableSet& tables_;
  std::vector<std::int64_t> count_;  // ranks of each table
  std::vector<std::int64_t> most_;   // samples that a rank of each table can do in the time last tried
};

}  // namespace

TableSet make_tables(const std::vector<RankCost>& ranks, std::optional<std::int64_t> accumulation_steps) {
  TableSet set;
  std::unordered_multimap<std::size_t, std::size_t> rank_of_hash;  // the first rank of each distinct cost
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::size_t hash = hash_of(ranks[rank]);
    const auto [begin, end] = rank_of_hash.equal_range(hash);
    const auto found = std::find_if(begin, end, [&](const auto& entry) { return same_cost(ranks[entry.second], ranks[rank]); });
    if (found != end) {
      set.table_of_rank.push_back(set.table_of_rank[found->second]);
      continue;
    }
    rank_of_hash.emplace(hash, rank);
    set.table_of_rank.push_back(set.tables.size());
    set.tables.emplace_back(ranks[rank], accumulation_steps);
  }
  return set;
}

std::vector<std::int64_t> find_shares(std::int64_t global_batch_size, TableSet& tables) {
  const auto usable = [](const RankTable& table) { return table.usable(); };
  if (std::none_of(tables.tables.begin(), tables.tables.end(), usable)) return {};
  const auto simple = [](const RankTable& table) { return table.monotone() || !table.usable(); };
  if (std::all_of(tables.tables.begin(), tables.tables.end(), simple)) return MonotoneSearch(global_batch_size, tables).run();
  return find_reachable_shares(global_batch_size, tables);
}

}  // namespace onebatch
