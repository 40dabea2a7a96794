// A data format of one's own: points of the plane, to be told apart by their quadrant. data.kind = "quadrants",
// data.points = 400.
#include <onebatch/kinds.hpp>

#include <ATen/ops/empty.h>

#include <cmath>

namespace {

using namespace onebatch;

const Option<DatasetConfiguration, std::int64_t> k_points{"points", 400};

class Quadrants final : public Dataset {
 public:
  Quadrants(std::int64_t size, double turn) : size_(size), turn_(turn) {}

  std::int64_t size() const override { return size_; }
  std::vector<std::int64_t> sample_shape() const override { return {2}; }
  std::int64_t num_classes() const override { return 4; }

  // A spiral: what a sample is depends on its index alone.
  Batch gather(std::span<const std::int64_t> indices, at::ScalarType type) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    const at::Tensor inputs = at::empty({count, 2}, at::TensorOptions().dtype(at::kDouble));
    const at::Tensor targets = at::empty({count}, at::TensorOptions().dtype(at::kLong));
    for (std::int64_t row = 0; row < count; ++row) {
      const double angle = turn_ + 2.4 * static_cast<double>(indices[static_cast<std::size_t>(row)]);
      const double x = std::cos(angle);
      const double y = std::sin(angle);
      inputs.mutable_data_ptr<double>()[2 * row] = x;
      inputs.mutable_data_ptr<double>()[2 * row + 1] = y;
      targets.mutable_data_ptr<std::int64_t>()[row] = (x < 0.0 ? 1 : 0) + (y < 0.0 ? 2 : 0);
    }
    return {{inputs.to(type)}, targets, {}};
  }

 private:
  std::int64_t size_;
  double turn_;
};

DatasetKind quadrants() {
  DatasetKind kind;
  kind.name = "quadrants";
  kind.keys = {integer_key({"points", Changes::result, "quadrants: how many samples"}, 1, k_any, k_points)};
  kind.open = [](const DatasetConfiguration& data, const OpenRequest& request) {
    return std::make_unique<Quadrants>(k_points(data), request.split == Split::train ? 0.0 : 0.1);
  };
  kind.count_samples = [](const DatasetConfiguration& data) { return k_points(data); };
  return kind;
}

[[maybe_unused]] const bool k_registered = (register_kind(quadrants()), true);

}  // namespace
