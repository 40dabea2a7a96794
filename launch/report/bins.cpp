#include "launch/report/bins.hpp"

#include "comm/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace onebatch::launch::report {
namespace {

// Of the values from `begin` to `end`; `values` is 0 where none is finite.
Bin bin_of(const std::vector<double>& x, const std::vector<double>& y, std::size_t begin, std::size_t end) {
  Bin bin{.first = x[begin], .last = x[end - 1]};
  double sum = 0.0;
  for (std::size_t i = begin; i < end; ++i) {
    if (!std::isfinite(y[i])) continue;
    bin.least = bin.values == 0 ? y[i] : std::min(bin.least, y[i]);
    bin.most = bin.values == 0 ? y[i] : std::max(bin.most, y[i]);
    sum += y[i];
    ++bin.values;
  }
  if (bin.values > 0) bin.mean = std::clamp(sum / static_cast<double>(bin.values), bin.least, bin.most);
  return bin;
}

}  // namespace

std::vector<Bin> bins_of(const std::vector<double>& x, const std::vector<double>& y, std::size_t most_bins) {
  const std::size_t count = std::min(x.size(), y.size());
  const std::size_t num_bins = std::min(count, most_bins);
  std::vector<Bin> bins;
  for (std::size_t i = 0; i < num_bins; ++i) {
    const Bin bin = bin_of(x, y, i * count / num_bins, (i + 1) * count / num_bins);
    if (bin.values > 0) bins.push_back(bin);
  }
  return bins;
}

CurveFacts facts_of(const std::vector<double>& x, const std::vector<double>& y) {
  CurveFacts facts;
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!std::isfinite(y[i])) {
      ++facts.not_finite;
      continue;
    }
    if (facts.values == 0 || y[i] < facts.least) {
      facts.least = y[i];
      facts.least_at = x[i];
    }
    if (facts.values == 0 || y[i] > facts.most) {
      facts.most = y[i];
      facts.most_at = x[i];
    }
    facts.last = y[i];
    facts.last_at = x[i];
    ++facts.values;
  }
  return facts;
}

double quantile(std::vector<double> values, double q) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  return values.empty() ? 0.0 : comm::quantile_between(std::move(values), q);
}

}  // namespace onebatch::launch::report
