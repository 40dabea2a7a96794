#include "trainer/models/size_guards.hpp"

#include <gtest/gtest.h>

#include <string>

namespace onebatch {
namespace {

// Of x [4, 6] and mask [4, 7].
std::optional<std::int64_t> size_of(std::string_view input, std::int64_t dimension) {
  if (dimension == 0) return 4;
  if (dimension != 1) return std::nullopt;
  return input == "x"      ? std::optional<std::int64_t>(6)
         : input == "mask" ? std::optional<std::int64_t>(7)
                           : std::nullopt;
}

TEST(SizeGuardsTest, what_torch_export_writes_is_read) {
  for (const char* guard : {"(L['x'].size()[1] % 2) == 0", "(L['mask'].size()[1] % 2) != 0", "L['x'].size()[1] > 5",
                            "5*L['x'].size()[0] < 1000", "(L['x'].size()[1] // 2) <= L['x'].size()[1]",
                            "L['x'].size()[0] == L['mask'].size()[0]", "((1 + L['x'].size()[1]) // 2) != 1",
                            "L['x'].size()[1] - 1 - 2 == 3", "-7 // 2 == -4", "-7 % 2 == 1", "2*3 + 4*5 == 26"})
    EXPECT_EQ(guard_holds(guard, size_of), std::optional(true)) << guard;
  for (const char* guard : {"(L['mask'].size()[1] % 2) == 0", "L['x'].size()[1] == L['mask'].size()[1]",
                            "L['x'].size()[1] >= 7", "7 <= L['x'].size()[1]"})
    EXPECT_EQ(guard_holds(guard, size_of), std::optional(false)) << guard;
}

TEST(SizeGuardsTest, anything_else_is_none) {
  for (const std::string& guard :
       {std::string("L['d']['a'].size()[1] == 2"), std::string("L['y'].size()[1] == 2"),
        std::string("L['x'].size()[2] == 2"), std::string("max(1, 2) == 2"), std::string("not (1 == 1)"),
        std::string("1 == 1 == 1"), std::string("1"), std::string(), std::string("1 // 0 == 1"),
        std::string("9223372036854775807 + 1 > 0"), std::string("3037000500*3037000500 > 0"),
        std::string("99999999999999999999 > 0"), std::string("L['x"), std::string("L['x'].size()["),
        std::string("(1 == 1"), std::string("1 == 1)"), std::string(400, '(') + "1 == 1", std::string(100000, '(')})
    EXPECT_EQ(guard_holds(guard, size_of), std::nullopt) << guard.substr(0, 50);
}

TEST(SizeGuardsTest, layouts_decide_nothing) {
  EXPECT_FALSE(guard_decides("(3*L['x'].size()[1]) != (3*(L['x'].size()[1] // 2))"));
  EXPECT_TRUE(guard_decides("(L['x'].size()[1] % 2) != 0"));
  EXPECT_TRUE(guard_decides("L['x'].size()[1] > 5"));
}

}  // namespace
}  // namespace onebatch
