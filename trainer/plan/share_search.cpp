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

bool same_cost(const RankCost& a, const RankCost& b) {
  const auto same_point = [](const TimedSize& p, const TimedSize& q) {
    return p.size == q.size && p.seconds == q.seconds;
  };
  const auto& p = a.table.points();
  const auto& q = b.table.points();
  return a.min_micro_batch == b.min_micro_batch && a.max_micro_batch == b.max_micro_batch &&
         a.fixed_micro_batch == b.fixed_micro_batch && a.constant_seconds == b.constant_seconds &&
         a.share_memory == b.share_memory && a.preferred_micro_batch == b.preferred_micro_batch &&
         std::equal(p.begin(), p.end(), q.begin(), q.end(), same_point);
}

// Equal for equal costs: unlike tables nearly always differ in their last time.
std::size_t hash_of(const RankCost& cost) {
  return std::hash<double>()(cost.table.points().back().seconds) ^ static_cast<std::size_t>(cost.max_micro_batch);
}

// The least time in which all samples can be done, by how many each rank's table can do: for tables whose reachable
// shares are 0, 1, 2, …
class MonotoneSearch {
 public:
  MonotoneSearch(std::int64_t batch, TableSet& tables)
      : batch_(batch), tables_(tables), count_(tables.tables.size(), 0) {
    for (const std::size_t table : tables.table_of_rank) ++count_[table];
  }

  // The least feasible time is one at which some rank finishes some share: a bracket is narrowed until few such times
  // are left in it.
  std::vector<std::int64_t> run() {
    low_ = at(lower_bound(), std::vector<std::int64_t>(count_.size(), 0));
    if (low_.sum >= batch_) return hand_out(low_.most);
    high_ = low_;
    while (high_.sum < batch_) {
      low_ = std::move(high_);
      high_ = at(std::max(low_.seconds * k_growth, std::numeric_limits<double>::min()), low_.most);
    }
    narrow();
    return hand_out(at(least_time_in_bracket(), low_.most).most);
  }

 private:
  static constexpr double k_growth = 1.05;
  static constexpr int k_narrowings = 16;

  struct Answer {
    double seconds = 0.0;
    std::vector<std::int64_t> most;  // samples that a rank of each table can do in this time
    std::int64_t sum = 0;            // of all ranks
  };

  // `known` can be done in this time.
  Answer at(double seconds, const std::vector<std::int64_t>& known) {
    Answer answer{seconds, std::vector<std::int64_t>(known.size()), 0};
    for (std::size_t i = 0; i < known.size(); ++i) {
      answer.most[i] = tables_.tables[i].most_samples(seconds, known[i], batch_);
      answer.sum += count_[i] * answer.most[i];
    }
    return answer;
  }

  // By interpolation: what can be done grows nearly in proportion to the time.
  void narrow() {
    const auto few = static_cast<std::int64_t>(4 * tables_.table_of_rank.size());
    for (int i = 0; i < k_narrowings && high_.sum - low_.sum > few; ++i) {
      const double part = static_cast<double>(batch_ - low_.sum) / static_cast<double>(high_.sum - low_.sum);
      // Every other time halfway at least, since a plateau would keep one end where it is.
      const double middle = low_.seconds + (high_.seconds - low_.seconds) * (i % 2 == 0 ? part : 0.5);
      if (middle <= low_.seconds || middle >= high_.seconds) return;
      Answer answer = at(middle, low_.most);
      (answer.sum >= batch_ ? high_ : low_) = std::move(answer);
    }
  }

  // Each table's times inside the bracket, in order, until all samples are done.
  double least_time_in_bracket() {
    std::vector<std::pair<double, std::int64_t>> times;  // and how many samples are done with each
    std::int64_t inside = 0;
    for (std::size_t i = 0; i < count_.size(); ++i) inside += high_.most[i] - low_.most[i];
    times.reserve(static_cast<std::size_t>(inside));
    for (std::size_t i = 0; i < count_.size(); ++i) {
      RankTable& table = tables_.tables[i];
      for (std::int64_t n = low_.most[i] + 1; n <= high_.most[i]; ++n)
        times.emplace_back(table.constant_seconds() + table.seconds(n), count_[i]);
    }
    std::sort(times.begin(), times.end());
    std::int64_t sum = low_.sum;
    for (const auto& [seconds, samples] : times) {
      sum += samples;
      if (sum >= batch_) return seconds;
    }
    return high_.seconds;
  }

  // Every rank's constant, and the time at which all would be done at their best rates.
  double lower_bound() {
    double low = 0.0;
    double rate = 0.0;
    double offset = 0.0;
    for (std::size_t i = 0; i < count_.size(); ++i) {
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
  std::vector<std::int64_t> hand_out(const std::vector<std::int64_t>& most) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < most.size(); ++i) sum += count_[i] * most[i];
    std::vector<std::int64_t> shares;
    shares.reserve(tables_.table_of_rank.size());
    for (const std::size_t table : tables_.table_of_rank) {
      shares.push_back(static_cast<std::int64_t>(static_cast<__int128>(most[table]) * batch_ / sum));
    }
    std::int64_t left = batch_ - std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
    for (std::size_t rank = 0; left > 0; rank = (rank + 1) % shares.size()) {
      if (shares[rank] >= most[tables_.table_of_rank[rank]]) continue;
      ++shares[rank];
      --left;
    }
    return shares;
  }

  std::int64_t batch_;
  TableSet& tables_;
  std::vector<std::int64_t> count_;  // ranks of each table
  Answer low_;                       // not all samples can be done in this time
  Answer high_;                      // all can
};

}  // namespace

TableSet make_tables(const std::vector<RankCost>& ranks, std::optional<std::int64_t> accumulation_steps) {
  TableSet set;
  set.tables.reserve(ranks.size());
  std::unordered_multimap<std::size_t, std::size_t> rank_of_hash;  // the first rank of each distinct cost
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::size_t hash = hash_of(ranks[rank]);
    const auto [begin, end] = rank_of_hash.equal_range(hash);
    const auto found =
        std::find_if(begin, end, [&](const auto& entry) { return same_cost(ranks[entry.second], ranks[rank]); });
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

std::int64_t room_for(std::int64_t global_batch_size, const TableSet& tables) {
  std::vector<std::int64_t> of_table;
  for (const RankTable& table : tables.tables) of_table.push_back(table.largest_share(global_batch_size));
  std::int64_t sum = 0;
  for (const std::size_t table : tables.table_of_rank) sum += of_table[table];
  return sum;
}

std::vector<std::int64_t> find_shares(std::int64_t global_batch_size, TableSet& tables) {
  const auto usable = [](const RankTable& table) { return table.usable(); };
  if (std::none_of(tables.tables.begin(), tables.tables.end(), usable)) return {};
  if (room_for(global_batch_size, tables) < global_batch_size) return {};
  const auto simple = [](const RankTable& table) { return table.monotone() || !table.usable(); };
  if (std::all_of(tables.tables.begin(), tables.tables.end(), simple))
    return MonotoneSearch(global_batch_size, tables).run();
  return find_reachable_shares(global_batch_size, tables);
}

}  // namespace onebatch
