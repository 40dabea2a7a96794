// Text as the numbers of its tokens: a sample is a block of them, and its targets are the tokens that follow each.
#include "trainer/base/error.hpp"
#include "trainer/data/dataset_kind.hpp"
#include "trainer/data/file_list.hpp"
#include "trainer/data/token_files.hpp"
#include "trainer/settings/key_types.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>

namespace onebatch {
namespace {

constexpr const char* k_extension = ".bin";

TokenFiles token_files(const DatasetConfiguration& data) {
  return {files_of(data, k_extension), data.token_type, data.block_size};
}

class TokensDataset final : public Dataset {
 public:
  TokensDataset(const DatasetConfiguration& configuration, std::optional<std::int64_t> ignored)
      : files_(token_files(configuration)),
        digest_(files_.digest()),
        separator_(configuration.separator),
        ignored_(ignored) {
    if (separator_ && !ignored_)
      throw UserError("data.separator needs a loss that leaves labels out, as loss.kind = \"cross_entropy\"");
    check_type(std::max(configuration.vocabulary, separator_.value_or(-1) + 1));
    vocabulary_ = configuration.vocabulary > 0 ? configuration.vocabulary : looked_through();
    if (separator_ && *separator_ >= vocabulary_)
      throw UserError(fmt::format("data.separator = {} is no token: the largest is {}", *separator_, vocabulary_ - 1));
  }

  std::int64_t size() const override { return files_.blocks(); }
  std::vector<std::int64_t> sample_shape() const override { return {files_.block_size()}; }
  std::int64_t num_classes() const override { return vocabulary_; }
  std::optional<LabelRange> labels() const override { return labels_; }
  std::string name_of(std::size_t tensor) const override { return tensor == 0 ? "the tokens" : "the next tokens"; }
  std::string digest() const override { return digest_; }
  std::string warning() const override { return files_.about_unused(); }

  Batch gather(std::span<const std::int64_t> indices, at::ScalarType /*type*/) const override {
    const std::int64_t block_size = files_.block_size();
    const auto count = static_cast<std::int64_t>(indices.size());
    const at::Tensor inputs = at::empty({count, block_size}, at::kLong);
    const at::Tensor targets = at::empty({count, block_size}, at::kLong);
    auto* input = inputs.mutable_data_ptr<std::int64_t>();
    auto* target = targets.mutable_data_ptr<std::int64_t>();
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(block_size) + 1);
    for (const std::int64_t index : indices) {
      files_.read(index, tokens);
      check_tokens(index, tokens);
      input = std::copy_n(tokens.begin(), block_size, input);
      target = std::copy_n(tokens.begin() + 1, block_size, target);
      if (separator_) leave_out_beginnings(tokens, target - block_size);
    }
    return {{inputs}, targets, {}};
  }

 private:
  void check_type(std::int64_t vocabulary) const {
    constexpr std::int64_t k_of_16_bits = 1 << 16;
    if (vocabulary > k_of_16_bits && !files_.taken_for_16_bits().empty())
      throw UserError(fmt::format(
          "{} has no header that says how large its tokens are, and 16 bits hold no vocabulary of {}: write "
          "data.token_type = \"uint32\", or \"uint16\" where the file has the first 65536 alone",
          files_.taken_for_16_bits().string(), vocabulary));
  }

  std::int64_t looked_through() {
    const TokenFiles::Range range = files_.look_through();
    labels_ = LabelRange{{range.least.token, range.least.block}, {range.largest.token, range.largest.block}};
    return std::min(range.largest.token, k_most_classes - 1) + 1;
  }

  // Those of a given vocabulary, which were not looked through.
  void check_tokens(std::int64_t block, std::span<const std::int64_t> tokens) const {
    const auto wrong = std::ranges::find_if(tokens, [&](std::int64_t token) { return token >= vocabulary_; });
    if (wrong == tokens.end()) return;
    throw UserError(
        fmt::format("{} is {}, but there are only {}, 0 … {}: write data.vocabulary = {} or more, or "
                    "data.token_type as the file was written",
                    files_.place_of(block, wrong - tokens.begin()), *wrong, vocabulary_, vocabulary_ - 1, *wrong + 1));
  }

  // What follows a separator begins another document, of which this one says nothing.
  void leave_out_beginnings(std::span<const std::int64_t> tokens, std::int64_t* targets) const {
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      if (tokens[i] == *separator_) targets[i] = *ignored_;
    }
  }

  TokenFiles files_;
  std::string digest_;
  std::optional<std::int64_t> separator_;
  std::optional<std::int64_t> ignored_;
  std::int64_t vocabulary_ = 0;
  std::optional<LabelRange> labels_;
};

constexpr Changes k_both = Changes::result | Changes::probe;

std::vector<KeyOf<DatasetConfiguration>> tokens_keys() {
  using D = DatasetConfiguration;
  auto block_size =
      integer_key({"block_size", k_both,
                   "tokens: how many tokens a sample has. Sample i of a file is its tokens from i · block_size on, and "
                   "its targets are those from one further on; a file of n tokens has (n − 1) / block_size samples, "
                   "rounded down, and no sample lies in two files",
                   "needed"},
                  1, std::int64_t{1} << 24, &D::block_size);
  block_size.show = [show = block_size.show](const D& data) { return data.block_size == 0 ? "" : show(data); };
  return {
      std::move(block_size),
      choice_key({"token_type", k_both,
                  "tokens: what a file without a header holds, little-endian (`\"auto\"`: uint16, as nanoGPT writes "
                  "them; a file that looks like one of wider numbers is refused). llm.c's "
                  "files say what they hold"},
                 {{"auto", TokenType::automatic},
                  {"uint8", TokenType::uint8},
                  {"uint16", TokenType::uint16},
                  {"uint32", TokenType::uint32}},
                 &D::token_type),
      integer_key(
          {"vocabulary", k_both,
           "tokens: how many different ones there are; one that is too large is named when it is met. 0: the "
           "largest and one, for which every rank looks the files through at every start, a second for some GB"},
          0, k_most_classes, &D::vocabulary),
      optional_integer_key(
          {"separator", k_both,
           "tokens: the token between two documents. The label that follows it, another document's "
           "first token, counts for nothing; that documents end is still learned. A block may hold "
           "parts of several documents, and what a model sees of the ones before is the model's affair"},
          0, "", &D::separator)};
}

void check_tokens_keys(const DatasetConfiguration& data, const CheckRequest& request) {
  if (data.path.empty() && data.files.empty())
    request.complain("path", "is needed for data.kind = \"tokens\": a file, a pattern, or a folder of *.bin");
  if (data.block_size == 0)
    request.complain("block_size", "is needed for data.kind = \"tokens\": how many tokens a sample has");
  refuse_same_files(data, request);
  const std::int64_t classes = request.configuration.model.num_classes;
  if (classes > 0 && data.vocabulary > classes)
    request.complain("vocabulary", fmt::format("is more than model.num_classes = {}", classes));
  if (data.separator && data.vocabulary > 0 && *data.separator >= data.vocabulary)
    request.complain("separator", fmt::format("is no token: write 0 … {}", data.vocabulary - 1));
}

}  // namespace

DatasetKind tokens_dataset_kind() {
  DatasetKind kind;
  kind.name = "tokens";
  kind.keys = tokens_keys();
  kind.shares = {"files"};
  kind.check = check_tokens_keys;
  kind.open = [](const DatasetConfiguration& data, const OpenRequest& request) {
    return std::make_unique<TokensDataset>(data, request.ignored);
  };
  kind.count_samples = [](const DatasetConfiguration& data) { return token_files(data).blocks(); };
  kind.for_each_file = each_file_of(k_extension);
  return kind;
}

}  // namespace onebatch
