#include "trainer/data/token_files.hpp"

#include "tests/fuzz/fuzz_target.hpp"

namespace onebatch::fuzz {
namespace {

void read_all(const std::filesystem::path& path, TokenType type) {
  constexpr std::int64_t k_block_size = 3;
  const TokenFiles files({path}, type, k_block_size);
  const TokenFiles::Range range = files.look_through();
  std::vector<std::int64_t> tokens(k_block_size + 1);
  for (std::int64_t block = 0; block < files.blocks(); ++block) {
    files.read(block, tokens);
    for (const std::int64_t token : tokens)
      check(range.least.token <= token && token <= range.largest.token, "a token lies between the extremes");
  }
}

void run(std::string_view input) {
  const MemoryFile file(input);
  for (const TokenType type : {TokenType::automatic, TokenType::uint8, TokenType::uint16, TokenType::uint32}) {
    unless_refused([&] {
      read_all(file.path(), type);
      return true;
    });
  }
}

const Registered k_registered("tokens", run);

}  // namespace
}  // namespace onebatch::fuzz
