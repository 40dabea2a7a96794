#include "launch/init/written_configuration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace onebatch::launch {
namespace {

constexpr std::size_t k_comments_from = 34;  // at least
constexpr std::int64_t k_small_side = 96;
constexpr std::int64_t k_few = 10000;  // samples

std::string section(const char* name, const std::vector<WrittenKey>& keys) {
  std::string text = fmt::format("\n[{}]\n", name);
  std::size_t width = k_comments_from;
  for (const WrittenKey& one : keys)
    width = std::max(width, one.comment.empty() ? 0 : one.key.size() + 3 + one.value.size());
  for (const auto& [key, value, comment] : keys) {
    const std::string line = fmt::format("{} = {}", key, value);
    text += comment.empty() ? line + "\n" : fmt::format("{:<{}} # {}\n", line, width, comment);
  }
  return text;
}

// A power of two of which an epoch has sixteen or more, and that fills a device.
std::int64_t batch_of(const FoundData& found) {
  const std::int64_t most = found.sample == SampleIs::tokens ? 64 : 256;
  return std::clamp(static_cast<std::int64_t>(
                        std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, found.samples / 16)))),
                    std::int64_t{4}, most);
}

std::int64_t epochs_of(const FoundData& found) {
  if (found.sample == SampleIs::tokens) return 5;
  return found.sample == SampleIs::image ? 30 : 20;
}

bool takes_exported(const FoundData& found, const GivenModel& model) {
  return !model.path.empty() || !found.why_exported.empty();
}

bool is_small_image(const FoundData& found) {
  return found.side <= k_small_side;
}

std::int64_t depth_of(const FoundData& found) {
  if (!is_small_image(found)) return 18;
  return found.samples < k_few ? 8 : 20;
}

std::vector<WrittenKey> model_keys(const FoundData& found, const GivenModel& model) {
  if (takes_exported(found, model))
    return {{"kind", "\"exported\"", "a program of torch.export; docs/python.md makes one of your model"},
            {"path", toml_text(model.path.empty() ? "model.pt2" : model.path)}};
  std::vector<WrittenKey> keys;
  if (found.sample == SampleIs::image) {
    keys = {{"kind", "\"resnet\"", "a model of your own: kind = \"exported\", path = \"model.pt2\""},
            {"depth", fmt::format("{}", depth_of(found)),
             is_small_image(found) ? "8, 14, 20, 26, ..." : "others, as 50, come from Python"},
            {"stem", is_small_image(found) ? "\"cifar\"" : "\"imagenet\"",
             is_small_image(found) ? "for small images: no pooling" : ""}};
  } else {
    keys = {{"kind", "\"mlp\"", "a model of your own: kind = \"exported\", path = \"model.pt2\""},
            {"hidden", "[256, 256]", "widths of the hidden layers"},
            {"dropout", "0.1"}};
  }
  if (found.outputs) keys.push_back({"num_classes", fmt::format("{}", *found.outputs), "numbers that it returns"});
  return keys;
}

std::vector<WrittenKey> loss_keys(const FoundData& found, const GivenModel& model) {
  if (model.has_own_loss) return {{"kind", "\"model\"", "the program returns its loss itself"}};
  if (found.outputs) return {{"kind", "\"mse\"", "mean squared error"}};
  if (found.sample == SampleIs::image) return {{"kind", "\"cross_entropy\""}, {"label_smoothing", "0.1", "0.0: none"}};
  return {{"kind", "\"cross_entropy\""}};
}

std::int64_t steps_of(const FoundData& found) {
  return epochs_of(found) * std::max<std::int64_t>(1, found.samples / batch_of(found));
}

}  // namespace

std::string model_words(const FoundData& found, const GivenModel& model) {
  if (!model.path.empty()) return model.path;
  if (!found.why_exported.empty()) return "an exported program (" + found.why_exported + ")";
  return found.sample == SampleIs::image ? fmt::format("a ResNet-{}", depth_of(found)) : "a multilayer perceptron";
}

std::string written_configuration(const FoundData& found, const GivenModel& model, const std::string& name) {
  std::string text = fmt::format(
      "# {}.\n"
      "#   onebatch data {}           what the data are, and what of them is broken\n"
      "#   onebatch launch train {}   a rank for each GPU; one rank: onebatch train {}\n"
      "# Every key, its range and its default: onebatch info --keys, and docs/configuration.md.\n",
      found.what, name, name, name);
  text += section("run", {{"epochs", fmt::format("{}", epochs_of(found)), "how long to train"},
                          {"seed", "1", "order of samples, first weights, dropout"}});
  text += section("batch", {{"global_batch_size", fmt::format("{}", batch_of(found)),
                             "samples of one step, over all GPUs; each finds its own micro-batches"}});
  text += section("data", found.data);
  if (!found.validation.empty()) text += section("data.validation", found.validation);
  if (!found.augment.empty()) text += section("data.augment", found.augment);
  text += section("model", model_keys(found, model));
  text += section("loss", loss_keys(found, model));
  text += section("optimizer", {{"kind", "\"adamw\""},
                                {"lr", "1e-3", "the first to try others of: 3e-4, 3e-3"},
                                {"weight_decay", "0.05"},
                                {"max_grad_norm", "1.0", "the gradient of the whole batch is cut to this length"}});
  text += section("schedule", {{"kind", "\"cosine\"", "lr falls to 0 by the end"},
                               {"warmup_steps", fmt::format("{}", std::min<std::int64_t>(500, steps_of(found) / 20)),
                                "and rises for so long first"}});
  return text;
}

}  // namespace onebatch::launch
