#include "trainer/models/exported_regions.hpp"

#include "trainer/models/exported_schema.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include <optional>

namespace onebatch {
namespace {

void run_on(Block& block, torch::jit::Stack& stack) {
  std::vector<c10::IValue> given(std::make_move_iterator(stack.begin()), std::make_move_iterator(stack.end()));
  stack.clear();
  for (c10::IValue& value : block.run(std::move(given))) stack.push_back(std::move(value));
}

// Weights that autocast has kept copies of, made where no gradient was recorded, would have none where one is.
class GradModeRegion {
 public:
  explicit GradModeRegion(bool enabled) : mode_(enabled) { at::autocast::clear_cache(); }
  ~GradModeRegion() { at::autocast::clear_cache(); }
  GradModeRegion(const GradModeRegion&) = delete;
  GradModeRegion& operator=(const GradModeRegion&) = delete;

 private:
  at::AutoGradMode mode_;
};

struct Autocast {
  bool enabled = true;
  bool cached = true;
  std::optional<at::ScalarType> type;
};

// As torch.autocast enters and leaves.
class AutocastRegion {
 public:
  AutocastRegion(c10::DeviceType device, const Autocast& autocast)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        was_cached_(at::autocast::is_autocast_cache_enabled()),
        was_type_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::set_autocast_enabled(device, autocast.enabled);
    if (autocast.type) at::autocast::set_autocast_dtype(device, *autocast.type);
    at::autocast::set_autocast_cache_enabled(autocast.cached);
    at::autocast::increment_nesting();
  }
  ~AutocastRegion() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, was_type_);
    at::autocast::set_autocast_cache_enabled(was_cached_);
  }
  AutocastRegion(const AutocastRegion&) = delete;
  AutocastRegion& operator=(const AutocastRegion&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  bool was_cached_;
  at::ScalarType was_type_;
};

// None for what is None.
std::optional<JsonReader> given(const JsonReader& arguments, std::size_t index, const char* tag) {
  const auto [found, value] = tagged(arguments.item(index).field("arg"));
  if (found == "as_none") return std::nullopt;
  if (found != tag) arguments.item(index).fail("is not of the form \"" + std::string(tag) + "\"");
  return value;
}

void check_count(const JsonReader& arguments, std::size_t at_least) {
  if (arguments.array_size("arguments") < at_least) arguments.fail("are too few for a region");
}

}  // namespace

Region region_of(const std::string& target, const JsonReader& arguments, const RunMode& mode) {
  if (target == "torch.ops.higher_order.wrap_with_set_grad_enabled") {
    check_count(arguments, 2);
    const auto enabled = given(arguments, 0, "as_bool");
    if (!enabled) arguments.fail("do not say whether gradients are recorded");
    return {2, 1, [on = enabled->boolean()](Block& block, torch::jit::Stack& stack) {
              const GradModeRegion region(on);
              run_on(block, stack);
            }};
  }
  if (target != "torch.ops.higher_order.wrap_with_autocast")
    arguments.fail("belong to " + target +
                   ", which is not known: of operators that take a graph only torch.no_grad, torch.enable_grad and "
                   "torch.autocast are; write what it does (a condition, a loop) as tensor operations");
  check_count(arguments, 5);
  Autocast autocast;
  if (const auto type = given(arguments, 1, "as_scalar_type")) autocast.type = scalar_type_in(*type);
  if (const auto enabled = given(arguments, 2, "as_bool")) autocast.enabled = enabled->boolean();
  if (const auto cached = given(arguments, 3, "as_bool")) autocast.cached = cached->boolean();
  return {5, 4, [autocast, &mode](Block& block, torch::jit::Stack& stack) {
            const AutocastRegion region(mode.device.type(), autocast);
            run_on(block, stack);
          }};
}

}  // namespace onebatch
